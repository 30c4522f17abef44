//! Limiters that are dropped at any moment: while they connect, with calls in flight, in their own observers, or with
//! their runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rate_limited::{Key, Limit, Limiter};
use tokio::runtime::Builder;

use super::dropping::DropPoint;
use super::round::{Outcome, Round};
use super::watchdog::thread_count;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::RedisServer;

/// The time in which the threads of dropped limiters must end on the slowest machine.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of threads that other parts of the process may have started meanwhile.
const MAX_OTHER_THREADS: usize = 4;

/// Servers to connect to: with TLS, without TLS, and one that sends no reply.
struct Servers {
    tls: RedisServer,
    plain: RedisServer,
    _silent: (RedisServer, Proxy),
    urls: Vec<String>,
}

fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let (tls, plain) = (RedisServer::builder().tls().start(), RedisServer::builder().tcp().start());
        let behind = RedisServer::start();
        let silent = Proxy::start(&behind);
        silent.stall();
        let urls = vec![
            tls.url(),
            tls.url().replace("127.0.0.1", "localhost"),
            plain.url(),
            plain.url().replace("127.0.0.1", "localhost"),
            silent.url().to_owned(),
            "redis://127.0.0.1:1".to_owned(),
        ];
        Servers { tls, plain, _silent: (behind, silent), urls }
    })
}

pub(super) fn round(round: &mut Round) -> Outcome {
    let servers = servers();
    debug_assert!(servers.tls.ca_certificate().is_some() && servers.plain.ca_certificate().is_none());
    let before = thread_count();
    let threads: Vec<_> = (0..if round.short { 4 } else { 12 })
        .map(|_| {
            let random = Random::new(round.random.any());
            let runs = if round.short { 10 } else { 40 };
            thread::spawn(move || run_limiters(random, runs))
        })
        .collect();
    for thread in threads {
        let counts = thread.join().map_err(|_| "a thread that drops limiters panicked".to_owned())?;
        for (what, runs) in counts {
            round.count(what, runs);
        }
    }
    let give_up_at = Instant::now() + THREAD_END_TIMEOUT;
    while let (Some(before), Some(now)) = (before, thread_count()) {
        if now <= before + MAX_OTHER_THREADS {
            break;
        }
        if Instant::now() > give_up_at {
            return Err(format!("{now} threads run after all limiters were dropped, {before} ran before them"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Creates and drops limiters, one after the other, and counts how each ended.
fn run_limiters(mut random: Random, runs: u64) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for _ in 0..runs {
        *counts.entry(run_limiter(&mut random)).or_default() += 1;
    }
    counts
}

/// Creates and drops one limiter. Returns a description of how it ended.
fn run_limiter(random: &mut Random) -> &'static str {
    let urls = &servers().urls;
    let url = &urls[usize::try_from(random.below(u64::try_from(urls.len()).expect("few"))).expect("small")];
    let (key, limit): (Key, Limit) = (Key::new("dropped:").part(random.below(50)), "3/1s".parse().expect("a limit"));
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let builder = Limiter::builder().url(url).deadline(Duration::from_millis(random.between(1, 50)));
    let wait = Duration::from_micros(random.below(8_000));
    match random.below(6) {
        0 => {
            let limiter = builder.build().expect("a URL");
            thread::sleep(wait);
            drop(limiter);
            "dropped while they connect"
        }
        1 => {
            let drop_point = DropPoint::random(random, 1);
            drop(runtime().block_on(drop_point.run(builder.connect())));
            "connects that were dropped"
        }
        2 => {
            // The last clone is dropped on the thread of its own call.
            let last: Arc<Mutex<Option<Limiter>>> = Arc::default();
            let drops = {
                let last = Arc::clone(&last);
                move || drop(last.lock().unwrap_or_else(PoisonError::into_inner).take())
            };
            let (allowed, denied) = (drops.clone(), drops);
            let limiter = builder.on_allowed(move |_| allowed()).on_denied(move |_| denied()).build().expect("a URL");
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(limiter.clone());
            drop(limiter.check_blocking(&key, &limit));
            "dropped in their observers"
        }
        3 => {
            let (limiter, runtime) = (builder.build().expect("a URL"), runtime());
            let calls: Vec<_> = (0..random.between(1, 20))
                .map(|_| {
                    let (limiter, key) = (limiter.clone(), key.clone());
                    runtime.spawn(async move { limiter.check(&key, &limit).await })
                })
                .collect();
            drop(limiter);
            runtime.block_on(async { tokio::time::sleep(wait).await });
            drop((calls, runtime));
            "ended with their runtime"
        }
        4 => {
            let limiter = builder.build().expect("a URL");
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (limiter, key) = (limiter.clone(), key.clone());
                    thread::spawn(move || drop(limiter.check_blocking(&key, &limit)))
                })
                .collect();
            drop(limiter);
            callers.into_iter().for_each(|caller| caller.join().expect("a result"));
            "dropped by their last call"
        }
        _ => {
            let limiter = builder.build().expect("a URL");
            let calls = async {
                let _ = limiter.check(&key, &limit).await;
                limiter.wait(&key, &limit, Duration::from_millis(100)).await
            };
            let drop_point = DropPoint::random(random, 1);
            drop(runtime().block_on(drop_point.run(calls)));
            "dropped with calls in flight"
        }
    }
}
