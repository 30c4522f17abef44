//! Batches of concurrent calls by a clock that stands still, against a ledger of every permit: after each batch the store
//! must hold exactly the permits that were taken and not given back, by their own instants.
//!
//! A call that was dropped may have taken its permits, so the ledger knows a least and a most number of permits. Between the two
//! the store is right; outside of them a permit was lost, doubled, or given back in place of another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rate_limited::{Algorithm, Allowed, Decision, Key, Limit, Limiter, ManualClock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dropping::Until;
use super::round::{Outcome, Round, runtime};
use crate::schedule::Store;

/// Keys in Redis expire by the real clock: a round that takes longer than its shortest window proves nothing.
const SHORTEST_WINDOW: Duration = Duration::from_secs(10);

/// The time for calls that were dropped, and for rollbacks, to be done with.
const SETTLES: Duration = Duration::from_secs(5);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let store = round.choose(&[Store::Memory, Store::Redis, Store::Redis, Store::Asking]);
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

/// What is known of the permits of some keys.
pub(super) struct Ledger {
    limiter: Limiter,
    clock: ManualClock,
    counts: Vec<Count>,
    receipts: Vec<Receipt>,
    began: Instant,
    /// Whether a denial must not outlast what this process gives back.
    pub(super) judges_denials: bool,
    /// Whether some of what was allowed is given back.
    refunds: bool,
    log: Vec<String>,
}

struct Count {
    key: Key,
    limit: Limit,
    taken: Vec<Taken>,
}

/// The permits of one call on one key.
#[derive(Debug, Clone, Copy)]
struct Taken {
    at_ms: u64,
    /// The latest instant at which they may have been taken, once it is known.
    latest_ms: Option<u64>,
    cost: u32,
    /// Whether they were taken, or may have been.
    is_certain: bool,
    back: Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    No,
    Perhaps,
    Yes,
}

/// A receipt, and where its permits are noted.
struct Receipt {
    allowed: Arc<Allowed>,
    places: Vec<(usize, usize)>,
}

/// A call of a batch.
enum Action {
    Take(Vec<(usize, u32)>),
    Refund(Receipt),
}

impl Count {
    /// Returns the least and the most permits in use now.
    fn in_use(&self, now_ms: u64) -> (u64, u64) {
        let window_ms = u64::try_from(self.limit.window().as_millis()).expect("a limit's window");
        let counts = |at_ms: u64| match self.limit.algorithm() {
            Algorithm::FixedWindow => at_ms / window_ms == now_ms / window_ms,
            _ => at_ms + window_ms > now_ms,
        };
        let (mut least, mut most) = (0, 0);
        for taken in self.taken.iter().filter(|taken| taken.back != Back::Yes) {
            let cost = u64::from(taken.cost);
            if taken.is_certain && taken.back == Back::No && counts(taken.at_ms) {
                least += cost;
            }
            if counts(taken.at_ms) || taken.latest_ms.is_some_and(counts) {
                most += cost;
            }
        }
        (least, most)
    }
}

impl Ledger {
    pub(super) fn new(round: &mut Round, limiter: Limiter, clock: ManualClock, keys: Vec<Key>) -> Self {
        let mut count = |key| {
            let window = SHORTEST_WINDOW + round.millis(0, 10_000);
            let limit = Limit::new(round.small(2, 60), window).expect("a limit");
            let algorithm = if round.once_in(4) { Algorithm::FixedWindow } else { Algorithm::SlidingWindow };
            Count { key, limit: limit.with_algorithm(algorithm), taken: Vec::new() }
        };
        let counts = keys.into_iter().map(&mut count).collect();
        let began = Instant::now();
        Self {
            limiter,
            clock,
            counts,
            receipts: Vec::new(),
            began,
            judges_denials: true,
            refunds: round.random.below(3) > 0,
            log: Vec::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("a time of this age")
    }

    /// Moves the clock, runs concurrent calls, and judges what the store holds then.
    pub(super) async fn batch(&mut self, round: &mut Round) -> Outcome {
        let longest = if round.once_in(4) { 15_000 } else { 4_000 };
        self.clock.advance(round.millis(2, longest));
        let now_ms = self.now_ms();
        // What was under way until now is done with.
        for taken in self.counts.iter_mut().flat_map(|count| &mut count.taken) {
            taken.latest_ms.get_or_insert(now_ms);
        }
        let actions = self.actions(round);
        let mut calls = JoinSet::new();
        for action in actions {
            let (limiter, until) = (self.limiter.clone(), Until::random(&mut round.random, 6));
            let limits: Vec<_> = self.counts.iter().map(|count| (count.key.clone(), count.limit)).collect();
            calls.spawn(async move {
                match action {
                    Action::Take(costs) => {
                        let asked: Vec<_> =
                            costs.iter().map(|(place, cost)| (&limits[*place].0, &limits[*place].1, *cost)).collect();
                        let decision = match asked[..] {
                            [(key, limit, cost)] => until.run(limiter.check_n(key, limit, cost)).await,
                            _ => until.run(limiter.check_all(&asked)).await,
                        };
                        (Action::Take(costs), decision)
                    }
                    Action::Refund(receipt) => {
                        let done = until.run(limiter.refund(&receipt.allowed)).await;
                        let is_done = matches!(done, Some(Ok(())));
                        // As a decision that nobody looks at.
                        let decision = is_done.then(|| Ok(Decision::Allowed(Allowed::clone(&receipt.allowed))));
                        (Action::Refund(receipt), decision)
                    }
                }
            });
        }
        for (action, outcome) in calls.join_all().await {
            round.count("calls", 1);
            self.note(round, action, outcome, now_ms);
        }
        self.judge(round, now_ms).await
    }

    fn actions(&mut self, round: &mut Round) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..round.index(24) + 1 {
            if self.refunds && round.once_in(3) && !self.receipts.is_empty() {
                let place = round.index(self.receipts.len());
                actions.push(Action::Refund(self.receipts.swap_remove(place)));
                continue;
            }
            let mut costs = Vec::new();
            for place in 0..self.counts.len() {
                if costs.is_empty() && place + 1 == self.counts.len() || round.once_in(2) {
                    costs.push((place, round.small(1, 4)));
                }
            }
            actions.push(Action::Take(costs));
        }
        actions
    }

