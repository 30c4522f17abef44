//! Promise 6: no call waits for a server that is known to be away or too slow, nor for a reconnect. What calls see while
//! Redis is killed, stopped, cut off or silent, is measured in `faults`.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Denied, ErrorKind, Limiter, OnError, Rule, Source, rate_limited};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::support::{key, limit, on};

/// 64 tasks that call one limiter, each on a key of its own, until they are told to stop.
struct Load {
    seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    slowest_micros: AtomicU64,
    over: AtomicBool,
}

impl Load {
    fn on(limiter: &Limiter) -> Self {
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let (limiter, seen) = (limiter.clone(), Arc::clone(&seen));
            tasks.spawn(async move {
                let (key, limit) = (key(&format!("{task}")), limit("1000000/s"));
                while !seen.over.load(Relaxed) {
                    let asked = Instant::now();
                    let decision = limiter.check(&key, &limit).await;
                    let took = u64::try_from(asked.elapsed().as_micros()).expect("not that long");
                    seen.slowest_micros.fetch_max(took, Relaxed);
                    let allowed = decision.expect("the stand-in at least").into_result().expect("far from the limit");
                    assert_eq!(allowed.source(), Source::Standby);
                    sleep(Duration::from_millis(10)).await;
                }
            });
        }
        Self { seen, tasks }
    }

    async fn end(mut self) {
        self.seen.over.store(true, Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task that calls");
        }
        let slowest = Duration::from_micros(self.seen.slowest_micros.load(Relaxed));
        assert!(slowest <= DEADLINE + SLACK, "a call took {slowest:?}");
    }
}

/// A server that gets slower until it answers too late, and never falls silent: a few calls find out for those after
/// them.
#[tokio::test]
async fn calls_do_not_wait_for_a_server_that_is_known_to_be_slow() {
    const CALLS: u64 = 400;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.delay(DEADLINE / 2);
    let answered = || async { limiter.check(&key("a"), &limit("100000/1h")).await.is_ok() };
    eventually("answered although it is slow", answered).await;
    proxy.delay(DEADLINE * 12 / 10);
    let (late, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let calls = async |pause: u64| {
        while late.load(Relaxed) + refused.load(Relaxed) < CALLS {
            sleep(Duration::from_millis(pause)).await;
            match limiter.check(&key("a"), &limit("100000/1h")).await {
                Ok(_) => {} // asked before, or while the machine stood still
                Err(error) if error.kind() == ErrorKind::Timeout => drop(late.fetch_add(1, Relaxed)),
                Err(_) => drop(refused.fetch_add(1, Relaxed)),
            }
        }
    };
    tokio::join!(calls(3), calls(5), calls(7), calls(11), calls(13), calls(17), calls(19), calls(23));
    let (late, refused) = (late.into_inner(), refused.into_inner());
    assert!(late > 0 && late < CALLS / 2, "{late} calls were late, {refused} did not wait");
}

/// The first call that is not answered finds out for those after it.
#[tokio::test]
async fn calls_fail_at_once_while_the_server_is_known_to_be_away() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.stall();
    let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // Some more may be on their way while the connection is given up.
    eventually("given up", || async {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("nobody answers");
        error.kind() == ErrorKind::Unavailable
    })
    .await;
    let asked = Instant::now();
    for _ in 0..1_000 {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    let waited_out = 1_000 * DEADLINE;
    assert!(asked.elapsed() < waited_out / 4, "1 000 calls took {:?}", asked.elapsed());
}

/// However long it was away: the pauses between attempts do not grow without end.
#[tokio::test]
async fn attempts_do_not_become_rarer_without_end() {
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

/// However many calls fail: each attempt is over before the next begins.
#[tokio::test]
async fn one_connection_is_tried_at_a_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
    let url = format!("redis://{}", listener.local_addr().expect("the address of a bound listener"));
    let attempts = thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("an attempt");
        let (_second, _) = listener.accept().expect("another attempt");
        first.set_read_timeout(Some(Duration::from_millis(1))).expect("not zero");
        // What it sent, and then its end, without waiting for that.
        std::io::copy(&mut first, &mut std::io::sink()).expect("the first attempt is over");
    });
    let limiter = Limiter::builder().url(&url).deadline(DEADLINE).build().expect("a URL");
    let load = Load::on(&limiter);
    eventually("tried twice", || async { attempts.is_finished() }).await;
    attempts.join().expect("one after the other");
    load.end().await;
}

/// More calls at once than there is time for: some are too late, and the connection has no part in that. The server
/// itself has more time than a machine stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_no_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = on(&server).url(proxy.url()).rule("burst", Rule::new().deadline(DEADLINE)).on_error(OnError::Raise);
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
    assert_eq!(proxy.connections(), connections, "it was not lost");
}

#[rate_limited(
    key = "burst:{task}", name = "burst", limit = "1000000/s",
    fallback = unreachable!("far from the limit"), on_error = Err(error.kind())
)]
async fn burst(task: u64) -> Result<(), ErrorKind> {
    Ok(())
}

/// Calls whose rule gives them far less time than the limiter's own deadline find out as well that nobody is there.
#[tokio::test]
async fn a_connection_that_leads_nowhere_is_given_up_by_impatient_calls_alone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let impatient = Rule::new().deadline(Duration::from_millis(20));
    let builder = Limiter::builder().url(proxy.url()).prefix(&unique("impatient")).rule("impatient", impatient);
    let limiter = builder.connect().await.expect("the server is there");
    assert!(limiter.scope(hurried()).await.is_ok());
    proxy.half_open();
    proxy.pass();
    eventually("connected anew", || async {
        let _ = limiter.scope(hurried()).await;
        proxy.connections() > 1
    })
    .await;
}

#[rate_limited(key = "impatient", limit = "1000000/s")]
async fn hurried() -> Result<(), Denied> {
    Ok(())
}
