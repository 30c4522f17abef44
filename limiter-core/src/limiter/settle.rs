//! Refunds and settlements: an allowed call counts less, or more, once its cost is known.

use std::iter;

use crate::decision::receipt::{Claim, DecisionReceipt, GrantedPermits, ReceiptTerms, UsedReceipt};
use crate::decision::{Allowed, DIRECT_CALL, Decision, DecisionContext};
use crate::limiter::planned::{check_holds_nothing, decision_of};
use crate::limiter::{Backend, Inside, Limiter};
use crate::request::{CallOptions, CountedReply, Request, Settlement};
use crate::run::block_on;
use crate::store::memory::EntryPermits;
use crate::{Error, ErrorKind, Key, Limit, Source, Usage, metrics};

impl Limiter {
    /// Refunds the permits of an allowed call, for a call that did not happen after all.
    ///
    /// A refund never gives more than if the call had not been made, so it may give back less than the call took:
    ///
    /// - A sliding window gives back the call's own permits while they count. It is then as if the call had not been
    ///   made.
    /// - The other window algorithms give back the permits that still count.
    /// - A token bucket gives back the permits that it has not refilled meanwhile.
    /// - A leaky bucket gives back the turn that it gave last, and no other.
    /// - A bucket that several keys share, because [`max_keys`](crate::Builder::max_keys) are in use, gives back
    ///   nothing.
    /// - A server that has failed since the call, and so may have lost its permits, gives back nothing.
    /// - An allowed call that took nothing gives back nothing: one that a failure policy allowed, or one with a cost of
    ///   0.
    /// - A receipt can be used once. Its clones are the same receipt. [`refund_n`](Limiter::refund_n) uses a part of it.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("export"), "1/h".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check(&key, &limit).await? {
    ///     // There was nothing to export.
    ///     limiter.refund(&allowed).await?;
    /// }
    /// assert!(limiter.check(&key, &limit).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store's failure, whatever the policy. The permits may or may not be back, and the receipt is used up.
    /// [`ErrorKind::Config`] for a receipt of another limiter.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have given the permits back, and has used the receipt up. It wakes no
    /// waiting call: on Redis the first call of a queue checks again within 1.2 s.
    pub fn refund(&self, allowed: &Allowed) -> impl Future<Output = Result<(), Error>> + Send {
        self.refund_n(allowed, u32::MAX)
    }

    /// Refunds a part of the permits of an allowed call, for a cost that is known only afterwards.
    ///
    /// All refunds of a call together give back at most its cost. [`refund`](Limiter::refund) gives back what is left of
    /// it, by the same rules. The rules treat the call as if it had cost less:
    ///
    /// - A token bucket gives back the permits that it has not refilled, of all that the call still holds.
    /// - A leaky bucket gives back the last turns of the call, if it gave none since.
    ///
    /// If the decision had several requests, each gives back `permits`, or its whole cost if that is less. So after a
    /// call with the costs 2 and 5, `refund_n(&allowed, 3)` leaves 0 and 2.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("tokens"), "1000/m".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check_n(&key, &limit, 500).await? {
    ///     // The reply took 120 tokens.
    ///     limiter.refund_n(&allowed, 500 - 120).await?;
    /// }
    /// assert_eq!(limiter.peek(&key, &limit).await?.remaining(), 880);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`refund`](Limiter::refund). After a failure this part of the receipt is used up.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have given the permits back, and has used up this part of the
    /// receipt.
    pub async fn refund_n(&self, allowed: &Allowed, permits: u32) -> Result<(), Error> {
        let (inside, mut result) = (self.inside(), Ok(()));
        for receipt in allowed.receipts() {
            let refunded = inside.refund_receipt(&receipt, allowed, permits).await;
            result = result.and(refunded);
        }
        result
    }

