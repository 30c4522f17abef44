//! Plays a schedule on a store, and says where it is not what the oracle says.

use std::collections::HashMap;
use std::time::Duration;

use limiter_testkit::Verdict;
use rate_limited::{Algorithm, Allowed, Decision, Key, Limit};

use super::any::AnyOracle;
use super::lane::Step;
use super::schedule::{Operation, Schedule};
use super::verdict_us;
use crate::support::Subject;

/// Instants of a window that a log keeps apart.
const CAPACITY: u64 = 128;

/// Where a limiter is to be tried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    Memory,
    Redis,
    /// Redis, asked for every denial.
    Asking,
}

impl Store {
    /// A limiter of its own, whose clock always begins at the same time.
    pub(super) async fn subject(self) -> Subject {
        match self {
            Self::Memory => Subject::memory().await,
            Self::Redis => Subject::redis().await,
            Self::Asking => Subject::asking().await,
        }
    }
}

/// A call that was allowed, as both know it.
struct Receipt {
    allowed: Allowed,
    limit: Limit,
    cost: u32,
    now_us: u64,
}

/// One for each count of the key.
#[derive(Default)]
struct Oracles(HashMap<(Algorithm, Duration), AnyOracle>);

impl Oracles {
    fn of(&mut self, limit: Limit) -> &mut AnyOracle {
        let new = || AnyOracle::new(limit.algorithm());
        self.0.entry((limit.algorithm(), limit.window())).or_insert_with(new)
    }
}

/// # Errors
/// What the first operation that differs should have given, and what it gave.
pub(super) async fn replay(store: Store, schedule: &Schedule) -> Result<(), String> {
    let subject = store.subject().await;
    let (limiter, key) = (&subject.limiter, Key::new("schedule"));
    let mut oracles = Oracles::default();
    let mut receipts: Vec<Option<Receipt>> = Vec::new();
    for (number, operation) in schedule.operations.iter().enumerate() {
        let now_us = subject.now_us();
        let (seen, expected) = match *operation {
            Operation::Check { limit, cost } => {
                let decision = limiter.check_n(&key, &limit, cost).await.expect("the store answers");
                let seen = verdict_us(&decision);
                let step = Step { limit, cost };
                let expected = if schedule.merging {
                    merged(oracles.of(limit), now_us, &step, seen)
                } else {
                    oracles.of(limit).check(now_us, &step)
                };
                if let (Decision::Allowed(allowed), true) = (decision, cost > 0) {
                    receipts.push(Some(Receipt { allowed, limit, cost, now_us }));
                }
                (seen, expected)
            }
            Operation::Look { limit } => {
                let seen = limiter.peek(&key, &limit).await.expect("the store answers");
                (verdict_us(&seen), oracles.of(limit).look(now_us, limit))
            }
            Operation::Reset { limit } => {
                limiter.reset(&key, &limit).await.expect("the store answers");
                *oracles.of(limit) = AnyOracle::new(limit.algorithm());
                continue;
            }
            Operation::Refund(which) => {
                let Some(receipt) = which.checked_sub(1).and_then(|index| receipts.get_mut(index)?.take()) else {
                    continue;
                };
                limiter.refund(&receipt.allowed).await.expect("the store answers");
                let Receipt { limit, cost, now_us: stamp_us, .. } = receipt;
                oracles.of(limit).refund(now_us, &Step { limit, cost }, stamp_us);
                continue;
            }
            Operation::Wait(by) => {
                subject.clock.advance(by);
                continue;
            }
            Operation::Back(by) => {
                subject.clock.rewind(by);
                continue;
            }
        };
        if seen != expected {
            return Err(format!("operation {}, `{operation}`, gave\n{seen:?}, not\n{expected:?}", number + 1));
        }
    }
    Ok(())
}

/// What may be said where runs merge: what was seen, unless it admits too much or denies too long.
fn merged(oracle: &mut AnyOracle, now_us: u64, step: &Step, seen: Verdict) -> Verdict {
    if seen.allowed {
        let exact = oracle.check(now_us, step);
        return Verdict { allowed: exact.allowed, ..seen };
    }
    let window = u64::try_from(step.limit.window().as_millis()).expect("a limit's window");
    let late = Duration::from_millis(window.div_ceil(CAPACITY) - 1);
    let later = Limit::new(step.limit.max(), step.limit.window() + late).expect("a limit");
    let latest = oracle.clone().check(now_us, &Step { limit: later, ..*step });
    Verdict { allowed: latest.allowed, ..seen }
}
