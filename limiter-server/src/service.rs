//! The decisions of the server, for every protocol. It counts nothing itself.
//!
//! A protocol reads a [`Call`], gets an [`Answer`] or a [`Problem`], and writes it in its own form. It never uses the limiter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use rate_limited::{Decision, Entry, Error, ErrorKind, Key, Limit, Limiter, Named, Receipt, Source, Usage};

mod answer;
mod call;
mod catalog;
mod problem;
mod slots;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, LimitAnswer, SlotAnswer, millis};
use call::key_of_limits;
pub(crate) use call::{Call, Target, Value, Values};
pub(crate) use catalog::{Catalog, CatalogRule};
pub(crate) use problem::{Problem, ProblemClass};
use slots::Slots;
pub(crate) use slots::{DEFAULT_TTL, MAX_TTL, MIN_TTL};

/// The most limits of a caller's own in one call, which are those of a rule.
const MAX_OWN_LIMITS: usize = 16;

/// The bounds of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServicePolicy {
    /// The longest wait that a call may demand.
    pub(crate) max_wait: Duration,
    /// Calls may bring limits of their own.
    pub(crate) allows_limits: bool,
    /// The most calls that run at once. Further ones get a problem at once.
    pub(crate) max_calls: usize,
    /// The most slots that are held.
    pub(crate) max_slots: usize,
}

impl Default for ServicePolicy {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(1), allows_limits: false, max_calls: 10_000, max_slots: 100_000 }
    }
}

/// The decisions about calls of every protocol.
#[derive(Debug)]
pub(crate) struct DecisionService {
    limiter: Limiter,
    policy: ServicePolicy,
    catalog: ArcSwap<Catalog>,
    /// Locked while the catalog is read anew.
    reading: Mutex<()>,
    slots: Slots,
    running: AtomicUsize,
    /// The default limit of a rule that must have one of its own.
    no_limit: Limit,
}

/// A call with its key.
struct Prepared<'c> {
    key: Key,
    /// `None` for limits of the caller's own.
    rule: Option<&'c str>,
    limits: Vec<Limit>,
    is_postpaid: bool,
}

/// The place of a call that runs.
struct Running<'s>(&'s AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DecisionService {
    /// Creates the service of a limiter.
    pub(crate) fn new(limiter: Limiter, policy: ServicePolicy) -> Self {
        let longest = Limit::new(u32::MAX, Limit::MAX_WINDOW);
        let no_limit =
            longest.or_else(|_| Limit::new(1, Duration::from_secs(1))).expect("one permit a second is a limit");
        let catalog = ArcSwap::from_pointee(Catalog::read(&limiter));
        let (slots, running) = (Slots::new(policy.max_slots), AtomicUsize::new(0));
        Self { limiter, policy, catalog, reading: Mutex::new(()), slots, running, no_limit }
    }

    /// The limiter, for reports about its health and its rules.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The number of slots that are held.
    pub(crate) fn held_slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the rules that can be called now.
    pub(crate) fn catalog(&self) -> Guard<Arc<Catalog>> {
        let catalog = self.catalog.load();
        if catalog.generation() == self.limiter.rules_generation() {
            return catalog;
        }
        self.read_catalog()
    }

