//! A limiter belongs to no runtime: it works on any thread, in any task, and outlives the runtime that made it.

use std::future::poll_fn;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, Source};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_blocking, spawn_local, yield_now};

use crate::support::{key, limit, on};

mod current;
mod endings;

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs it on a thread of its own, and fails if it does not come to an end.
fn ends<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn blocks(limiter: &Limiter) {
    let decision = limiter.check_blocking(&key("a"), &limit("100000/h")).expect("a decision");
    assert_eq!(decision.into_result().expect("far from the limit").source(), Source::Store);
}

async fn asks(limiter: &Limiter) {
    let decision = limiter.check(&key("a"), &limit("100000/h")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("far from the limit").source(), Source::Store);
}

fn on_redis() -> Limiter {
    current_thread().block_on(on(RedisServer::shared()).connect()).expect("the server is there")
}

type Place = (&'static str, fn(Limiter));

/// Where code that is not async may be when it asks.
const PLACES: &[Place] = &[
    ("a plain thread", |limiter| blocks(&limiter)),
    ("many threads", |limiter| {
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| (0..10).for_each(|_| blocks(&limiter)));
            }
        });
    }),
    ("a blocking thread", |limiter| {
        multi_thread().block_on(async { spawn_blocking(move || blocks(&limiter)).await }).expect("no panic");
    }),
    ("a worker", |limiter| {
        multi_thread().block_on(async { tokio::spawn(async move { blocks(&limiter) }).await }).expect("no panic");
    }),
    ("all workers", |limiter| {
        let runtime = multi_thread();
        let tasks = [(); 8].map(|()| {
            let limiter = limiter.clone();
            runtime.spawn(async move { (0..10).for_each(|_| blocks(&limiter)) })
        });
        tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
    }),
    ("a runtime of one thread", |limiter| current_thread().block_on(async { blocks(&limiter) })),
    ("a task of a runtime of one thread", |limiter| {
        current_thread().block_on(async { tokio::spawn(async move { blocks(&limiter) }).await }).expect("no panic");
    }),
    ("a local task", |limiter| {
        let local = LocalSet::new();
        let task = local.run_until(async { spawn_local(async move { blocks(&limiter) }).await });
        current_thread().block_on(task).expect("no panic");
    }),
    ("a task without budget", |limiter| {
        current_thread().block_on(async {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            poll_fn(|context| {
                // Until the channel claims to be empty, which it never is.
                while {
                    sender.send(()).expect("an open channel");
                    receiver.poll_recv(context).is_ready()
                } {}
                blocks(&limiter);
                Poll::Ready(())
            })
            .await;
        });
    }),
    ("between awaits", |limiter| {
        multi_thread().block_on(async {
            for _ in 0..20 {
                asks(&limiter).await;
                blocks(&limiter);
                yield_now().await;
            }
        });
    }),
    ("a scope", |limiter| {
        let inner = limiter.clone();
        limiter.scope_sync(|| blocks(&inner));
        current_thread().block_on(limiter.scope(async { blocks(&Limiter::current()) }));
    }),
];

#[test]
fn code_that_is_not_async_asks_from_anywhere() {
    for (place, run) in PLACES {
        for limiter in [Limiter::memory(), on_redis()] {
            ends(place, move || run(limiter));
        }
    }
}

/// A future that no runtime drives is answered all the same.
#[test]
fn a_limiter_outlives_the_runtime_that_made_it() {
    let server = RedisServer::shared();
    let makers: [fn() -> Runtime; 2] = [multi_thread, current_thread];
    for (made_in, used_in) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        let connected = makers[made_in]().block_on(on(server).connect()).expect("the server is there");
        let built = on(server).build().expect("a URL");
        for limiter in [connected, built] {
            ends("another runtime", move || {
                for _ in 0..2 {
                    makers[used_in]().block_on(asks(&limiter));
                }
                blocks(&limiter);
            });
        }
    }
}

#[test]
fn a_limiter_connects_without_a_runtime() {
    let connecting = on(RedisServer::shared()).connect();
    let limiter = ends("a future driven by hand", || {
        let mut connecting = Box::pin(connecting);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            match connecting.as_mut().poll(&mut context) {
                Poll::Ready(limiter) => return limiter.expect("the server is there"),
                Poll::Pending => thread::yield_now(),
            }
        }
    });
    blocks(&limiter);
}

#[test]
fn futures_can_move_between_threads() {
    fn can_move<T: Send>(_: T) {}
    let (limiter, key, limit) = (Limiter::memory(), key("a"), limit("5/10s"));
    can_move(limiter.check(&key, &limit));
    can_move(limiter.check_n(&key, &limit, 2));
    can_move(limiter.peek(&key, &limit));
    can_move(limiter.reset(&key, &limit));
    can_move(limiter.scope(async {}));
    can_move(Limiter::connect("memory:"));
    can_move(Limiter::builder().connect());
}
