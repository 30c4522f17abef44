//! Comparison with the oracles of decisions over several limits with different algorithms.

use std::time::Duration;

use limiter_chaos::schedule::{AnyOracle, Step, verdict_us};
use limiter_testkit::{Random, RedisServer, Verdict, full_or};
use rate_limited::{Builder, Key, Limit, Limiter};

use super::{FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use crate::observers::Reports;
use crate::support::{Subject, builder_for};

#[tokio::test]
async fn memory_takes_all_limits_or_none() {
    assert_decides_all_or_nothing(Limiter::builder(), full_or(10_000, 1_000)).await;
}

#[tokio::test]
async fn redis_takes_all_limits_or_none() {
    assert_decides_all_or_nothing(builder_for(RedisServer::timeless()), full_or(4_000, 500)).await;
}

/// Decides over one to five limits, each with another algorithm and key, in random order. Observers get the verdict of
/// each limit if the call is allowed, and otherwise the decision.
async fn assert_decides_all_or_nothing(builder: Builder, steps: u32) {
    let reports = Reports::default();
    let subject = Subject::with_builder(reports.observe(builder)).await;
    let mut random = Random::new(11);
    let algorithms = [SlidingWindow, FixedWindow, SlidingCounter, TokenBucket, LeakyBucket];
    let keys: Vec<Key> = (0..5).map(|index| Key::new("mixed:").part(index)).collect();
    let mut oracles: Vec<AnyOracle> = algorithms.into_iter().map(AnyOracle::new).collect();
    let (mut allowed, mut denied_later) = (0, 0);
    for number in 0..steps {
        subject.advance_millis(match random.below(20) {
            0 => random.below(900),
            _ => random.below(60),
        });
        let mut order = [0, 1, 2, 3, 4];
        for position in 0..5 {
            order.swap(position, usize::try_from(random.below(5)).expect("small"));
        }
        let chosen = &order[..usize::try_from(random.between(1, 5)).expect("small")];
        let mut between = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let requests: Vec<(usize, Step)> = chosen
            .iter()
            .map(|&index| {
                let limit = Limit::new(between(2, 12), Duration::from_millis(300)).expect("a limit");
                (index, Step { limit: limit.with_algorithm(algorithms[index]), cost: between(0, 3) })
            })
            .collect();

        let limits: Vec<_> = requests.iter().map(|(index, step)| (&keys[*index], &step.limit, step.cost)).collect();
        let decision = subject.limiter.check_all(&limits).await.expect("the store answers");

        let mut after = oracles.clone();
        let verdicts: Vec<Verdict> =
            requests.iter().map(|(index, step)| after[*index].check(subject.now_us(), step)).collect();
        let (expected, is_first_allowed) = (combined_verdict(&verdicts), verdicts[0].allowed);
        assert_eq!(verdict_us(&decision), expected, "step {number}: {requests:?}");
        let reported: Vec<_> = reports.take_decisions().iter().map(verdict_us).collect();
        assert_eq!(reported, if expected.allowed { verdicts } else { vec![expected] }, "step {number}: {requests:?}");
        if expected.allowed {
            allowed += 1;
            oracles = after;
        } else {
            denied_later += u32::from(is_first_allowed);
        }
    }
    assert!(allowed > steps / 10 && denied_later > steps / 10, "{allowed} allowed, {denied_later} denied later");
}

/// Combines verdicts: the first denial with the longest wait, or else the admission with the least remaining.
fn combined_verdict(verdicts: &[Verdict]) -> Verdict {
    let first = verdicts.iter().find(|verdict| !verdict.allowed);
    let tightest = || verdicts.iter().min_by_key(|verdict| verdict.remaining);
    let decisive = first.or_else(tightest).expect("at least one limit");
    let waits: Option<Vec<u64>> = verdicts.iter().map(|verdict| verdict.retry_after).collect();
    Verdict { retry_after: waits.and_then(|waits| waits.into_iter().max()), ..*decisive }
}
