//! Many calls at once to a server that has stopped: each is answered at its deadline, however many there are.

use std::time::{Duration, Instant};

use rate_limited::{Key, Limit, Limiter};
use tokio::runtime::{Builder, Runtime};

use crate::RedisServer;

const DEADLINE: Duration = Duration::from_millis(100);
const WORKERS: usize = 2;
/// Keys that the calls are spread over.
const KEYS: u32 = 1_000;
/// An odd number of runs has a median.
const RUNS: usize = 5;

/// So many calls at once, and what the slowest may take.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// Calls that begin at the same time.
    pub calls: u32,
    /// What the slowest call may take beyond its deadline, in the median of the runs, on two idle cores in an optimised build.
    pub slack: Duration,
}

/// The slowest call of each run.
#[derive(Debug, Clone)]
pub struct FloodReport {
    /// What was run.
    pub flood: Flood,
    /// From the shortest to the longest.
    pub longest: Vec<Duration>,
}

/// The floods that the fault bench runs.
pub const FLOODS: [Flood; 2] = [
    Flood { calls: 20_000, slack: Duration::from_millis(50) },
    Flood { calls: 100_000, slack: Duration::from_millis(100) },
];

impl FloodReport {
    /// The slowest call of the median run.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.longest.get(self.longest.len() / 2).copied().unwrap_or_default()
    }

    /// The longest that the median may be.
    #[must_use]
    pub fn bar(&self) -> Duration {
        DEADLINE + self.flood.slack
    }

    /// Whether the median is within the bar.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.median() <= self.bar()
    }
}

/// Runs a flood five times.
///
/// # Panics
///
/// The server does not start.
#[must_use]
pub fn flood(flood: Flood) -> FloodReport {
    let mut longest: Vec<_> = (0..RUNS).map(|_| longest(flood.calls)).collect();
    longest.sort();
    FloodReport { flood, longest }
}

/// Runs a flood once, and returns what its slowest call took.
///
/// # Panics
///
/// The server does not start.
fn longest(calls: u32) -> Duration {
    let mut server = RedisServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().expect("a runtime");
    let builder = Limiter::builder().url(&server.url()).deadline(DEADLINE).max_in_flight(calls);
    let limiter = runtime.block_on(builder.connect()).expect("the server is there");
    let limit = Limit::new(1_000, Duration::from_secs(10)).expect("a limit");
    let warm = runtime.block_on(limiter.check(&Key::new("a"), &limit));
    assert!(warm.is_ok_and(|decision| decision.is_allowed()), "the server is there");
    server.pause();
    let longest = at_once(&runtime, &limiter, limit, calls);
    // It cannot end while it is stopped.
    server.resume();
    longest
}

fn at_once(runtime: &Runtime, limiter: &Limiter, limit: Limit, calls: u32) -> Duration {
    let call = |index: u32| {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let key = Key::new("flood:").part(index % KEYS);
            let began = Instant::now();
            let decision = limiter.check(&key, &limit).await;
            assert!(decision.is_ok(), "the stand-in decides");
            began.elapsed()
        })
    };
    let tasks: Vec<_> = (0..calls).map(call).collect();
    runtime.block_on(async {
        let mut longest = Duration::ZERO;
        for task in tasks {
            longest = longest.max(task.await.expect("a call that does not panic"));
        }
        longest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machine speed is the bench's to judge.
    #[test]
    fn every_call_is_answered_and_none_before_its_deadline() {
        let longest = longest(2_000);
        assert!(longest >= DEADLINE, "{longest:?}");
    }

    #[test]
    fn the_median_is_judged() {
        let report =
            |millis: [u64; 5]| FloodReport { flood: FLOODS[0], longest: millis.map(Duration::from_millis).to_vec() };
        assert!(report([110, 120, 150, 900, 900]).is_kept());
        assert!(!report([110, 120, 151, 160, 160]).is_kept());
    }
}
