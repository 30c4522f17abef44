//! The tasks that make decisions.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rate_limited::{Key, Limit, Limiter};
use tokio::task::{self, JoinSet};
use tokio::time::sleep;

use super::tally::Tallies;

/// The pause after a failure, as of a client that tries again: a store that is away is not called in a loop.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// Decisions after which a task lets others run. A decision of a store in memory never waits.
const DECISIONS_BEFORE_YIELD: u32 = 64;

/// The load: tasks, each with one decision at a time, on keys chosen at random.
pub(super) struct Load {
    pub(super) limiter: Limiter,
    pub(super) limit: Limit,
    pub(super) keys: u32,
    pub(super) tasks: u32,
}

/// A load that runs. Dropping it ends the tasks.
pub(super) struct RunningLoad {
    tasks: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    pub(super) tallies: Arc<Tallies>,
}

impl Load {
    /// Starts all tasks. Their keys belong to this run alone, and expire after the window of the limit.
    pub(super) fn start(&self) -> RunningLoad {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let run: Arc<str> = format!("{}-{now}", process::id()).into();
        let (is_over, tallies) = (Arc::new(AtomicBool::new(false)), Arc::new(Tallies::new()));
        let mut tasks = JoinSet::new();
        for number in 0..self.tasks {
            let (is_over, tallies, run) = (Arc::clone(&is_over), Arc::clone(&tallies), Arc::clone(&run));
            let (limiter, limit, keys) = (self.limiter.clone(), self.limit, self.keys);
            tasks.spawn(async move {
                let (task, mut random) = (number as usize, Random::with_seed(number));
                let mut until_yield = DECISIONS_BEFORE_YIELD;
                while !is_over.load(Ordering::Relaxed) {
                    let key = Key::new("bench:").part(&run).text(":").part(random.below(keys));
                    let started = Instant::now();
                    let result = limiter.check(&key, &limit).await;
                    tallies.add(task, &result, started.elapsed());
                    if result.is_err() {
                        sleep(PAUSE_AFTER_FAILURE).await;
                    }
                    until_yield -= 1;
                    if until_yield == 0 {
                        until_yield = DECISIONS_BEFORE_YIELD;
                        task::yield_now().await;
                    }
                }
            });
        }
        RunningLoad { tasks, is_over, tallies }
    }
}

impl RunningLoad {
    /// Waits until the decisions in flight are made, each at most until its deadline.
    pub(super) async fn stop(mut self) -> Arc<Tallies> {
        self.is_over.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        self.tallies
    }
}

/// Pseudo-random numbers: `xorshift64*`.
struct Random(u64);

impl Random {
    fn with_seed(seed: u32) -> Self {
        Self(0x9E37_79B9_7F4A_7C15 ^ (u64::from(seed) << 20))
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        u32::try_from((number * u64::from(bound)) >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn random_keys_reach_all_and_differ_between_tasks() {
        let draw = |seed| {
            let mut random = Random::with_seed(seed);
            (0..2_000).map(|_| random.below(100)).collect::<Vec<_>>()
        };
        let drawn: BTreeSet<_> = draw(0).into_iter().collect();
        assert_eq!((drawn.len(), drawn.last()), (100, Some(&99)));
        assert_ne!(draw(1), draw(2));
    }

    #[tokio::test]
    async fn a_load_stops_and_has_counted_within_its_limits() {
        let limit: Limit = "5/h".parse().expect("a limit");
        let load = Load { limiter: Limiter::memory(), limit, keys: 3, tasks: 4 };
        let running = load.start();
        while running.tallies.decisions() < 1_000 {
            task::yield_now().await;
        }
        let total = running.stop().await.total();
        assert_eq!(total.allowed, 15, "{total:?}");
        assert!(total.denied >= 985 && total.errors.is_empty(), "{total:?}");
    }
}
