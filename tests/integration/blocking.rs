//! The twins of the async methods, on a thread without a runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Limiter};

use crate::support::{AMPLE, key, limit, on};

fn all_of_them(limiter: &Limiter) {
    let (key, limit, brief) = (key("a"), limit("3/1h"), "1/300ms".parse().expect("a limit"));
    let Decision::Allowed(two) = limiter.check_n_blocking(&key, &limit, 2).expect("a decision") else {
        panic!("two of three")
    };
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a look").remaining(), 1);
    assert!(limiter.check_blocking(&key, &limit).expect("a decision").is_allowed());
    assert!(limiter.check_all_blocking(&[(&key, &limit, 1)]).expect("a decision").is_denied());
    limiter.refund_blocking(&two).expect("given back");
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a look").remaining(), 2);
    limiter.reset_blocking(&key, &limit).expect("forgotten");
    assert!(limiter.check_n_blocking(&key, &limit, 3).expect("a decision").is_allowed());
    assert!(limiter.wait_blocking(&key, &limit, Duration::ZERO).expect("a decision").is_denied());
    for _ in 0..2 {
        assert!(limiter.wait_blocking(&key, &brief, AMPLE).expect("a decision").is_allowed());
    }
}

#[test]
fn work_without_a_runtime_on_every_store() {
    let on_redis = on(RedisServer::shared()).build().expect("valid");
    for limiter in [Limiter::memory(), on_redis] {
        thread::spawn(move || all_of_them(&limiter)).join().expect("no panic");
    }
}

/// Unparks a thread, as the waker of an executor that parks does.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor as users write their own.
fn run_on_parked_thread<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The token was taken by the wait for the store, and the executor parked for ever.
#[test]
fn a_blocking_call_leaves_the_park_token_of_its_thread() {
    const CALLS: u32 = 100;
    let limiter = on(RedisServer::shared()).build().expect("valid");
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let (key, limit, mut calls) = (key("parked"), limit("1000/h"), 0);
        run_on_parked_thread(poll_fn(|context| {
            context.waker().wake_by_ref();
            assert!(limiter.check_blocking(&key, &limit).expect("a decision").is_allowed());
            calls += 1;
            if calls == CALLS { Poll::Ready(()) } else { Poll::Pending }
        }));
        done.send(calls).expect("the test waits");
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(30)), Ok(CALLS));
}