    /// Reads the rules anew. Meanwhile other calls use the earlier ones, as if they had come before the change.
    #[cold]
    fn read_catalog(&self) -> Guard<Arc<Catalog>> {
        let reading = match self.reading.try_lock() {
            Ok(reading) => Some(reading),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if reading.is_some() && self.catalog.load().generation() != self.limiter.rules_generation() {
            self.catalog.store(Arc::new(Catalog::read(&self.limiter)));
        }
        self.catalog.load()
    }

    /// Reads the rules anew if they have changed, so that the next call finds them. It may block.
    pub(crate) fn read_rules(&self) {
        while self.catalog().generation() != self.limiter.rules_generation() {
            std::thread::yield_now();
        }
    }

    /// Takes the cost of a call if there is as much, waiting up to its `max_wait`.
    ///
    /// # Errors
    /// The call is wrong, there is no room for it, or the limiter could not decide.
    ///
    /// # Cancel safety
    /// A future that is dropped ends the wait. Permits may have been taken.
    pub(crate) async fn check(&self, call: &Call<'_>) -> Result<Answer, Problem> {
        self.check_wait(call.max_wait)?;
        let (_running, prepared) = (self.begin_for(call.max_wait)?, self.prepare(call)?);
        let decided = match &prepared.rule {
            Some(rule) => self.named(rule, call).wait_n(&prepared.key, &self.no_limit, call.cost, call.max_wait).await,
            None => match *prepared.limits {
                [limit] => Box::pin(self.limiter.wait_n(&prepared.key, &limit, call.cost, call.max_wait)).await,
                _ => Box::pin(self.limiter.check_all(&prepared.items(call.cost))).await,
            },
        };
        let decision = decided.map_err(|error| self.failed(&error, call, &prepared))?;
        self.answer(decision, call, &prepared)
    }

    /// Takes the costs of several calls under rules at once, all of them or none. Their plans and waits are not used.
    ///
    /// # Errors
    /// As for [`check`](Self::check). A call with limits of its own is one of these errors.
    ///
    /// # Cancel safety
    /// As for [`check`](Self::check).
    pub(crate) async fn check_together(&self, calls: &[Call<'_>]) -> Result<Answer, Problem> {
        let _running = self.begin()?;
        if let [call] = calls {
            return self.check_alone(call).await;
        }
        let prepared = calls.iter().map(|call| self.prepare(call)).collect::<Result<Vec<_>, _>>()?;
        let items = calls.iter().zip(&prepared).map(|(call, prepared)| match &prepared.rule {
            Some(rule) => Ok((*rule, &prepared.key, &self.no_limit, call.cost)),
            None => Err(no_rule()),
        });
        let items = items.collect::<Result<Vec<_>, _>>()?;
        let decided = match calls.iter().filter_map(|call| call.deadline).min() {
            Some(most) => self.limiter.check_rules_within(&items, most).await,
            None => self.limiter.check_rules(&items).await,
        };
        let decision = decided.map_err(|error| {
            let problems = calls.iter().zip(&prepared).map(|(call, prepared)| self.failed(&error, call, prepared));
            // A rule that holds slots is the cause for all of them.
            let mut problems = problems.collect::<Vec<_>>().into_iter();
            let first = problems.next();
            let of_slots = problems.find(|problem| matches!(problem, Problem::RuleHoldsSlots { .. }));
            of_slots.or(first).unwrap_or(Problem::Undecided { kind: error.kind() })
        })?;
        self.check_limits_of(&decision)?;
        let cost = calls.iter().map(|call| call.cost).max().unwrap_or(0);
        Ok(Answer::new(decision, cost, self.no_limit))
    }

    /// Decides the only call of those that are decided together, in fewer steps.
    async fn check_alone(&self, call: &Call<'_>) -> Result<Answer, Problem> {
        let prepared = self.prepare(call)?;
        let rule = prepared.rule.ok_or_else(no_rule)?;
        let named = self.limiter.named(rule);
        let named = call.deadline.map_or(named, |most| named.deadline_at_most(most));
        let decided = named.check_n(&prepared.key, &self.no_limit, call.cost).await;
        let decision = decided.map_err(|error| self.failed(&error, call, &prepared))?;
        self.check_limits_of(&decision)?;
        Ok(Answer::new(decision, call.cost, self.no_limit))
    }

    /// Returns the answer that [`check`](Self::check) would give for one permit now. Nothing is taken.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub(crate) async fn peek(&self, call: &Call<'_>) -> Result<Answer, Problem> {
        let (_running, prepared) = (self.begin()?, self.prepare(call)?);
        let decided = match (&prepared.rule, &*prepared.limits) {
            (Some(rule), _) => self.named(rule, call).peek(&prepared.key, &self.no_limit).await,
            (None, [limit]) => self.limiter.peek(&prepared.key, limit).await,
            (None, _) => {
                return Err(invalid_limits("`limits` must be one limit for a peek, got several: peek each by itself"));
            }
        };
        let decision = decided.map_err(|error| self.failed(&error, call, &prepared))?;
        if prepared.rule.is_some() {
            self.check_limits_of(&decision)?;
        }
        Ok(Answer::new(decision, 1, self.no_limit))
    }

    /// Counts the cost of a call, also beyond its limits.
    ///
    /// # Errors
    /// As for [`check`](Self::check). After a failure of the store the cost may be counted or not.
    ///
    /// # Cancel safety
    /// The cost may be counted or not.
    pub(crate) async fn charge(&self, call: &Call<'_>) -> Result<Usage, Problem> {
        let (_running, prepared) = (self.begin()?, self.prepare(call)?);
        let charged = match &prepared.rule {
            Some(rule) => self.named(rule, call).charge(&prepared.key, &self.no_limit, call.cost).await,
            None => self.limiter.charge_all(&prepared.items(call.cost)).await,
        };
        charged.map_err(|error| self.failed(&error, call, &prepared))
    }

    /// Settles the call of a receipt: from here on it counts `actual` permits. The key is that of the call.
    ///
    /// # Errors
    /// The receipt is used, foreign or too old; otherwise as for [`charge`](Self::charge).
    ///
    /// # Cancel safety
    /// The call may be settled or not. The receipt can be used again.
    pub(crate) async fn settle(&self, call: &Call<'_>, receipt: &str, actual: u32) -> Result<Usage, Problem> {
        let receipt: Receipt = receipt.parse().map_err(|_| Problem::NotAReceipt)?;
        let (_running, key) = (self.begin()?, self.prepare(call)?.key);
        self.limiter.settle_receipt(&key, &receipt, actual).await.map_err(|error| Problem::of_receipt(&error))
    }

    /// Returns the receipt of an admitted call, of several that were decided together too.
    ///
    /// # Errors
    /// The call is wrong, or the rules have changed so that it has another key.
    pub(crate) fn receipt(&self, call: &Call<'_>, answer: &Answer) -> Result<String, Problem> {
        let Decision::Allowed(allowed) = answer.decision() else { return Err(Problem::NotAReceipt) };
        let key = self.prepare(call)?.key;
        self.limiter
            .receipt(&key, allowed)
            .map(|receipt| receipt.to_string())
            .map_err(|error| Problem::of_receipt(&error))
    }

    /// Refunds the call of a receipt: from here on it counts nothing. The key is that of the call.
    ///
    /// # Errors
    /// As for [`settle`](Self::settle).
    ///
    /// # Cancel safety
    /// As for [`settle`](Self::settle).
    pub(crate) async fn refund(&self, call: &Call<'_>, receipt: &str) -> Result<(), Problem> {
        self.settle(call, receipt, 0).await.map(drop)
    }

    /// Takes the cost of a call, waiting up to its `max_wait`, and holds its slots until it leaves or `ttl` has passed.
    ///
    /// # Errors
    /// As for [`check`](Self::check), and for a time to live out of its range or a full table of slots.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done holds nothing.
    pub(crate) async fn enter(&self, call: &Call<'_>, ttl: Duration) -> Result<Answer, Problem> {
        check_ttl(ttl)?;
        self.check_wait(call.max_wait)?;
        let (_running, prepared) = (self.begin_for(call.max_wait)?, self.prepare(call)?);
        self.slots.check_room(Instant::now())?;
        let entry = match (&prepared.rule, &*prepared.limits) {
            (Some(rule), _) => {
                self.named(rule, call).enter_wait_n(&prepared.key, &self.no_limit, call.cost, call.max_wait).await
            }
            (None, [limit]) => self.limiter.enter_wait_n(&prepared.key, limit, call.cost, call.max_wait).await,
            (None, _) => self.limiter.enter_all(&prepared.items(call.cost)).await,
        };
        match entry.map_err(|error| self.failed(&error, call, &prepared))? {
            Entry::Denied(denied) => self.answer(denied.into(), call, &prepared),
            Entry::Entered(entered) => {
                let answer = self.answer(entered.allowed().clone().into(), call, &prepared)?;
                Ok(answer.with_slot(self.slots.hold(entered, ttl, Instant::now())?))
            }
        }
    }

    /// Gives a slot a new time to live, from now on.
    ///
    /// # Errors
    /// It has ended, is none of this server, or the time to live is out of its range.
    pub(crate) fn renew(&self, slot: &str, ttl: Duration) -> Result<SlotAnswer, Problem> {
        check_ttl(ttl)?;
        self.slots.renew(slot, ttl, Instant::now())
    }

    /// Frees a slot.
    ///
    /// # Errors
    /// It has ended, or is none of this server.
    pub(crate) fn leave(&self, slot: &str) -> Result<(), Problem> {
        self.slots.leave(slot, Instant::now())
    }

    /// Frees the slots that have ended. Returns the instant at which the next one ends.
    pub(crate) fn sweep_slots(&self) -> Option<Instant> {
        self.slots.sweep(Instant::now())
    }

    /// Forgets what is counted on the key of a call.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Some of the counters may be reset.
    pub(crate) async fn reset(&self, call: &Call<'_>) -> Result<(), Problem> {
        let (_running, prepared) = (self.begin()?, self.prepare(call)?);
        let failed = |error: Error| self.failed(&error, call, &prepared);
        if let Some(rule) = &prepared.rule {
            return self.named(rule, call).reset(&prepared.key, &self.no_limit).await.map_err(failed);
        }
        for limit in &prepared.limits {
            self.limiter.reset(&prepared.key, limit).await.map_err(failed)?;
        }
        Ok(())
    }

    fn begin(&self) -> Result<Running<'_>, Problem> {
        self.begin_for(Duration::ZERO)
    }