    /// Decides whether a call may run whose whole cost is known only afterwards: it may if one permit is free, and takes none.
    ///
    /// [`settle`](Limiter::settle) charges it. A call that nothing settles counts nothing.
    ///
    /// This does not bound what starts at once: each call that begins before the first one is charged may run. Where a budget
    /// must hold, take an estimate by [`check_n`](Limiter::check_n). A leaky bucket gives no turns.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("export"), "1000/m".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check_postpaid(&key, &limit).await? {
    ///     // The export had 1 200 rows.
    ///     limiter.settle(&allowed, 1200).await?;
    /// }
    /// assert!(limiter.check_postpaid(&key, &limit).await?.is_denied());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn check_postpaid(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        check_holds_nothing([*limit])?;
        let (inside, requests) = (self.inside(), [Request::new(key, *limit, 0).postpaid()]);
        if inside.rules.switch().is_some() {
            return inside.decide(&inside.rules.plan_direct(DIRECT_CALL, &requests), None).await.map(decision_of);
        }
        inside.decide_requests(DecisionContext::direct(&requests), *inside.default_options(), None).await
    }

    /// Settles an allowed call whose cost is known now: from here on it counts `actual` permits.
    ///
    /// What it took and did not need is given back, by the rules of [`refund`](Limiter::refund). What it needed in addition
    /// is counted also beyond the limit, as by [`charge`](Limiter::charge). If the decision had several requests, each
    /// counts `actual`; [`settle_each`](Limiter::settle_each) and [`settle_rule`](Limiter::settle_rule) tell them apart.
    ///
    /// It ends the receipt. Before it, [`refund_n`](Limiter::refund_n) may have given a part back: the call counts `actual`
    /// all the same. Permits that a failed server may have lost are not given back, and more is charged. A call that counted
    /// nothing is not charged: one whose rule is off, or that a failure policy allowed. The [source](Usage::source) of the
    /// usage is that of the decision then. Rules in shadow mode that denied the call are not charged.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("tokens"), "1000/m".parse()?);
    /// if let Decision::Allowed(allowed) = limiter.check_n(&key, &limit, 500).await? {
    ///     // The answer took 620 tokens.
    ///     let usage = limiter.settle(&allowed, 620).await?;
    ///     assert_eq!(usage.remaining(), 380);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`charge`](Limiter::charge). After a failure the receipt is used up. [`ErrorKind::Settled`] if the call was
    /// settled before: nothing changes then. [`ErrorKind::Config`] for a decision of another limiter.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have settled the call or not, and has used the receipt up. It wakes no
    /// waiting call. Where a client can end a call, settle in a task of its own.
    pub async fn settle(&self, allowed: &Allowed, actual: u32) -> Result<Usage, Error> {
        self.inside().settle(allowed, actual, |_, _| Some(actual)).await
    }

    /// Settles the requests of one rule of an allowed call, each to `actual` permits: see [`settle`](Limiter::settle).
    ///
    /// Those of other rules stay as they are, and can be settled later. If the decision has no request of the rule, nothing
    /// is counted, and `actual` is [`Usage::uncounted`]: the rule may be off, or not apply to the call.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Decision, Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, org) = (Limiter::memory(), Key::new("org"));
    /// let rules = [("calls", &org, &"10/s".parse()?, 1), ("tokens", &org, &"1000/m".parse()?, 500)];
    /// if let Decision::Allowed(allowed) = limiter.check_rules(&rules).await? {
    ///     let usage = limiter.settle_rule(&allowed, "tokens", 620).await?;
    ///     assert_eq!(usage.remaining(), 380);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`settle`](Limiter::settle). [`ErrorKind::Config`] for a name that neither the decision nor the program has, and
    /// that no direct call of the process has had. Nothing is settled then. [`Builder::declare`](crate::Builder::declare)
    /// makes a name one of the program's. Where its functions are unknown, as without the feature `sites`, this is checked
    /// for direct calls alone.
    ///
    /// # Cancel safety
    /// As for [`settle`](Limiter::settle).
    pub async fn settle_rule(&self, allowed: &Allowed, rule: &str, actual: u32) -> Result<Usage, Error> {
        let inside = self.inside();
        inside.check_rule_of(allowed, rule)?;
        inside.settle(allowed, actual, |_, name| (name == rule).then_some(actual)).await
    }

    /// Settles an allowed call of [`check_all`](Limiter::check_all), each of its limits to a number of its own, in their
    /// order: see [`settle`](Limiter::settle).
    ///
    /// Under a rule whose limits are configured it has a number for each of these. Calls of several rules have
    /// [`settle_rule`](Limiter::settle_rule).
    ///
    /// # Errors
    /// As for [`settle`](Limiter::settle). [`ErrorKind::Config`] for a decision of several rules, and if there are not as
    /// many numbers as requests. Nothing is settled then.
    ///
    /// # Cancel safety
    /// As for [`settle`](Limiter::settle).
    pub async fn settle_each(&self, allowed: &Allowed, actual: &[u32]) -> Result<Usage, Error> {
        let receipts: Vec<_> = allowed.receipts().collect();
        let requests = receipts.first().map_or(0, |receipt| receipt.receipt.requests());
        if receipts.len() > 1 || receipts.iter().any(|receipt| receipt.receipt.is_of_several_rules()) {
            let problem = "`allowed` must be a decision of one rule, got one of several: call `settle_rule` for each";
            return Err(Error::new(ErrorKind::Config, problem));
        }
        if requests != actual.len() && requests > 0 {
            let given = actual.len();
            let problem = format!(
                "`actual` must have a number for each of the {requests} requests, got {given}: write one for each limit"
            );
            return Err(Error::new(ErrorKind::Config, problem));
        }
        let largest = actual.iter().copied().max().unwrap_or(0);
        self.inside().settle(allowed, largest, |index, _| actual.get(index).copied()).await
    }
}

