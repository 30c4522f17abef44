//! Tests of limiters across runtimes: they work on any thread and in any task, and outlive the runtime that made them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Limiter, Source};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_blocking, spawn_local, yield_now};

use crate::support::{builder_for, key, limit};

mod current;
mod shutdown;

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a function on a new thread, and panics if it does not end in time.
fn run_to_end<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn check_blocking(limiter: &Limiter) {
    let decision = limiter.check_blocking(&key("a"), &limit("100000/h")).expect("a decision");
    assert_eq!(decision.into_result().expect("far from the limit").source(), Source::Store);
}

async fn check(limiter: &Limiter) {
    let decision = limiter.check(&key("a"), &limit("100000/h")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("far from the limit").source(), Source::Store);
}

/// Runs a future to its end on this thread, which sleeps until it is woken, as executors without a runtime do.
fn block_parked<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (waker, mut future) = (Arc::new(Unpark(thread::current())).into(), pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Makes so many lone calls that callers read the replies themselves, and yield to other tasks between. There are more
/// than the budget of a task of tokio, which is 128.
async fn check_often(limiter: &Limiter) {
    for _ in 0..300 {
        check(limiter).await;
    }
}

fn on_redis(busy_poll: Duration) -> Limiter {
    let builder = builder_for(RedisServer::shared()).busy_poll(busy_poll);
    current_thread().block_on(builder.connect()).expect("the server is there")
}

type CallContext = (&'static str, fn(Limiter));

/// Contexts from which blocking code may call a limiter.
const CALL_CONTEXTS: &[CallContext] = &[
    ("a plain thread", |limiter| check_blocking(&limiter)),
    ("many threads", |limiter| {
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| (0..10).for_each(|_| check_blocking(&limiter)));
            }
        });
    }),
    ("a blocking thread", |limiter| {
        multi_thread().block_on(async { spawn_blocking(move || check_blocking(&limiter)).await }).expect("no panic");
    }),
    ("a worker", |limiter| {
        multi_thread()
            .block_on(async { tokio::spawn(async move { check_blocking(&limiter) }).await })
            .expect("no panic");
    }),
    ("all workers", |limiter| {
        let runtime = multi_thread();
        let tasks = [(); 8].map(|()| {
            let limiter = limiter.clone();
            runtime.spawn(async move { (0..10).for_each(|_| check_blocking(&limiter)) })
        });
        tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
    }),
    ("a current-thread runtime", |limiter| current_thread().block_on(async { check_blocking(&limiter) })),
    ("a task of a current-thread runtime", |limiter| {
        current_thread()
            .block_on(async { tokio::spawn(async move { check_blocking(&limiter) }).await })
            .expect("no panic");
    }),
    ("a local task", |limiter| {
        let local = LocalSet::new();
        let task = local.run_until(async { spawn_local(async move { check_blocking(&limiter) }).await });
        current_thread().block_on(task).expect("no panic");
    }),
    ("a task without budget", |limiter| {
        current_thread().block_on(async {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            poll_fn(|context| {
                // Polls until the task's budget is used up: then the channel reports `Pending` despite messages.
                while {
                    sender.send(()).expect("an open channel");
                    receiver.poll_recv(context).is_ready()
                } {}
                check_blocking(&limiter);
                Poll::Ready(())
            })
            .await;
        });
    }),
    ("between awaits", |limiter| {
        multi_thread().block_on(async {
            for _ in 0..20 {
                check(&limiter).await;
                check_blocking(&limiter);
                yield_now().await;
            }
        });
    }),
    ("an executor of its own", |limiter| block_parked(check_often(&limiter))),
    ("an executor in a task", |limiter| {
        for runtime in [multi_thread(), current_thread()] {
            let limiter = limiter.clone();
            let task = async { tokio::spawn(async move { block_parked(check_often(&limiter)) }).await };
            runtime.block_on(task).expect("no panic");
        }
    }),
    ("waits in a task", |limiter| {
        let task = async move {
            for number in 0..40 {
                let (key, limit) = (key(&unique("waits")), limit("1/1ms"));
                for _ in 0..2 {
                    let wait = limiter.wait_blocking(&key, &limit, Duration::from_secs(10));
                    assert!(wait.expect("a decision").is_allowed(), "{number}");
                }
            }
        };
        current_thread().block_on(async { tokio::spawn(task).await }).expect("no panic");
    }),
    ("a scope", |limiter| {
        let inner = limiter.clone();
        limiter.scope_sync(|| check_blocking(&inner));
        current_thread().block_on(limiter.scope(async { check_blocking(&Limiter::current()) }));
    }),
];

#[test]
fn blocking_calls_work_in_any_context() {
    for (context, run) in CALL_CONTEXTS {
        // Callers read most replies, or the worker reads all.
        for limiter in [Limiter::memory(), on_redis(Duration::from_millis(1)), on_redis(Duration::ZERO)] {
            run_to_end(context, move || run(limiter));
        }
    }
}

/// A limiter works on another runtime, and without any.
#[test]
fn limiter_outlives_the_runtime_that_made_it() {
    let server = RedisServer::shared();
    let makers: [fn() -> Runtime; 2] = [multi_thread, current_thread];
    for (made_in, used_in) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let connected = makers[made_in]().block_on(builder_for(server).connect()).expect("the server is there");
        let built = builder_for(server).build().expect("a URL");
        for limiter in [connected, built] {
            run_to_end("another runtime", move || {
                for _ in 0..2 {
                    makers[used_in]().block_on(check(&limiter));
                }
                check_blocking(&limiter);
            });
        }
    }
}

#[test]
fn limiter_connects_without_a_runtime() {
    let connecting = builder_for(RedisServer::shared()).connect();
    let limiter = run_to_end("a future driven by hand", || {
        let mut connecting = Box::pin(connecting);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match connecting.as_mut().poll(&mut context) {
                Poll::Ready(limiter) => return limiter.expect("the server is there"),
                Poll::Pending => thread::yield_now(),
            }
        }
    });
    check_blocking(&limiter);
}

#[test]
fn futures_are_send() {
    fn assert_send<T: Send>(_: T) {}
    let (limiter, key, limit) = (Limiter::memory(), key("a"), limit("5/10s"));
    assert_send(limiter.check(&key, &limit));
    assert_send(limiter.check_n(&key, &limit, 2));
    assert_send(limiter.peek(&key, &limit));
    assert_send(limiter.reset(&key, &limit));
    assert_send(limiter.scope(async {}));
    assert_send(Limiter::connect("memory:"));
    assert_send(Limiter::builder().connect());
}
