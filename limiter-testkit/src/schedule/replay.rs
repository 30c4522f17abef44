//! Plays a schedule on a store, and says where it is not what the oracle says.

use std::collections::HashMap;
use std::time::Duration;

use rate_limited::{Algorithm, Allowed, Decision, Error, Key, Layout, Limit, Limiter, ManualClock, OnError};

use super::any::{AnyOracle, Step};
use super::{Operation, Schedule};
use crate::oracle::Verdict;
use crate::server::{RedisServer, unique};

/// Instants of a window that a log keeps apart.
const CAPACITY: u64 = 128;

/// A store to play schedules on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The embedded one.
    Memory,
    /// The shared Redis on which keys never expire.
    Redis,
    /// The same Redis, without the denial cache.
    Asking,
    /// The same Redis, in the layout of the Spring system: for the sliding window alone.
    Zset,
}

/// A limiter of its own, and the clock that moves it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The limiter.
    pub limiter: Limiter,
    /// Its clock, which always begins at the same time.
    pub clock: ManualClock,
    /// A key that no other subject has.
    pub key: Key,
    layout: Layout,
}

impl Store {
    /// Creates a limiter on this store. Its failures are errors.
    ///
    /// # Panics
    ///
    /// The server does not start or does not answer.
    pub async fn subject(self) -> Subject {
        let clock = ManualClock::new();
        let builder = Limiter::builder().on_error(OnError::Raise).clock(clock.clone());
        let builder = match self {
            Self::Memory => builder,
            // With time enough for a slow machine.
            Self::Redis | Self::Asking | Self::Zset => {
                let url = RedisServer::timeless().url();
                builder.url(&url).prefix(&unique("schedule")).deadline(Duration::from_secs(20))
            }
        };
        let builder = match self {
            Self::Memory | Self::Redis => builder,
            Self::Asking | Self::Zset => builder.remember_denials(Duration::ZERO),
        };
        let limiter = builder.connect().await.expect("the store is there");
        let layout = if self == Self::Zset { Layout::Zset } else { Layout::Compact };
        Subject { limiter, clock, key: Key::new(unique("schedule")), layout }
    }
}

impl Subject {
    /// The clock's time in microseconds.
    ///
    /// # Panics
    ///
    /// Never in this age.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).expect("a time of this age")
    }

    /// The limit in this store's layout.
    ///
    /// # Panics
    ///
    /// The store has no layout for its algorithm.
    #[must_use]
    pub fn limit(&self, limit: Limit) -> Limit {
        limit.with_layout(self.layout).expect("a sliding window")
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

/// Plays a schedule on a store.
///
/// # Errors
///
/// What the first operation that differs should have given, and what it gave; or that the store failed.
///
/// # Panics
///
/// The server does not start or does not answer.
pub async fn replay(store: Store, schedule: &Schedule) -> Result<(), String> {
    let subject = store.subject().await;
    let Subject { limiter, key, clock, .. } = &subject;
    let failed = |error: Error| format!("the store failed: {error}");
    let mut oracles = Oracles::default();
    let mut receipts: Vec<Option<Receipt>> = Vec::new();
    for (number, operation) in schedule.operations.iter().enumerate() {
        let now_us = subject.now_us();
        let (seen, expected) = match *operation {
            Operation::Check { limit, cost } => {
                let decision = limiter.check_n(key, &subject.limit(limit), cost).await.map_err(failed)?;
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
                let seen = limiter.peek(key, &subject.limit(limit)).await.map_err(failed)?;
                (verdict_us(&seen), oracles.of(limit).look(now_us, limit))
            }
            Operation::Reset { limit } => {
                limiter.reset(key, &subject.limit(limit)).await.map_err(failed)?;
                *oracles.of(limit) = AnyOracle::new(limit.algorithm());
                continue;
            }
            Operation::Refund(which) => {
                let Some(receipt) = which.checked_sub(1).and_then(|index| receipts.get_mut(index)?.take()) else {
                    continue;
                };
                limiter.refund(&receipt.allowed).await.map_err(failed)?;
                let Receipt { limit, cost, now_us: stamp_us, .. } = receipt;
                oracles.of(limit).refund(now_us, &Step { limit: subject.limit(limit), cost }, stamp_us);
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

/// A decision's numbers, waits in microseconds.
///
/// # Panics
///
/// A wait is longer than ages.
#[must_use]
pub fn verdict_us(decision: &Decision) -> Verdict {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).expect("within ages");
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