/// Blocking forms, for code that is not async.
impl Limiter {
    /// Refunds the permits of an allowed call: [`refund`](Limiter::refund) for code that is not async.
    ///
    /// # Errors
    /// As for [`refund`](Limiter::refund).
    pub fn refund_blocking(&self, allowed: &Allowed) -> Result<(), Error> {
        block_on(self.refund(allowed))
    }

    /// Refunds a part of the permits of an allowed call: [`refund_n`](Limiter::refund_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`refund_n`](Limiter::refund_n).
    pub fn refund_n_blocking(&self, allowed: &Allowed, permits: u32) -> Result<(), Error> {
        block_on(self.refund_n(allowed, permits))
    }

    /// Decides whether one permit is free: [`check_postpaid`](Limiter::check_postpaid) for code that is not async.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    pub fn check_postpaid_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check_postpaid(key, limit))
    }

    /// Settles an allowed call: [`settle`](Limiter::settle) for code that is not async.
    ///
    /// # Errors
    /// As for [`settle`](Limiter::settle).
    pub fn settle_blocking(&self, allowed: &Allowed, actual: u32) -> Result<Usage, Error> {
        block_on(self.settle(allowed, actual))
    }

    /// Settles one rule of an allowed call: [`settle_rule`](Limiter::settle_rule) for code that is not async.
    ///
    /// # Errors
    /// As for [`settle`](Limiter::settle).
    pub fn settle_rule_blocking(&self, allowed: &Allowed, rule: &str, actual: u32) -> Result<Usage, Error> {
        block_on(self.settle_rule(allowed, rule, actual))
    }

    /// Settles each request of an allowed call: [`settle_each`](Limiter::settle_each) for code that is not async.
    ///
    /// # Errors
    /// As for [`settle_each`](Limiter::settle_each).
    pub fn settle_each_blocking(&self, allowed: &Allowed, actual: &[u32]) -> Result<Usage, Error> {
        block_on(self.settle_each(allowed, actual))
    }
}

