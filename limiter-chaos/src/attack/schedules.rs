//! Random histories of sequential calls by a clock that stands still, compared with the naive oracles.

use std::time::Duration;

use limiter_testkit::Verdict;
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Key, Limit};

use super::round::{Outcome, Round, runtime};
use crate::schedule::{
    AnyOracle, Operation, Schedule, Step, Store, Subject, merging_schedule, random_schedule, replay, shrink_schedule,
    verdict_us,
};

/// All algorithms.
pub(super) const ALGORITHMS: [Algorithm; 5] = [SlidingWindow, FixedWindow, SlidingCounter, TokenBucket, LeakyBucket];

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    for _ in 0..if round.short { 20 } else { 100 } {
        let store = round.choose(&[Store::Memory, Store::Memory, Store::Redis, Store::RedisUncached, Store::Zset]);
        let algorithm = if store == Store::Zset { SlidingWindow } else { round.choose(&ALGORITHMS) };
        match round.index(12) {
            0 if store != Store::Zset => runtime.block_on(check_several_limits(round, store))?,
            1 => runtime.block_on(replay_schedule(round, store, merging))?,
            _ => runtime.block_on(replay_schedule(round, store, |round| random(round, store, algorithm)))?,
        }
    }
    Ok(())
}

fn random(round: &mut Round, store: Store, algorithm: Algorithm) -> Schedule {
    let mut schedule = random_schedule(algorithm, &mut round.random);
    if store == Store::Zset {
        // Its entries have the stamps of their own calls, also after a step of the clock back, unlike the oracle's.
        schedule.operations.retain(|operation| !matches!(operation, Operation::Back(_)));
        schedule.operations.push(Operation::Wait(Duration::from_secs(1)));
        schedule.operations.extend(permits_ahead_of_the_clock(round));
    }
    schedule
}

/// Returns operations after which permits are void: the clock steps back by more than a window, and then permits are
/// taken.
fn permits_ahead_of_the_clock(round: &mut Round) -> [Operation; 6] {
    let limit = Limit::new(round.small(2, 9), Duration::from_millis(100)).expect("a limit");
    let back = round.millis(202, 900);
    [
        Operation::Check { limit, cost: round.small(1, limit.max()) },
        Operation::Back(back),
        Operation::Check { limit, cost: 1 },
        Operation::Wait(back - round.millis(0, 99)),
        Operation::Look { limit },
        Operation::Check { limit, cost: limit.max() },
    ]
}

fn merging(round: &mut Round) -> Schedule {
    merging_schedule(&mut round.random)
}

/// Replays one schedule on one key.
async fn replay_schedule(round: &mut Round, store: Store, schedule: impl FnOnce(&mut Round) -> Schedule) -> Outcome {
    let schedule = schedule(round);
    round.count("operations", u64::try_from(schedule.operations.len()).expect("small"));
    let Err(reason) = replay(store, &schedule).await else { return Ok(()) };
    let (schedule, shrunk_reason) = shrink_schedule(store, schedule).await;
    let shrunk_reason = shrunk_reason.unwrap_or_else(|| format!("{reason}; but not when it is replayed"));
    Err(format!("on {store:?}, {shrunk_reason}\nas a file of tests/regressions:\n\n{schedule}"))
}

/// Makes decisions about several limits of any algorithms on several keys: all of them allow, or none takes permits.
async fn check_several_limits(round: &mut Round, store: Store) -> Outcome {
    let subject = store.subject().await;
    let keys: Vec<Key> =
        ALGORITHMS.iter().map(|algorithm| subject.key.clone().part(format!("{algorithm:?}"))).collect();
    let mut oracles = ALGORITHMS.map(AnyOracle::new);
    let mut done = Vec::new();
    for _ in 0..60 {
        let pause = if round.once_in(20) { 900 } else { 60 };
        subject.clock.advance(round.millis(0, pause));
        let steps: Vec<(usize, Step)> = (0..round.index(5) + 1)
            .map(|_| {
                let index = round.index(5);
                let limit = Limit::new(round.small(2, 12), Duration::from_millis(300)).expect("a limit");
                (index, Step { limit: limit.with_algorithm(ALGORITHMS[index]), cost: round.small(0, 3) })
            })
            .collect();
        // Costs of one count add up within a decision, which the oracles do not model.
        let is_duplicate =
            |(number, (index, _)): (usize, &(usize, Step))| steps[..number].iter().any(|step| step.0 == *index);
        if steps.iter().enumerate().any(is_duplicate) {
            continue;
        }
        done.push(steps.clone());
        let limits: Vec<_> = steps.iter().map(|(index, step)| (&keys[*index], &step.limit, step.cost)).collect();
        let actual = subject.limiter.check_all(&limits).await.map_err(|error| format!("the store failed: {error}"))?;
        let expected = all_or_nothing(&mut oracles, &subject, &steps);
        if verdict_us(&actual) != expected {
            return Err(format!("on {store:?}, {:?}, not {expected:?}, after {done:?}", verdict_us(&actual)));
        }
        round.count("operations", 1);
    }
    Ok(())
}

/// Returns the oracles' verdict, and takes the permits if all of them allow.
fn all_or_nothing(oracles: &mut [AnyOracle; 5], subject: &Subject, steps: &[(usize, Step)]) -> Verdict {
    let mut after = oracles.clone();
    let now_us = subject.now_us();
    let verdicts: Vec<_> = steps.iter().map(|(index, step)| after[*index].check(now_us, step)).collect();
    // The expected verdict is that of the first denial, with the longest wait; or else that of the oracle with the
    // fewest permits left.
    let denied = verdicts.iter().find(|verdict| !verdict.allowed);
    let expected = denied.or_else(|| verdicts.iter().min_by_key(|verdict| verdict.remaining)).expect("a limit");
    let waits: Option<Vec<u64>> = verdicts.iter().map(|verdict| verdict.retry_after).collect();
    if expected.allowed {
        *oracles = after;
    }
    Verdict { retry_after: waits.and_then(|waits| waits.into_iter().max()), ..*expected }
}
