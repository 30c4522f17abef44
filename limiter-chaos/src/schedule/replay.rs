//! Replays a schedule on a store and compares each result with the oracle.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use limiter_testkit::{Charged, RedisServer, Verdict, unique};
use rate_limited::{Algorithm, Allowed, Decision, Error, Key, Layout, Limit, Limiter, ManualClock, OnError, Usage};

use super::any::{AnyOracle, Step};
use super::{Operation, Schedule};

/// The number of instants of a window that the run log keeps apart.
const MAX_INSTANTS_PER_WINDOW: u64 = 128;

/// A store that a schedule is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The embedded store.
    Memory,
    /// The shared Redis server on which no key expires.
    Redis,
    /// The server of [`Store::Redis`], with the limiter's denial cache disabled.
    RedisUncached,
    /// The server of [`Store::Redis`], in the layout of the Spring system. This is for the sliding window alone.
    Zset,
}

/// A new limiter with its own clock and key.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The limiter.
    pub limiter: Limiter,
    /// Its clock, which always starts at the same time.
    pub clock: ManualClock,
    /// A key that no other subject uses.
    pub key: Key,
    layout: Layout,
}

impl Store {
    /// Creates a limiter on this store. Failures of the store are errors.
    ///
    /// # Panics
    ///
    /// The server does not start or does not reply.
    pub async fn subject(self) -> Subject {
        let clock = ManualClock::new();
        let builder = Limiter::builder().on_error(OnError::Raise).clock(clock.clone());
        let builder = match self {
            Self::Memory => builder,
            // The deadline is long enough for a slow machine.
            Self::Redis | Self::RedisUncached | Self::Zset => {
                let url = RedisServer::timeless().url();
                builder.url(&url).prefix(unique("schedule")).deadline(Duration::from_secs(20))
            }
        };
        let builder = match self {
            Self::Memory | Self::Redis => builder,
            Self::RedisUncached | Self::Zset => builder.remember_denials(Duration::ZERO),
        };
        let limiter = builder.connect().await.expect("the store is there");
        let layout = if self == Self::Zset { Layout::Zset } else { Layout::Compact };
        Subject { limiter, clock, key: Key::new(unique("schedule")), layout }
    }
}

impl Subject {
    /// Returns the clock's time in microseconds.
    ///
    /// # Panics
    ///
    /// The time does not fit into 64 bits.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).expect("a time of this age")
    }

    /// Returns the limit in this store's layout.
    ///
    /// # Panics
    ///
    /// The store has no layout for its algorithm.
    #[must_use]
    pub fn limit(&self, limit: Limit) -> Limit {
        limit.with_layout(self.layout).expect("a sliding window")
    }
}

/// An allowed call, as the limiter and the oracle know it.
struct ReplayReceipt {
    allowed: Allowed,
    limit: Limit,
    cost: u32,
    now_us: u64,
}

/// One oracle for each count of the key.
#[derive(Default)]
struct Oracles(HashMap<(Algorithm, Duration), AnyOracle>);

impl Oracles {
    fn oracle_for(&mut self, limit: Limit) -> &mut AnyOracle {
        let new = || AnyOracle::new(limit.algorithm());
        self.0.entry((limit.algorithm(), limit.window())).or_insert_with(new)
    }
}