impl Inside {
    /// Returns the terms of a receipt of this limiter, for a call with these options.
    pub(crate) fn receipt_terms(&self, options: &CallOptions) -> ReceiptTerms {
        let &CallOptions { on_error, deadline, .. } = options;
        ReceiptTerms { limiter_id: self.limiter_id, on_error, deadline }
    }

    async fn refund_receipt(
        &self,
        receipt: &DecisionReceipt<'_>,
        allowed: &Allowed,
        permits: u32,
    ) -> Result<(), Error> {
        self.check_owner(receipt.receipt)?;
        let Some(used) = receipt.receipt.refund(permits) else { return Ok(()) };
        let refunded = match (used.refunded, &used.granted, &self.backend) {
            (Some(permits), GrantedPermits::Any { requests, refund_info }, Backend::Guarded(guard)) => {
                guard.refund(requests, refund_info.clone().with_max_permits(permits), &self.observers).await
            }
            _ => self.change(receipt.receipt, &used, allowed).await.map(drop),
        };
        self.wake_waiters_of(&used.granted);
        if refunded.is_ok() {
            record_refund(receipt, &used);
        }
        refunded
    }

    /// Checks that a decision that took permits has requests of a rule, or that the program has the rule: it may be off.
    pub(crate) fn check_rule_of(&self, allowed: &Allowed, rule: &str) -> Result<(), Error> {
        let names = || allowed.receipts().flat_map(DecisionReceipt::names);
        if names().next().is_none() || names().any(|name| name == rule) {
            return Ok(());
        }
        self.rules.check_name(rule, &names().collect())
    }

    /// Settles the requests of a decision. `actual` returns what a request counts, by its position in the decision and the
    /// name of its rule. `largest` is the largest of these numbers.
    pub(crate) async fn settle(
        &self,
        allowed: &Allowed,
        largest: u32,
        actual: impl Fn(usize, &str) -> Option<u32>,
    ) -> Result<Usage, Error> {
        allowed.receipts().try_for_each(|receipt| self.check_owner(receipt.receipt))?;
        let (mut enforced, mut of_shadow) = (None, None);
        for receipt in allowed.receipts() {
            let settled = match receipt.receipt.settle(|index| actual(index, receipt.rule_of(index))) {
                Ok(None) => continue,
                Ok(Some(used)) => self.settle_claim(&receipt, &used, allowed).await,
                Err(error) => Err(error),
            };
            let is_own = receipt.is_shadow == allowed.is_shadow();
            let outcome = if is_own { &mut enforced } else { &mut of_shadow };
            outcome.get_or_insert(settled);
        }
        // Rules in shadow mode beside others fail no settlement, and are described if no other rule is settled.
        let has_own = allowed.receipts().any(|receipt| receipt.is_shadow == allowed.is_shadow());
        let of_shadow = of_shadow.filter(|settled| settled.is_ok() && has_own);
        let source = if has_own { Source::Mode } else { allowed.source() };
        let nothing = || Ok(Usage::of_uncounted(allowed.limit(), source, largest, allowed.remaining()));
        enforced.or(of_shadow).unwrap_or_else(nothing)
    }

    async fn settle_claim(
        &self,
        receipt: &DecisionReceipt<'_>,
        used: &UsedReceipt<'_>,
        allowed: &Allowed,
    ) -> Result<Usage, Error> {
        let settled = self.change(receipt.receipt, used, allowed).await;
        self.wake_waiters_of(&used.granted);
        // After a failure of the store the standby limiter has counted what was added, and nothing was given back.
        let is_given_back = |usage: &Usage| usage.source() != Source::Standby || allowed.source() == Source::Standby;
        if settled.as_ref().is_ok_and(is_given_back) {
            record_refund(receipt, used);
        }
        for (rule, charged) in of_rules(receipt, used, |before, after| after.saturating_sub(before)) {
            match &settled {
                Ok(usage) => metrics::settled(rule, charged, usage.overdrawn(), usage.uncounted()),
                Err(_) => metrics::settle_failed(rule, charged),
            }
        }
        settled
    }

