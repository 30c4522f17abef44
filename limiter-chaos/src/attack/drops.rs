//! Limiters that are dropped at any moment: while they connect, with calls in flight, in their own observers, or with
//! their runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, Random, RedisServer};
use rate_limited::{Builder as LimiterBuilder, Key, Limit, Limiter};
use tokio::runtime::Builder;

use super::dropping::DropPoint;
use super::round::{Outcome, Round};
use super::watchdog::thread_count;
use crate::transport::{Transport, limiter_builder};

/// The time in which the threads of dropped limiters must end on the slowest machine.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of threads that other parts of the process may have started meanwhile.
const MAX_OTHER_THREADS: usize = 4;

/// Servers to connect to, of which one sends no reply.
struct Servers {
    _silent: Proxy, // before its server, so that it ends first
    _running: Vec<RedisServer>,
    urls: Vec<String>,
    /// The authority that the limiters trust.
    ca_certificate: Option<PathBuf>,
}

impl Servers {
    /// Returns the servers that all rounds with this transport share.
    fn shared(transport: Transport) -> &'static Self {
        static MOSTLY_PLAIN: OnceLock<Servers> = OnceLock::new();
        static TLS_ALONE: OnceLock<Servers> = OnceLock::new();
        match transport {
            Transport::Plain => MOSTLY_PLAIN.get_or_init(Self::start_mostly_plain),
            Transport::Tls => TLS_ALONE.get_or_init(Self::start_tls_alone),
        }
    }

    /// Starts a server without TLS, and one with TLS whose certificate the limiters do not trust.
    fn start_mostly_plain() -> Self {
        let (tls, plain) = (RedisServer::builder().tls().start(), RedisServer::builder().tcp().start());
        let behind = RedisServer::start();
        let silent = Proxy::start(&behind);
        silent.stall();
        let urls = vec![
            tls.url(),
            with_host_name(&tls),
            plain.url(),
            with_host_name(&plain),
            silent.url().to_owned(),
            "redis://127.0.0.1:1".to_owned(),
        ];
        Self { _silent: silent, _running: vec![tls, plain, behind], urls, ca_certificate: None }
    }

    /// Starts a server with TLS that the limiters trust, and one that they do not trust.
    fn start_tls_alone() -> Self {
        let (trusted, stranger) = (RedisServer::builder().tls().start(), RedisServer::builder().tls().start());
        let silent = Proxy::start(&trusted);
        silent.stall();
        let urls = vec![
            trusted.url(),
            with_host_name(&trusted),
            stranger.url(),
            silent.url().to_owned(),
            "rediss://127.0.0.1:1".to_owned(),
        ];
        let ca_certificate = trusted.ca_certificate();
        Self { _silent: silent, _running: vec![trusted, stranger], urls, ca_certificate }
    }

    /// Returns a builder for a limiter on one of the servers.
    fn limiter_on_any(&self, random: &mut Random) -> LimiterBuilder {
        let index = random.below(u64::try_from(self.urls.len()).expect("few"));
        let url = &self.urls[usize::try_from(index).expect("small")];
        limiter_builder(url, self.ca_certificate.clone())
    }
}

/// Returns the URL of a server with a host name, which needs a look-up.
fn with_host_name(server: &RedisServer) -> String {
    server.url().replace("127.0.0.1", "localhost")
}

pub(super) fn round(round: &mut Round) -> Outcome {
    let servers = Servers::shared(round.transport);
    let before = thread_count();
    let threads: Vec<_> = (0..if round.short { 4 } else { 12 })
        .map(|_| {
            let random = Random::new(round.random.any());
            let runs = if round.short { 10 } else { 40 };
            thread::spawn(move || run_limiters(servers, random, runs))
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
fn run_limiters(servers: &Servers, mut random: Random, runs: u64) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for _ in 0..runs {
        *counts.entry(run_limiter(servers, &mut random)).or_default() += 1;
    }
    counts
}

/// Creates and drops one limiter. Returns a description of how it ended.
fn run_limiter(servers: &Servers, random: &mut Random) -> &'static str {
    let builder = servers.limiter_on_any(random);
    let (key, limit): (Key, Limit) = (Key::new("dropped:").part(random.below(50)), "3/1s".parse().expect("a limit"));
    let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
    let builder = builder.deadline(Duration::from_millis(random.between(1, 50)));
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
