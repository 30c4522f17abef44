//! Batches of concurrent calls by a clock that stands still, compared with a ledger of every permit. After each batch
//! the store must hold exactly the permits that were taken or charged and not refunded, each with its own instant.
//!
//! A dropped call may have taken its permits, so the ledger has a least and a greatest number of permits. A store
//! outside of this range has lost a permit, counted one twice, or refunded a wrong one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rate_limited::{Algorithm, Allowed, Decision, Key, Limit, Limiter, ManualClock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dropping::DropPoint;
use super::round::{Outcome, Round, runtime};
use crate::schedule::Store;

/// The shortest window. Keys in Redis expire by the real clock, so a round that takes longer proves nothing.
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);

/// The time in which dropped calls and rollbacks must complete.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let store = round.choose(&[Store::Memory, Store::Redis, Store::Redis, Store::RedisUncached]);
    let subject = runtime.block_on(store.subject());
    let keys: Vec<Key> = (0..round.index(3) + 1).map(|number| subject.key.clone().part(number)).collect();
    let mut ledger = Ledger::new(round, subject.limiter, subject.clock, keys);
    let batches = if round.short { 10 } else { 25 };
    runtime.block_on(async {
        for _ in 0..batches {
            ledger.batch(round).await?;
        }
        Ok(())
    })
}

/// A record of the permits of some keys.
pub(super) struct Ledger {
    limiter: Limiter,
    clock: ManualClock,
    counts: Vec<KeyLedger>,
    receipts: Vec<LedgerReceipt>,
    began: Instant,
    /// True if a denial must not outlast a refund of this process.
    pub(super) checks_denials: bool,
    /// True if some allowed calls are refunded.
    refunds: bool,
    /// True if some calls are charges.
    charges: bool,
    log: Vec<String>,
}

struct KeyLedger {
    key: Key,
    limit: Limit,
    taken: Vec<TakenEntry>,
}

