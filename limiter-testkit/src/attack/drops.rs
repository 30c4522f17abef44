//! Limiters that end at any moment: while they connect, with calls in flight, in their own observers, with their runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rate_limited::{Key, Limit, Limiter};
use tokio::runtime::Builder;

use super::dropping::Until;
use super::round::{Outcome, Round};
use super::watchdog::thread_count;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::RedisServer;

/// The time for the threads of limiters that are gone to end, on the slowest machine.
const ENDS: Duration = Duration::from_secs(60);

/// Threads that other parts of the process may have begun meanwhile.
const MORE: usize = 4;

/// Servers to connect to: with TLS, without, and one that answers nothing.
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
        let silent = Proxy::before(&behind);
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
            let times = if round.short { 10 } else { 40 };
            thread::spawn(move || lives(random, times))
        })
        .collect();
    for thread in threads {
        let counts = thread.join().map_err(|_| "a thread that drops limiters panicked".to_owned())?;
        for (what, times) in counts {
            round.count(what, times);
        }
    }
    let until = Instant::now() + ENDS;
    while let (Some(before), Some(now)) = (before, thread_count()) {
        if now <= before + MORE {
            break;
        }
        if Instant::now() > until {
            return Err(format!("{now} threads are left of limiters that are gone, {before} were there before them"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Makes and drops limiters, one after the other.
fn lives(mut random: Random, times: u64) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(life(&mut random)).or_default() += 1;
    }
    counts
}

/// One limiter from its first moment to its last; returns how it ended.
fn life(random: &mut Random) -> &'static str {
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
            let until = Until::random(random, 1);
            drop(runtime().block_on(until.run(builder.connect())));
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
            callers.into_iter().for_each(|caller| caller.join().expect("an answer"));
            "dropped by their last call"
        }
        _ => {
            let limiter = builder.build().expect("a URL");
            let wait_for = async {
                let _ = limiter.check(&key, &limit).await;
                limiter.wait(&key, &limit, Duration::from_millis(100)).await
            };
            let until = Until::random(random, 1);
            drop(runtime().block_on(until.run(wait_for)));
            "dropped with calls in flight"
        }
    }
}