/// Replays a schedule on a store.
///
/// # Errors
///
/// The result of the first operation that differs from the oracle, with the expected one; or the failure of the store.
///
/// # Panics
///
/// The server does not start or does not reply.
pub async fn replay(store: Store, schedule: &Schedule) -> Result<(), String> {
    let subject = store.subject().await;
    let Subject { limiter, key, clock, .. } = &subject;
    let failed = |error: Error| format!("the store failed: {error}");
    let mut oracles = Oracles::default();
    let mut receipts: Vec<Option<ReplayReceipt>> = Vec::new();
    for (index, operation) in schedule.operations.iter().enumerate() {
        let now_us = subject.now_us();
        let (actual, expected) = match *operation {
            Operation::Check { limit, cost } => {
                let decision = limiter.check_n(key, &subject.limit(limit), cost).await.map_err(failed)?;
                let actual = verdict_us(&decision);
                let step = Step { limit, cost };
                let expected = if schedule.merging {
                    expected_when_merging(oracles.oracle_for(limit), now_us, &step, actual)
                } else {
                    oracles.oracle_for(limit).check(now_us, &step)
                };
                if let (Decision::Allowed(allowed), true) = (decision, cost > 0) {
                    receipts.push(Some(ReplayReceipt { allowed, limit, cost, now_us }));
                }
                (actual, expected)
            }
            Operation::Charge { limit, cost } => {
                let limit = subject.limit(limit);
                let actual = charged_us(&limiter.charge(key, &limit, cost).await.map_err(failed)?);
                let expected = oracles.oracle_for(limit).charge(now_us, &Step { limit, cost });
                if actual != expected {
                    return Err(differs(index, operation, &actual, &expected));
                }
                continue;
            }
            Operation::Look { limit } => {
                let actual = limiter.peek(key, &subject.limit(limit)).await.map_err(failed)?;
                (verdict_us(&actual), oracles.oracle_for(limit).look(now_us, limit))
            }
            Operation::Reset { limit } => {
                limiter.reset(key, &subject.limit(limit)).await.map_err(failed)?;
                *oracles.oracle_for(limit) = AnyOracle::new(limit.algorithm());
                continue;
            }
            Operation::Refund(number) => {
                let Some(receipt) = number.checked_sub(1).and_then(|index| receipts.get_mut(index)?.take()) else {
                    continue;
                };
                limiter.refund(&receipt.allowed).await.map_err(failed)?;
                let ReplayReceipt { limit, cost, now_us: stamp_us, .. } = receipt;
                oracles.oracle_for(limit).refund(now_us, &Step { limit: subject.limit(limit), cost }, stamp_us);
                continue;
            }
            Operation::Wait(by) => {
                clock.advance(by);
                continue;
            }
            Operation::Back(by) => {
                clock.rewind(by);
                continue;
            }
        };
        if actual != expected {
            return Err(differs(index, operation, &actual, &expected));
        }
    }
    Ok(())
}

fn differs(index: usize, operation: &Operation, actual: &impl Debug, expected: &impl Debug) -> String {
    format!("operation {}, `{operation}`, returned\n{actual:?}, not\n{expected:?}", index + 1)
}

/// Returns the expected result where runs merge: the actual one, unless it admits too much or denies too long.
fn expected_when_merging(oracle: &mut AnyOracle, now_us: u64, step: &Step, actual: Verdict) -> Verdict {
    if actual.allowed {
        let exact = oracle.check(now_us, step);
        return Verdict { allowed: exact.allowed, ..actual };
    }
    let window = u64::try_from(step.limit.window().as_millis()).expect("a limit's window");
    let max_delay = Duration::from_millis(window.div_ceil(MAX_INSTANTS_PER_WINDOW) - 1);
    let longer_limit = Limit::new(step.limit.max(), step.limit.window() + max_delay).expect("a limit");
    let longest_denial = oracle.clone().check(now_us, &Step { limit: longer_limit, ..*step });
    Verdict { allowed: longest_denial.allowed, ..actual }
}

/// Returns the numbers of a decision, with waits in microseconds.
///
/// # Panics
///
/// A wait does not fit into 64 bits.
#[must_use]
pub fn verdict_us(decision: &Decision) -> Verdict {
    match decision {
        Decision::Allowed(allowed) => Verdict {
            allowed: true,
            remaining: allowed.remaining(),
            retry_after: Some(0),
            reset_after: micros(allowed.reset_after()),
        },
        Decision::Denied(denied) => Verdict {
            allowed: false,
            remaining: denied.remaining(),
            retry_after: (!denied.is_final()).then(|| micros(denied.retry_after())),
            reset_after: micros(denied.reset_after()),
        },
    }
}

/// Returns the numbers of a charge, with the wait in microseconds.
fn charged_us(usage: &Usage) -> Charged {
    Charged {
        uncounted: usage.uncounted(),
        remaining: usage.remaining(),
        overdrawn: usage.overdrawn(),
        reset_after: micros(usage.reset_after()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("within ages")
}