/// The permits of one call on one key.
#[derive(Debug, Clone, Copy)]
struct TakenEntry {
    at_ms: u64,
    /// The latest instant at which they may have been taken, once it is known.
    latest_ms: Option<u64>,
    cost: u32,
    /// True if they were taken, false if they may have been.
    is_certain: bool,
    /// True if they were charged, whether they fitted or not.
    is_charge: bool,
    refunded: RefundState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefundState {
    No,
    Perhaps,
    Yes,
}

/// A receipt, and the indexes of its entries.
struct LedgerReceipt {
    allowed: Arc<Allowed>,
    entries: Vec<(usize, usize)>,
}

/// A call of a batch.
enum Action {
    Take(Vec<(usize, u32)>),
    Charge(Vec<(usize, u32)>),
    Refund(LedgerReceipt),
}

/// The result of a call of a batch. Dropped and failed calls have none.
enum Done {
    Decided(Decision),
    Charged,
    Refunded,
}

impl KeyLedger {
    /// Returns the least and the most permits in use now, and the least of those that were not charged.
    fn permits_in_use(&self, now_ms: u64) -> (u64, u64, u64) {
        let window_ms = u64::try_from(self.limit.window().as_millis()).expect("a limit's window");
        let counts = |at_ms: u64| match self.limit.algorithm() {
            Algorithm::FixedWindow => at_ms / window_ms == now_ms / window_ms,
            _ => at_ms + window_ms > now_ms,
        };
        let (mut least, mut most, mut least_taken) = (0, 0, 0);
        for taken in self.taken.iter().filter(|taken| taken.refunded != RefundState::Yes) {
            let cost = u64::from(taken.cost);
            if taken.is_certain && taken.refunded == RefundState::No && counts(taken.at_ms) {
                least += cost;
                least_taken += if taken.is_charge { 0 } else { cost };
            }
            if counts(taken.at_ms) || taken.latest_ms.is_some_and(counts) {
                most += cost;
            }
        }
        (least, most, least_taken)
    }
}

impl Ledger {
    pub(super) fn new(round: &mut Round, limiter: Limiter, clock: ManualClock, keys: Vec<Key>) -> Self {
        let mut count = |key| {
            let window = SHORTEST_WINDOW + round.millis(0, 10_000);
            let limit = Limit::new(round.small(2, 60), window).expect("a limit");
            let algorithm = if round.once_in(4) { Algorithm::FixedWindow } else { Algorithm::SlidingWindow };
            KeyLedger { key, limit: limit.with_algorithm(algorithm), taken: Vec::new() }
        };
        let counts = keys.into_iter().map(&mut count).collect();
        let began = Instant::now();
        Self {
            limiter,
            clock,
            counts,
            receipts: Vec::new(),
            began,
            checks_denials: true,
            refunds: round.random.below(3) > 0,
            charges: round.once_in(2),
            log: Vec::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("a time of this age")
    }

    /// Moves the clock, runs concurrent calls, and checks the store's counts.
    pub(super) async fn batch(&mut self, round: &mut Round) -> Outcome {
        let longest = if round.once_in(4) { 15_000 } else { 4_000 };
        self.clock.advance(round.millis(2, longest));
        let now_ms = self.now_ms();
        // Earlier calls have completed by now.
        for taken in self.counts.iter_mut().flat_map(|count| &mut count.taken) {
            taken.latest_ms.get_or_insert(now_ms);
        }
        let actions = self.random_actions(round);
        let mut calls = JoinSet::new();
        for action in actions {
            let (limiter, drop_point) = (self.limiter.clone(), DropPoint::random(&mut round.random, 6));
            let limits: Vec<_> = self.counts.iter().map(|count| (count.key.clone(), count.limit)).collect();
            calls.spawn(async move {
                match action {
                    Action::Take(costs) => {
                        let requests: Vec<_> =
                            costs.iter().map(|(index, cost)| (&limits[*index].0, &limits[*index].1, *cost)).collect();
                        let decision = match requests[..] {
                            [(key, limit, cost)] => drop_point.run(limiter.check_n(key, limit, cost)).await,
                            _ => drop_point.run(limiter.check_all(&requests)).await,
                        };
                        (Action::Take(costs), decision.and_then(Result::ok).map(Done::Decided))
                    }
                    Action::Charge(costs) => {
                        let requests: Vec<_> =
                            costs.iter().map(|(index, cost)| (&limits[*index].0, &limits[*index].1, *cost)).collect();
                        let usage = drop_point.run(limiter.charge_all(&requests)).await;
                        (Action::Charge(costs), usage.and_then(Result::ok).map(|_| Done::Charged))
                    }
                    Action::Refund(receipt) => {
                        let done = drop_point.run(limiter.refund(&receipt.allowed)).await;
                        (Action::Refund(receipt), done.and_then(Result::ok).map(|()| Done::Refunded))
                    }
                }
            });
        }
        for (action, outcome) in calls.join_all().await {
            round.count("calls", 1);
            self.record(round, action, outcome, now_ms);
        }
        self.check_store(round, now_ms).await
    }

    fn random_actions(&mut self, round: &mut Round) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..round.index(24) + 1 {
            if self.refunds && round.once_in(3) && !self.receipts.is_empty() {
                let index = round.index(self.receipts.len());
                actions.push(Action::Refund(self.receipts.swap_remove(index)));
                continue;
            }
            let mut costs = Vec::new();
            for index in 0..self.counts.len() {
                if costs.is_empty() && index + 1 == self.counts.len() || round.once_in(2) {
                    costs.push((index, round.small(1, 4)));
                }
            }
            let is_charge = self.charges && round.once_in(5);
            actions.push(if is_charge { Action::Charge(costs) } else { Action::Take(costs) });
        }
        actions
    }

    fn record(&mut self, round: &mut Round, action: Action, done: Option<Done>, now_ms: u64) {
        let is_known = done.is_some();
        if !is_known {
            round.count("dropped", 1);
        }
        match action {
            Action::Refund(receipt) => {
                let refunded = if is_known { RefundState::Yes } else { RefundState::Perhaps };
                round.count("refunds", 1);
                let at: Vec<_> = receipt
                    .entries
                    .iter()
                    .map(|(count, index)| {
                        let taken = &mut self.counts[*count].taken[*index];
                        taken.refunded = refunded;
                        format!("{} of {count} at {}", taken.cost, taken.at_ms)
                    })
                    .collect();
                self.log.push(format!("{now_ms}: refund {refunded:?} of {}", at.join(" and ")));
            }
            Action::Take(costs) => {
                if matches!(done, Some(Done::Decided(Decision::Denied(_)))) {
                    round.count("denied", 1);
                    return;
                }
                let entries = self.add_taken(&costs, is_known, false, now_ms);
                if let Some(Done::Decided(Decision::Allowed(allowed))) = done {
                    self.receipts.push(LedgerReceipt { allowed: Arc::new(allowed), entries });
                }
            }
            Action::Charge(costs) => {
                round.count("charges", 1);
                self.add_taken(&costs, is_known, true, now_ms);
            }
        }
    }

