//! Tests of promise 6: no call waits for a server that is known to be unavailable or too slow, nor for a reconnect.
//!
//! The module `faults` tests calls while Redis is killed, stopped, disconnected or silent.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Denied, ErrorKind, Limiter, OnError, Rule, Source, rate_limited};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{builder_for, key, limit};

/// A load of 64 tasks that call one limiter, each with its own key, until [`Load::end`].
struct Load {
    state: Arc<LoadState>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct LoadState {
    slowest_micros: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn start(limiter: &Limiter) -> Self {
        let state = Arc::new(LoadState::default());
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let (limiter, state) = (limiter.clone(), Arc::clone(&state));
            tasks.spawn(async move {
                let (key, limit) = (key(&format!("{task}")), limit("1000000/s"));
                while !state.is_over.load(Relaxed) {
                    let started = Instant::now();
                    let decision = limiter.check(&key, &limit).await;
                    let took = u64::try_from(started.elapsed().as_micros()).expect("not that long");
                    state.slowest_micros.fetch_max(took, Relaxed);
                    let allowed =
                        decision.expect("the standby limiter at least").into_result().expect("far from the limit");
                    assert_eq!(allowed.source(), Source::Standby);
                    sleep(Duration::from_millis(10)).await;
                }
            });
        }
        Self { state, tasks }
    }

    async fn end(mut self) {
        self.state.is_over.store(true, Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task that calls");
        }
        let slowest = Duration::from_micros(self.state.slowest_micros.load(Relaxed));
        assert!(slowest <= DEADLINE + MAX_LATENESS, "a call took {slowest:?}");
    }
}

/// The server slows down until its replies are late, but never stops replying. A few calls time out, and later ones
/// fail at once.
#[tokio::test]
async fn calls_fail_at_once_while_the_server_is_known_to_be_slow() {
    const CALLS: u64 = 400;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.delay(DEADLINE / 2);
    let is_served = || async { limiter.check(&key("a"), &limit("100000/1h")).await.is_ok() };
    eventually("a reply despite the delay", is_served).await;
    proxy.delay(DEADLINE * 12 / 10);
    let (late, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let calls = async |pause: u64| {
        while late.load(Relaxed) + refused.load(Relaxed) < CALLS {
            sleep(Duration::from_millis(pause)).await;
            match limiter.check(&key("a"), &limit("100000/1h")).await {
                Ok(_) => {} // sent before the delay, or while the machine stalled
                Err(error) if error.kind() == ErrorKind::Timeout => drop(late.fetch_add(1, Relaxed)),
                Err(_) => drop(refused.fetch_add(1, Relaxed)),
            }
        }
    };
    tokio::join!(calls(3), calls(5), calls(7), calls(11), calls(13), calls(17), calls(19), calls(23));
    let (late, refused) = (late.into_inner(), refused.into_inner());
    assert!(late > 0 && late < CALLS / 2, "{late} calls were late, {refused} did not wait");
}

/// The first call times out, and later ones fail at once.
#[tokio::test]
async fn calls_fail_at_once_while_the_server_is_known_to_be_unavailable() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.stall();
    let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no reply");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // Some more calls may be in flight until the connection is given up.
    eventually("given up", || async {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no reply");
        error.kind() == ErrorKind::Unavailable
    })
    .await;
    let started = Instant::now();
    for _ in 0..1_000 {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no reply");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    let timeout_total = 1_000 * DEADLINE;
    assert!(started.elapsed() < timeout_total / 4, "1 000 calls took {:?}", started.elapsed());
}

/// Pauses between attempts to connect do not grow without bound, however long the outage.
#[tokio::test]
async fn pauses_between_reconnects_are_bounded() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.cut();
    // With pauses that double each time, the last of so many attempts would come after hours.
    eventually("tried often", || async { proxy.connections() > 20 }).await;
    proxy.pass();
    eventually("served", || async { limiter.check(&key("a"), &limit("5/10s")).await.is_ok() }).await;
}

/// Each attempt to connect ends before the next one starts, however many calls fail.
#[tokio::test]
async fn one_connection_attempt_runs_at_a_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
    let url = format!("redis://{}", listener.local_addr().expect("the address of a bound listener"));
    let attempts = thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("an attempt");
        let (_second, _) = listener.accept().expect("another attempt");
        first.set_read_timeout(Some(Duration::from_millis(1))).expect("not zero");
        // Reads what the first connection sent and then its end, which must have happened already.
        std::io::copy(&mut first, &mut std::io::sink()).expect("the first attempt has ended");
    });
    let limiter = Limiter::builder().url(&url).deadline(DEADLINE).build().expect("a URL");
    let load = Load::start(&limiter);
    eventually("tried twice", || async { attempts.is_finished() }).await;
    attempts.join().expect("one after the other");
    load.end().await;
}

/// More concurrent calls than can be decided in time: some time out, and the connection stays. The limiter's own
/// deadline is longer than any stall of the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn burst_of_late_calls_keeps_the_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder =
        builder_for(&server).url(proxy.url()).rule("burst", Rule::new().deadline(DEADLINE)).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    let connections = proxy.connections();
    let mut tasks = JoinSet::new();
    for task in 0..20_000 {
        let limiter = limiter.clone();
        tasks.spawn(async move { limiter.scope(burst(task % 100)).await.err() });
    }
    let failures = tasks.join_all().await;
    let late = failures.iter().filter(|failure| **failure == Some(ErrorKind::Timeout)).count();
    let served = failures.iter().filter(|failure| failure.is_none()).count();
    assert_eq!(served + late, failures.len(), "{served} served, {late} late");
    assert!(limiter.check(&key("after"), &limit("1/1h")).await.is_ok());
    assert_eq!(proxy.connections(), connections, "the connection was kept");
}

#[rate_limited(
    key = "burst:{task}", name = "burst", limit = "1000000/s",
    fallback = unreachable!("far from the limit"), on_error = Err(error.kind())
)]
async fn burst(task: u64) -> Result<(), ErrorKind> {
    Ok(())
}

/// Calls with a rule's short deadline also detect a dead connection.
#[tokio::test]
async fn dead_connection_is_detected_by_calls_with_short_deadlines() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let impatient = Rule::new().deadline(Duration::from_millis(20));
    let builder = Limiter::builder().url(proxy.url()).prefix(unique("impatient")).rule("impatient", impatient);
    let limiter = builder.connect().await.expect("the server is there");
    assert!(limiter.scope(impatient_call()).await.is_ok());
    proxy.half_open();
    proxy.pass();
    eventually("reconnected", || async {
        let _ = limiter.scope(impatient_call()).await;
        proxy.connections() > 1
    })
    .await;
}

#[rate_limited(key = "impatient", limit = "1000000/s")]
async fn impatient_call() -> Result<(), Denied> {
    Ok(())
}