    /// Takes a place. Half of the places are for calls that do not wait: those that do would keep all others out.
    fn begin_for(&self, max_wait: Duration) -> Result<Running<'_>, Problem> {
        let all = self.policy.max_calls;
        let most = if max_wait.is_zero() { all } else { all.div_ceil(2) };
        let running = Running(&self.running);
        if self.running.fetch_add(1, Ordering::Relaxed) < most {
            Ok(running)
        } else {
            Err(Problem::TooManyCalls { most })
        }
    }

    fn check_wait(&self, given: Duration) -> Result<(), Problem> {
        let most = self.policy.max_wait;
        if given <= most { Ok(()) } else { Err(Problem::WaitTooLong { given, most }) }
    }

    fn named<'s>(&'s self, rule: &'s str, call: &Call<'_>) -> Named<'s> {
        let named = self.limiter.named(rule).plan(call.plan);
        call.deadline.map_or(named, |most| named.deadline_at_most(most))
    }

    /// Finds the rule of a call and builds its key.
    fn prepare<'c>(&self, call: &'c Call<'_>) -> Result<Prepared<'c>, Problem> {
        match &call.target {
            Target::Rule { name, values } => {
                let catalog;
                let rule = match call.found {
                    Some(rule) => rule,
                    None => {
                        catalog = self.catalog();
                        catalog.rule(name)?
                    }
                };
                let key = rule.key(values)?;
                if !rule.is_bounded() {
                    self.check_bounded(rule, &key, call)?;
                }
                Ok(Prepared { key, rule: Some(name), limits: Vec::new(), is_postpaid: rule.is_postpaid() })
            }
            Target::Limits { .. } if !self.policy.allows_limits => Err(Problem::LimitsNotAllowed),
            Target::Limits { key, limits } => {
                check_own_limits(limits, call)?;
                let key = key_of_limits(key).map_err(|error| invalid_limits(&error.to_string()))?;
                Ok(Prepared { key, rule: None, limits: limits.clone(), is_postpaid: false })
            }
        }
    }

    /// Checks that a rule without limits of its own has one for a key, by an override or a plan.
    #[cold]
    fn check_bounded(&self, rule: &CatalogRule, key: &Key, call: &Call<'_>) -> Result<(), Problem> {
        let limits = self.named(rule.name(), call).limits_for(key, &self.no_limit);
        let limits = limits.map_err(|error| Problem::of_decision(&error))?;
        if !limits.iter().any(|limit| self.is_none(limit)) {
            return Ok(());
        }
        let (name, plans, given) = (rule.name().to_owned(), rule.plans(), call.plan);
        if !plans.is_empty() && !plans.iter().any(|plan| plan == given) {
            return Err(Problem::PlanNeeded { rule: name, plans: plans.to_vec(), given: given.to_owned() });
        }
        Err(Problem::RuleWithoutLimit { rule: name })
    }

    /// The problem of a call that failed.
    #[cold]
    fn failed(&self, error: &Error, call: &Call<'_>, prepared: &Prepared<'_>) -> Problem {
        if error.kind() == ErrorKind::Config {
            let limits = match &prepared.rule {
                Some(rule) => self.named(rule, call).limits_for(&prepared.key, &self.no_limit).unwrap_or_default(),
                None => prepared.limits.clone(),
            };
            if limits.iter().any(Limit::is_concurrent) {
                return Problem::RuleHoldsSlots { rule: prepared.rule_name().to_owned() };
            }
        }
        Problem::of_decision(error)
    }

    /// Checks a decision for a limit that is none: the rules have changed since the call was prepared.
    fn check_limits_of(&self, decision: &Decision) -> Result<(), Problem> {
        let is_unbounded = || decision.limits().find(|state| self.is_none(&state.limit()));
        match decision.source() {
            Source::Mode => Ok(()),
            _ => {
                is_unbounded().map_or(Ok(()), |state| Err(Problem::RuleWithoutLimit { rule: state.name().to_owned() }))
            }
        }
    }

    /// Returns whether a limit is the one that stands for none. A rule may have set its algorithm.
    fn is_none(&self, limit: &Limit) -> bool {
        (limit.max(), limit.window()) == (self.no_limit.max(), self.no_limit.window())
    }

    fn answer(&self, decision: Decision, call: &Call<'_>, prepared: &Prepared<'_>) -> Result<Answer, Problem> {
        // A caller's own limit may be as wide as the one that stands for none.
        if prepared.rule.is_some() {
            self.check_limits_of(&decision)?;
        }
        let wants_receipt = call.wants_receipt || prepared.is_postpaid;
        let receipt = match &decision {
            Decision::Allowed(allowed) if wants_receipt => {
                let receipt = self.limiter.receipt(&prepared.key, allowed);
                Some(receipt.map_err(|error| Problem::of_receipt(&error))?)
            }
            _ => None,
        };
        let answer = Answer::new(decision, call.cost, self.no_limit);
        Ok(receipt.into_iter().fold(answer, Answer::with_receipt))
    }
}

