//! Nothing is denied that had room: concurrent calls in real time, judged from outside by when each began and ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use limiter_testkit::history::{Admission, Counts, Denial, Rule, check_denials, feasible};
use limiter_testkit::{Random, RedisServer};
use rate_limited::{Algorithm, Key, Limit, Limiter};
use tokio::task::JoinSet;

use crate::algorithms::ALL;
use crate::support::{limit, on};

const TASKS: u64 = 8;
/// What rounding to whole milliseconds may cost, at both ends.
pub(crate) const ROUNDING: Duration = Duration::from_millis(2);
/// Instants of a window that a log keeps apart.
pub(crate) const CAPACITY: u32 = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_denied_that_had_room_in_memory() {
    nothing_is_denied_that_had_room(&Limiter::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_denied_that_had_room_on_redis() {
    nothing_is_denied_that_had_room(&on(RedisServer::shared()).connect().await.expect("connects")).await;
}

/// Windows of few instants, each of which the log keeps.
async fn nothing_is_denied_that_had_room(limiter: &Limiter) {
    let mut runs = JoinSet::new();
    for algorithm in ALL {
        let limiter = limiter.clone();
        runs.spawn(async move {
            let limit = limit("30/150ms").with_algorithm(algorithm);
            let run = Run::record(&limiter, limit, Duration::from_millis(1_500), Duration::from_millis(4)).await;
            run.assert_right(limit, ROUNDING);
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("a run that is right");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_denied_for_longer_than_a_cell_where_runs_merge_in_memory() {
    nothing_is_denied_for_longer_than_a_cell_where_runs_merge(&Limiter::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_denied_for_longer_than_a_cell_where_runs_merge_on_redis() {
    let limiter = on(RedisServer::shared()).connect().await.expect("connects");
    nothing_is_denied_for_longer_than_a_cell_where_runs_merge(&limiter).await;
}

async fn nothing_is_denied_for_longer_than_a_cell_where_runs_merge(limiter: &Limiter) {
    let limit = limit("2000/800ms");
    // Where runs merge at all, a machine under load is given a few attempts at it.
    for attempt in 0.. {
        let run = Run::record(limiter, limit, Duration::from_millis(2_400), Duration::from_millis(2)).await;
        let mut instants: Vec<_> = run.admissions.iter().map(|call| call.start.as_millis()).collect();
        instants.sort_unstable();
        instants.dedup();
        run.assert_right(limit, limit.window() / CAPACITY + ROUNDING);
        if instants.len() > 3 * 128 {
            return;
        }
        assert!(attempt < 20, "runs of {} instants do not merge", instants.len());
    }
}

/// What several tasks saw.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) denials: Vec<Denial>,
}

/// Calls of each kind, allowed and denied, below which a run tells nothing.
const A_FEW: u64 = 50;

impl Run {
    async fn record(limiter: &Limiter, limit: Limit, length: Duration, pause: Duration) -> Self {
        Self::of_many(std::slice::from_ref(limiter), TASKS, limit, length, pause).await
    }

    /// Calls of random costs on one key, from so many tasks that pause in between; they take turns with the limiters. For
    /// so long, and until there are enough of each kind to tell something.
    pub(crate) async fn of_many(
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
                let tells = || counts.iter().all(|count| count.load(Relaxed) > A_FEW);
                while origin.elapsed() < length || !tells() {
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

    pub(crate) fn assert_right(&self, limit: Limit, slack: Duration) {
        let (window, max, holds) = (limit.window(), limit.max(), limit.burst());
        let counts = match limit.algorithm() {
            Algorithm::SlidingWindow | Algorithm::FixedWindow => Counts::Wholly,
            Algorithm::SlidingCounter => Counts::Fading,
            Algorithm::TokenBucket => Counts::Flowing,
            Algorithm::LeakyBucket => Counts::Queueing,
            other => panic!("nothing is known of {other:?}"),
        };
        let rule = Rule { counts, window, max, holds, slack };
        if let Err(wrong) = check_denials(&self.admissions, &self.denials, &rule) {
            panic!("{limit:?}: {wrong}");
        }
        if limit.algorithm() == Algorithm::SlidingWindow {
            assert_eq!(feasible(&self.admissions, window, max), Ok(()), "{limit:?}");
        }
    }
}