    fn note(
        &mut self,
        round: &mut Round,
        action: Action,
        outcome: Option<Result<Decision, rate_limited::Error>>,
        now_ms: u64,
    ) {
        let is_known = matches!(outcome, Some(Ok(_)));
        if !is_known {
            round.count("dropped", 1);
        }
        match action {
            Action::Refund(receipt) => {
                let back = if is_known { Back::Yes } else { Back::Perhaps };
                round.count("refunds", 1);
                let at: Vec<_> = receipt
                    .places
                    .iter()
                    .map(|(count, place)| {
                        let taken = &mut self.counts[*count].taken[*place];
                        taken.back = back;
                        format!("{} of {count} at {}", taken.cost, taken.at_ms)
                    })
                    .collect();
                self.log.push(format!("{now_ms}: refund {back:?} of {}", at.join(" and ")));
            }
            Action::Take(costs) => {
                if matches!(outcome, Some(Ok(Decision::Denied(_)))) {
                    round.count("denied", 1);
                    return;
                }
                let mut places = Vec::new();
                for (count, cost) in &costs {
                    let latest_ms = is_known.then_some(now_ms);
                    let taken = Taken { at_ms: now_ms, latest_ms, cost: *cost, is_certain: is_known, back: Back::No };
                    let of_count = &mut self.counts[*count].taken;
                    places.push((*count, of_count.len()));
                    of_count.push(taken);
                }
                self.log.push(format!("{now_ms}: take {costs:?}{}", if is_known { "" } else { " perhaps" }));
                if let Some(Ok(Decision::Allowed(allowed))) = outcome {
                    self.receipts.push(Receipt { allowed: Arc::new(allowed), places });
                }
            }
        }
    }

    /// Compares the store with the ledger.
    async fn judge(&mut self, round: &mut Round, now_ms: u64) -> Outcome {
        for which in 0..self.counts.len() {
            let count = &self.counts[which];
            let (key, limit) = (count.key.clone(), count.limit);
            let (least, most) = count.in_use(now_ms);
            let max = u64::from(limit.max());
            let settled = Instant::now() + SETTLES;
            let used = loop {
                let decision =
                    self.limiter.peek(&key, &limit).await.map_err(|error| format!("the store failed: {error}"))?;
                let used = max - u64::from(decision.remaining());
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
                return Err(self.violation(which, &format!("{used} permits are in use, instead of {least} to {most}")));
            }
            if least > max {
                return Err(self.violation(which, &format!("{least} permits were taken")));
            }
            if !self.judges_denials {
                continue;
            }
            // No denial from before may be left, nor any permit that nobody took.
            let decision =
                self.limiter.check(&key, &limit).await.map_err(|error| format!("the store failed: {error}"))?;
            match decision {
                Decision::Denied(denied) if most < max => {
                    let source = denied.source();
                    return Err(
                        self.violation(which, &format!("{most} permits are in use at most, and {source:?} denies one"))
                    );
                }
                Decision::Allowed(_) if least >= max => {
                    return Err(self.violation(which, &format!("{least} permits are in use, and one more was allowed")));
                }
                decision => self.note(round, Action::Take(vec![(which, 1)]), Some(Ok(decision)), now_ms),
            }
        }
        Ok(())
    }

    fn violation(&self, which: usize, what: &str) -> String {
        let Count { key: _, limit, .. } = &self.counts[which];
        let now_ms = self.now_ms();
        let last = self.log.len().saturating_sub(60);
        format!(
            "count {which}, {:?} of {limit}, at {now_ms}: {what}; the last of what happened:\n{}",
            limit.algorithm(),
            self.log[last..].join("\n")
        )
    }
}
