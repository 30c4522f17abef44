//! Many concurrent calls to a stopped server. Each must end at its deadline, however many there are.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Key, Limit, Limiter};
use tokio::runtime::{Builder, Runtime};

const CALL_DEADLINE: Duration = Duration::from_millis(100);
const WORKER_THREADS: usize = 2;
/// The number of keys of the calls.
const KEY_COUNT: u32 = 1_000;
/// The number of runs. It is odd, so that there is a median.
const RUN_COUNT: usize = 5;

/// A number of concurrent calls, with the bar of the slowest one.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The number of calls that begin at the same time.
    pub calls: u32,
    /// The time that the slowest call may take beyond its deadline, in the median of the runs. The bar is for two idle
    /// cores and an optimised build.
    pub slack: Duration,
}

/// The slowest call of each run of a flood.
#[derive(Debug, Clone)]
pub struct FloodReport {
    /// The flood.
    pub flood: Flood,
    /// The slowest call of each run, in ascending order.
    pub longest: Vec<Duration>,
}

/// The floods of the fault bench.
pub const FLOODS: [Flood; 2] = [
    Flood { calls: 20_000, slack: Duration::from_millis(50) },
    Flood { calls: 100_000, slack: Duration::from_millis(100) },
];

impl FloodReport {
    /// Returns the slowest call of the median run.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.longest.get(self.longest.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the longest time that the median may be.
    #[must_use]
    pub fn bar(&self) -> Duration {
        CALL_DEADLINE + self.flood.slack
    }

    /// Returns true if the median meets the bar.
    #[must_use]
    pub fn is_met(&self) -> bool {
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
    let mut longest: Vec<_> = (0..RUN_COUNT).map(|_| longest(flood.calls)).collect();
    longest.sort();
    FloodReport { flood, longest }
}

/// Runs a flood once, and returns the time of its slowest call.
///
/// # Panics
///
/// The server does not start.
fn longest(calls: u32) -> Duration {
    let mut server = RedisServer::start();
    let runtime = Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build().expect("a runtime");
    let builder = Limiter::builder().url(server.url()).deadline(CALL_DEADLINE).max_in_flight(calls);
    let limiter = runtime.block_on(builder.connect()).expect("the server runs");
    let limit = Limit::new(1_000, Duration::from_secs(10)).expect("a limit");
    let warm = runtime.block_on(limiter.check(&Key::new("a"), &limit));
    assert!(warm.is_ok_and(|decision| decision.is_allowed()), "the server runs");
    server.pause();
    let longest = call_concurrently(&runtime, &limiter, limit, calls);
    // A stopped process cannot be ended.
    server.resume();
    longest
}

fn call_concurrently(runtime: &Runtime, limiter: &Limiter, limit: Limit, calls: u32) -> Duration {
    let call = |index: u32| {
        let limiter = limiter.clone();
        runtime.spawn(async move {
            let key = Key::new("flood:").part(index % KEY_COUNT);
            let began = Instant::now();
            let decision = limiter.check(&key, &limit).await;
            assert!(decision.is_ok(), "the standby limiter decides");
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

    /// The fault bench checks the upper bound, which depends on the machine.
    #[test]
    fn every_call_ends_and_the_slowest_not_before_its_deadline() {
        let longest = longest(2_000);
        assert!(longest >= CALL_DEADLINE, "{longest:?}");
    }

    #[test]
    fn the_bar_is_for_the_median() {
        let report =
            |millis: [u64; 5]| FloodReport { flood: FLOODS[0], longest: millis.map(Duration::from_millis).to_vec() };
        assert!(report([110, 120, 150, 900, 900]).is_met());
        assert!(!report([110, 120, 151, 160, 160]).is_met());
    }
}