    /// Records permits that were taken or charged, or that may have been. Returns the indexes of the entries.
    fn add_taken(
        &mut self,
        costs: &[(usize, u32)],
        is_known: bool,
        is_charge: bool,
        now_ms: u64,
    ) -> Vec<(usize, usize)> {
        let mut entries = Vec::new();
        for (count, cost) in costs {
            let latest_ms = is_known.then_some(now_ms);
            let taken = TakenEntry {
                at_ms: now_ms,
                latest_ms,
                cost: *cost,
                is_certain: is_known,
                is_charge,
                refunded: RefundState::No,
            };
            let taken_entries = &mut self.counts[*count].taken;
            entries.push((*count, taken_entries.len()));
            taken_entries.push(taken);
        }
        let what = if is_charge { "charge" } else { "take" };
        self.log.push(format!("{now_ms}: {what} {costs:?}{}", if is_known { "" } else { " perhaps" }));
        entries
    }

    /// Compares the store with the ledger.
    async fn check_store(&mut self, round: &mut Round, now_ms: u64) -> Outcome {
        for index in 0..self.counts.len() {
            let count = &self.counts[index];
            let (key, limit) = (count.key.clone(), count.limit);
            let (least, most, least_taken) = count.permits_in_use(now_ms);
            let max = u64::from(limit.max());
            let settled = Instant::now() + SETTLE_TIMEOUT;
            let used = loop {
                let used = self.used(&key, limit).await.map_err(|error| format!("the store failed: {error}"))?;
                if (least..=most).contains(&used) || Instant::now() > settled {
                    break used;
                }
                sleep(Duration::from_millis(5)).await;
            };
            if self.began.elapsed() > SHORTEST_WINDOW {
                round.count("slow batches", 1);
                return Ok(());
            }
            if !(least..=most).contains(&used) {
                return Err(self.violation(index, &format!("{used} permits are in use, expected {least} to {most}")));
            }
            if least_taken > max {
                return Err(self.violation(index, &format!("{least_taken} permits were taken")));
            }
            if !self.checks_denials {
                continue;
            }
            // No earlier denial may remain, and no permit that was not taken.
            let decision =
                self.limiter.check(&key, &limit).await.map_err(|error| format!("the store failed: {error}"))?;
            match decision {
                Decision::Denied(denied) if most < max => {
                    let source = denied.source();
                    return Err(
                        self.violation(index, &format!("{most} permits are in use at most, and {source:?} denies one"))
                    );
                }
                Decision::Allowed(_) if least >= max => {
                    return Err(self.violation(index, &format!("{least} permits are in use, and one more was allowed")));
                }
                decision => self.record(round, Action::Take(vec![(index, 1)]), Some(Done::Decided(decision)), now_ms),
            }
        }
        Ok(())
    }

    /// Returns the permits in use by the store.
    async fn used(&self, key: &Key, limit: Limit) -> Result<u64, rate_limited::Error> {
        let remaining = self.limiter.peek(key, &limit).await?.remaining();
        if remaining > 0 || !self.charges {
            return Ok(u64::from(limit.max() - remaining));
        }
        // A charge of nothing shows the permits beyond the limit. It also forgets a cached denial, which is right here.
        let usage = self.limiter.charge(key, &limit, 0).await?;
        Ok(u64::from(limit.max() - usage.remaining()) + u64::from(usage.overdrawn()))
    }

    fn violation(&self, index: usize, what: &str) -> String {
        let KeyLedger { key: _, limit, .. } = &self.counts[index];
        let now_ms = self.now_ms();
        let last = self.log.len().saturating_sub(60);
        format!(
            "count {index}, {:?} of {limit}, at {now_ms}: {what}; the last operations:\n{}",
            limit.algorithm(),
            self.log[last..].join("\n")
        )
    }
}