impl Prepared<'_> {
    /// The name of the rule in problems.
    fn rule_name(&self) -> &str {
        self.rule.unwrap_or("check")
    }

    /// The limits of the caller's own, each with this cost.
    fn items(&self, cost: u32) -> Vec<(&Key, &Limit, u32)> {
        self.limits.iter().map(|limit| (&self.key, limit, cost)).collect()
    }
}

/// The problem of a call without a rule among those that are decided together.
fn no_rule() -> Problem {
    invalid_limits("calls that are decided together must each name a rule")
}

fn invalid_limits(message: &str) -> Problem {
    Problem::InvalidLimits { message: message.to_owned() }
}

/// Checks limits that a caller brings.
fn check_own_limits(limits: &[Limit], call: &Call<'_>) -> Result<(), Problem> {
    if limits.is_empty() {
        return Err(invalid_limits("`limits` must have at least one limit, got none"));
    }
    if limits.len() > MAX_OWN_LIMITS {
        return Err(invalid_limits(&format!(
            "`limits` must have at most {MAX_OWN_LIMITS} limits, got {}",
            limits.len()
        )));
    }
    if limits.len() > 1 && !call.max_wait.is_zero() {
        return Err(invalid_limits("`wait_ms` must be 0 beside several limits of the call's own: name a rule to wait"));
    }
    // Two limits of one window have one counter, which would count the call twice.
    let kind = |limit: &Limit| (limit.window(), limit.algorithm());
    let is_repeated =
        |(index, limit): (usize, &Limit)| limits[..index].iter().any(|earlier| kind(earlier) == kind(limit));
    if limits.iter().enumerate().any(is_repeated) {
        return Err(invalid_limits("`limits` must have another window each, got one twice: remove the larger limit"));
    }
    Ok(())
}

fn check_ttl(given: Duration) -> Result<(), Problem> {
    let (least, most) = (MIN_TTL, MAX_TTL);
    if (least..=most).contains(&given) { Ok(()) } else { Err(Problem::TimeToLiveOutOfRange { given, least, most }) }
}
