//! Random histories, one call after the other, by a clock that stands still: every answer is the naive oracle's.

use std::time::Duration;

use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Key, Limit};

use super::round::{Outcome, Round, runtime};
use crate::oracle::Verdict;
use crate::schedule::{
    AnyOracle, Operation, Schedule, Step, Store, Subject, merging_schedule, random_schedule, replay, shrunk, verdict_us,
};

/// All of them.
pub(super) const ALGORITHMS: [Algorithm; 5] = [SlidingWindow, FixedWindow, SlidingCounter, TokenBucket, LeakyBucket];

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    for _ in 0..if round.short { 20 } else { 100 } {
        let store = round.choose(&[Store::Memory, Store::Memory, Store::Redis, Store::Asking, Store::Zset]);
        let algorithm = if store == Store::Zset { SlidingWindow } else { round.choose(&ALGORITHMS) };
        match round.index(12) {
            0 if store != Store::Zset => runtime.block_on(together(round, store))?,
            1 => runtime.block_on(play(round, store, merging))?,
            _ => runtime.block_on(play(round, store, |round| random(round, store, algorithm)))?,
        }
    }
    Ok(())
}

fn random(round: &mut Round, store: Store, algorithm: Algorithm) -> Schedule {
    let mut schedule = random_schedule(algorithm, &mut round.random);
    if store == Store::Zset {
        // Its entries have the stamps of their own calls, and not those of calls by a clock that was ahead.
        schedule.operations.retain(|operation| !matches!(operation, Operation::Back(_)));
        schedule.operations.push(Operation::Wait(Duration::from_secs(1)));
        schedule.operations.extend(stamps_of_the_future(round));
    }
    schedule
}

/// Permits that were taken before the clock stepped back by more than a window are gone with the next that are taken.
fn stamps_of_the_future(round: &mut Round) -> [Operation; 6] {
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

/// Plays one schedule on one key.
async fn play(round: &mut Round, store: Store, schedule: impl FnOnce(&mut Round) -> Schedule) -> Outcome {
    let schedule = schedule(round);
    round.count("operations", u64::try_from(schedule.operations.len()).expect("small"));
    let Err(why) = replay(store, &schedule).await else { return Ok(()) };
    let (schedule, again) = shrunk(store, schedule).await;
    let again = again.unwrap_or_else(|| format!("{why}; but not when it is played again"));
    Err(format!("on {store:?}, {again}\nas a file of tests/regressions:\n\n{schedule}"))
}

/// Decisions about several limits of any algorithms, on several keys: all of them or none.
async fn together(round: &mut Round, store: Store) -> Outcome {
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
                let place = round.index(5);
                let limit = Limit::new(round.small(2, 12), Duration::from_millis(300)).expect("a limit");
                (place, Step { limit: limit.with_algorithm(ALGORITHMS[place]), cost: round.small(0, 3) })
            })
            .collect();
        // Costs of one count add up in one decision, which the oracles do not know.
        let is_twice =
            |(index, (place, _)): (usize, &(usize, Step))| steps[..index].iter().any(|step| step.0 == *place);
        if steps.iter().enumerate().any(is_twice) {
            continue;
        }
        done.push(steps.clone());
        let limits: Vec<_> = steps.iter().map(|(place, step)| (&keys[*place], &step.limit, step.cost)).collect();
        let seen = subject.limiter.check_all(&limits).await.map_err(|error| format!("the store failed: {error}"))?;
        let expected = all_or_nothing(&mut oracles, &subject, &steps);
        if verdict_us(&seen) != expected {
            return Err(format!("on {store:?}, {:?}, not {expected:?}, after {done:?}", verdict_us(&seen)));
        }
        round.count("operations", 1);
    }
    Ok(())
}

/// Returns the oracles' answer, and takes the permits if all of them allow.
fn all_or_nothing(oracles: &mut [AnyOracle; 5], subject: &Subject, steps: &[(usize, Step)]) -> Verdict {
    let mut after = oracles.clone();
    let now_us = subject.now_us();
    let verdicts: Vec<_> = steps.iter().map(|(place, step)| after[*place].check(now_us, step)).collect();
    // The first that denies, with a wait that is enough for all; or the one with the least left.
    let denied = verdicts.iter().find(|verdict| !verdict.allowed);
    let told = denied.or_else(|| verdicts.iter().min_by_key(|verdict| verdict.remaining)).expect("a limit");
    let waits: Option<Vec<u64>> = verdicts.iter().map(|verdict| verdict.retry_after).collect();
    if told.allowed {
        *oracles = after;
    }
    Verdict { retry_after: waits.and_then(|waits| waits.into_iter().max()), ..*told }
}