    /// Changes what a call counts, as a use of its receipt demands.
    async fn change(&self, receipt: &Claim, used: &UsedReceipt<'_>, allowed: &Allowed) -> Result<Usage, Error> {
        let (after, limit) = (&used.after, allowed.limit());
        let (requests, refund_info) = match (&used.granted, &self.backend) {
            (GrantedPermits::Any { requests, refund_info }, _) => (requests, refund_info),
            (&GrantedPermits::MemoryEntry { entry, held }, Backend::Memory(store)) => {
                let taken = EntryPermits { entry, held, stamp: allowed.decided_at() };
                return Ok(Usage::of_one(
                    limit,
                    store.settle_entry(taken, limit, after.first().copied().unwrap_or(held)),
                ));
            }
            // The store of a limiter never changes.
            (GrantedPermits::MemoryEntry { .. }, Backend::Guarded(_)) => {
                return Ok(Usage::of_uncounted(limit, allowed.source(), 0, allowed.remaining()));
            }
        };
        let counted = match &self.backend {
            Backend::Memory(store) => CountedReply::from_charge(store.settle(requests, after, refund_info.stamp), 0),
            Backend::Guarded(guard) => {
                let settlement = Settlement { info: refund_info.clone(), after: after.clone(), once: None };
                guard.settle(requests, settlement, &receipt.options(self.default_options()), &self.observers).await?
            }
        };
        let is_meant = |index: usize| used.requests.get(index).is_some_and(|(_, is_meant)| *is_meant);
        Ok(Usage::of_requests(requests, &counted, is_meant))
    }

    fn wake_waiters_of(&self, granted: &GrantedPermits<'_>) {
        match granted {
            GrantedPermits::MemoryEntry { entry, .. } => self.wake_waiters(iter::once(entry.counter_hash())),
            GrantedPermits::Any { requests, .. } => self.wake_waiters(requests.iter().map(Request::counter_hash)),
        }
    }

    /// Checks that this limiter has granted the permits, in this process or where a child of `fork` can give them back: the
    /// counts of a store in memory are its parent's.
    pub(super) fn check_owner(&self, receipt: &Claim) -> Result<(), Error> {
        if receipt.belongs_to(self.limiter_id) {
            return Ok(());
        }
        let is_parents = self.parents.iter().any(|parent| receipt.belongs_to(*parent));
        match &self.backend {
            Backend::Guarded(_) if is_parents => Ok(()),
            Backend::Memory(_) if is_parents => Err(Error::new(
                ErrorKind::Forked,
                "`allowed` must be a decision of this process, got one of its parent, whose counts are its own: call \
                 `refund` there",
            )),
            _ => Err(Error::new(
                ErrorKind::Config,
                "`allowed` must be a decision of this limiter, got one of another: call `refund` of the limiter \
                 that granted it",
            )),
        }
    }
}

/// Records the permits that each rule got back.
fn record_refund(receipt: &DecisionReceipt<'_>, used: &UsedReceipt<'_>) {
    for (rule, returned) in of_rules(receipt, used, u32::saturating_sub) {
        metrics::refunded(rule, returned);
    }
}

/// Each rule of a use, with the largest change of its requests. `change` gets what one counted before and counts after it.
fn of_rules(
    receipt: &DecisionReceipt<'_>,
    used: &UsedReceipt<'_>,
    change: impl Fn(u32, u32) -> u32,
) -> Vec<(&'static str, u32)> {
    let mut rules: Vec<(&'static str, u32)> = Vec::new();
    for ((before, after), (index, _)) in used.before().zip(&used.after).zip(&used.requests) {
        let (rule, change) = (receipt.rule_of(*index), change(before, *after));
        match rules.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, most)) => *most = change.max(*most),
            None => rules.push((rule, change)),
        }
    }
    rules.retain(|(_, change)| *change > 0);
    rules
}
