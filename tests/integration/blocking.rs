//! Tests of the blocking methods, on threads without a runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Limiter};

use crate::support::{LONG_DEADLINE, builder_for, key, limit};

fn call_every_blocking_method(limiter: &Limiter) {
    let (key, limit, brief) = (key("a"), limit("3/1h"), "1/300ms".parse().expect("a limit"));
    let Decision::Allowed(two) = limiter.check_n_blocking(&key, &limit, 2).expect("a decision") else {
        panic!("two of three")
    };
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a peek").remaining(), 1);
    assert!(limiter.check_blocking(&key, &limit).expect("a decision").is_allowed());
    assert!(limiter.check_all_blocking(&[(&key, &limit, 1)]).expect("a decision").is_denied());
    limiter.refund_blocking(&two).expect("refunded");
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("a peek").remaining(), 2);
    limiter.reset_blocking(&key, &limit).expect("reset");
    assert!(limiter.check_n_blocking(&key, &limit, 3).expect("a decision").is_allowed());
    assert!(limiter.wait_blocking(&key, &limit, Duration::ZERO).expect("a decision").is_denied());
    for _ in 0..2 {
        assert!(limiter.wait_blocking(&key, &brief, LONG_DEADLINE).expect("a decision").is_allowed());
    }
}

#[test]
fn blocking_methods_work_without_a_runtime_on_every_store() {
    let on_redis = builder_for(RedisServer::shared()).build().expect("valid");
    for limiter in [Limiter::memory(), on_redis] {
        thread::spawn(move || call_every_blocking_method(&limiter)).join().expect("no panic");
    }
}

/// A waker that unparks a thread, like that of an executor that parks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future like a minimal executor of a user.
fn run_on_parked_thread<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Guards against a former defect: the wait for the store consumed the park token, and the executor parked forever.
#[test]
fn blocking_call_keeps_the_park_token_of_its_thread() {
    const CALLS: u32 = 100;
    let limiter = builder_for(RedisServer::shared()).build().expect("valid");
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
