//! Tests that no call is denied while a permit is free, by the start and end times of concurrent calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, Counts, Denial, Rule, check_denials, feasible};
use limiter_testkit::{Random, RedisServer};
use rate_limited::{Algorithm, Key, Limit, Limiter};
use tokio::task::JoinSet;

use crate::algorithms::ALL_ALGORITHMS;
use crate::support::{builder_for, limit};

const TASKS: u64 = 8;
/// The error of rounding to whole milliseconds, at both ends.
pub(crate) const MAX_ROUNDING: Duration = Duration::from_millis(2);
/// The number of instants in a window that a log distinguishes.
pub(crate) const MAX_LOG_INSTANTS: u32 = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_denied_while_a_permit_is_free_in_memory() {
    assert_no_early_denials(&Limiter::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_denied_while_a_permit_is_free_on_redis() {
    assert_no_early_denials(&builder_for(RedisServer::shared()).connect().await.expect("connects")).await;
}

/// Windows with few instants, so that the log merges none of them.
async fn assert_no_early_denials(limiter: &Limiter) {
    let mut runs = JoinSet::new();
    for algorithm in ALL_ALGORITHMS {
        let limiter = limiter.clone();
        runs.spawn(async move {
            let limit = limit("30/150ms").with_algorithm(algorithm);
            let run = Run::record(&limiter, limit, Duration::from_millis(1_500), Duration::from_millis(4)).await;
            run.assert_exact(limit, MAX_ROUNDING);
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("a correct run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merged_runs_delay_permits_by_at_most_one_cell_in_memory() {
    assert_merged_runs_delay_at_most_one_cell(&Limiter::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merged_runs_delay_permits_by_at_most_one_cell_on_redis() {
    let limiter = builder_for(RedisServer::shared()).connect().await.expect("connects");
    assert_merged_runs_delay_at_most_one_cell(&limiter).await;
}

async fn assert_merged_runs_delay_at_most_one_cell(limiter: &Limiter) {
    let limit = limit("2000/800ms");
    // A machine under load may need several attempts to make runs merge.
    for attempt in 0.. {
        let run = Run::record(limiter, limit, Duration::from_millis(2_400), Duration::from_millis(2)).await;
        let mut instants: Vec<_> = run.admissions.iter().map(|call| call.start.as_millis()).collect();
        instants.sort_unstable();
        instants.dedup();
        run.assert_exact(limit, limit.window() / MAX_LOG_INSTANTS + MAX_ROUNDING);
        if instants.len() > 3 * 128 {
            return;
        }
        assert!(attempt < 20, "runs of {} instants do not merge", instants.len());
    }
}

/// The admissions and denials that several tasks recorded.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) denials: Vec<Denial>,
}

/// The least number of allowed and of denied calls for a meaningful run.
const MIN_CALLS_OF_EACH_KIND: u64 = 50;

impl Run {
    async fn record(limiter: &Limiter, limit: Limit, length: Duration, pause: Duration) -> Self {
        Self::record_with_limiters(std::slice::from_ref(limiter), TASKS, limit, length, pause).await
    }

    /// Records calls of random costs on one key, from tasks that pause between calls and are spread over the limiters.
    /// It lasts for `length`, and until there are enough calls of each kind.
    pub(crate) async fn record_with_limiters(
        limiters: &[Limiter],
        tasks: u64,
        limit: Limit,
        length: Duration,
        pause: Duration,
    ) -> Self {
        let origin = Instant::now();
        let key = Key::new(limiter_testkit::unique("busy"));
        let counts = Arc::new([0; 2].map(AtomicU64::new));
        let mut running = JoinSet::new();
        for (task, limiter) in (0..tasks).zip(limiters.iter().cycle()) {
            let (limiter, key, mut random) = (limiter.clone(), key.clone(), Random::new(task));
            let counts = Arc::clone(&counts);
            running.spawn(async move {
                let mut seen = Self::default();
                let is_meaningful = || counts.iter().all(|count| count.load(Relaxed) > MIN_CALLS_OF_EACH_KIND);
                while origin.elapsed() < length || !is_meaningful() {
                    let cost = u32::try_from(random.between(1, 4)).expect("small");
                    let start = origin.elapsed();
                    let decision = limiter.check_n(&key, &limit, cost).await.expect("answers");
                    let end = origin.elapsed();
                    counts[usize::from(decision.is_allowed())].fetch_add(1, Relaxed);
                    if decision.is_allowed() {
                        seen.admissions.push(Admission { start, end, cost });
                    } else {
                        seen.denials.push(Denial { start, end, cost });
                    }
                    tokio::time::sleep(pause.mul_f64(0.5) + Duration::from_micros(random.below(1_000))).await;
                }
                seen
            });
        }
        running.join_all().await.into_iter().fold(Self::default(), |mut all, one| {
            all.admissions.extend(one.admissions);
            all.denials.extend(one.denials);
            all
        })
    }

    pub(crate) fn assert_exact(&self, limit: Limit, slack: Duration) {
        let (window, max, holds) = (limit.window(), limit.max(), limit.burst());
        let counts = match limit.algorithm() {
            Algorithm::SlidingWindow | Algorithm::FixedWindow => Counts::Wholly,
            Algorithm::SlidingCounter => Counts::Fading,
            Algorithm::TokenBucket => Counts::Flowing,
            Algorithm::LeakyBucket => Counts::Queueing,
            other => panic!("no check exists for {other:?}"),
        };
        let rule = Rule { counts, window, max, holds, slack };
        if let Err(violation) = check_denials(&self.admissions, &self.denials, &rule) {
            panic!("{limit:?}: {violation}");
        }
        if limit.algorithm() == Algorithm::SlidingWindow {
            assert_eq!(feasible(&self.admissions, window, max), Ok(()), "{limit:?}");
        }
    }
}
