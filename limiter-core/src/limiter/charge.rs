//! Charges: permits that count whether they fit or not, for a cost that is known only afterwards.

use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::limiter::planned::{check_holds_nothing, enter_instead};
use crate::limiter::{Backend, Inside, Limiter};
use crate::metrics;
use crate::request::{CallOptions, CountedReply, Request, check_number_of};
use crate::rule::{Plan, Planned, PlannedRules};
use crate::run::block_on;
use crate::{Error, Key, Limit, Named, Usage};

impl Limiter {
    /// Counts `cost` permits, also beyond the limit, for a cost that is known only afterwards.
    ///
    /// Nothing is denied: later calls are, until the permits have expired. So a call that may be large first takes an
    /// estimate by [`check_n`](Limiter::check_n), and charges what goes above it. Permits that a process has
    /// [leased](crate::Builder::leases) before still allow calls for up to 50 ms.
    ///
    /// A leaky bucket moves the turns of later calls. What no counter has room for is [`Usage::uncounted`]. A rule in
    /// shadow mode is charged; one that is off, or that denies all calls, is not.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("tokens"), "1000/m".parse()?);
    /// assert!(limiter.check_n(&key, &limit, 600).await?.is_allowed());
    /// // The answer took 1 100 tokens: 500 more than the estimate.
    /// let usage = limiter.charge(&key, &limit, 500).await?;
    /// assert_eq!((usage.remaining(), usage.overdrawn()), (0, 100));
    /// assert!(limiter.check(&key, &limit).await?.is_denied());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store's failure, unless the standby limiter decides under the failure policy: it counts the charge then, and the
    /// source of the usage is [`Source::Standby`](crate::Source::Standby). After
    /// [`Timeout`](crate::ErrorKind::Timeout) the store may have counted it or not. It is never sent again.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have charged the permits or not. Where a client can end a call, charge
    /// in a task of its own.
    pub async fn charge(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Usage, Error> {
        self.charge_all(&[(key, limit, cost)]).await
    }

    /// Counts permits of several limits, also beyond them: see [`charge`](Limiter::charge). The usage describes the limit
    /// with the most permits beyond it, or else with the least permits left.
    ///
    /// # Errors
    /// As for [`charge`](Limiter::charge). In a cluster the limits may be in several slots, each of which is charged by a
    /// call of its own: an error may follow after some were charged. [`ErrorKind::InvalidLimit`](crate::ErrorKind::InvalidLimit)
    /// for more than 128 limits.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have charged some of the permits.
    pub async fn charge_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Usage, Error> {
        check_holds_nothing(limits.iter().map(|(_, limit, _)| **limit))?;
        let requests: Vec<_> = limits.iter().map(|&(key, limit, cost)| Request::new(key, *limit, cost)).collect();
        let inside = self.inside();
        if inside.rules.switch().is_none() {
            return inside.charge(DecisionContext::direct(&requests), *inside.default_options()).await;
        }
        inside.charge_planned(&inside.rules.plan_direct(DIRECT_CALL, &requests), largest_cost(limits)).await
    }

    /// Reads the use of a limit: the permits that are left, or that count beyond it. It is a charge of 0 permits.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let (limiter, key, limit) = (Limiter::memory(), Key::new("tokens"), "1000/m".parse()?);
    /// limiter.charge(&key, &limit, 1100).await?;
    /// assert_eq!(limiter.usage(&key, &limit).await?.overdrawn(), 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`charge`](Limiter::charge).
    ///
    /// # Cancel safety
    /// Nothing is counted, whether the future is dropped or not.
    pub async fn usage(&self, key: &Key, limit: &Limit) -> Result<Usage, Error> {
        self.charge(key, limit, 0).await
    }

    /// [`charge`](Limiter::charge) for code that is not async.
    ///
    /// # Errors
    /// As for [`charge`](Limiter::charge).
    pub fn charge_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Usage, Error> {
        block_on(self.charge(key, limit, cost))
    }

    /// [`charge_all`](Limiter::charge_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`charge_all`](Limiter::charge_all).
    pub fn charge_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Usage, Error> {
        block_on(self.charge_all(limits))
    }

    /// [`usage`](Limiter::usage) for code that is not async.
    ///
    /// # Errors
    /// As for [`usage`](Limiter::usage).
    pub fn usage_blocking(&self, key: &Key, limit: &Limit) -> Result<Usage, Error> {
        block_on(self.usage(key, limit))
    }
}

impl Named<'_> {
    /// Counts `cost` permits, also beyond the limit: [`Limiter::charge`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::charge`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::charge`].
    pub async fn charge(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Usage, Error> {
        self.charge_all(&[(key, limit, cost)]).await
    }

    /// Counts permits of several limits, also beyond them: [`Limiter::charge_all`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::charge_all`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::charge_all`].
    pub async fn charge_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Usage, Error> {
        let inside = self.inside();
        let cost_of =
            |key: &Key| limits.iter().filter(|(of, ..)| *of == key).map(|(.., cost)| *cost).max().unwrap_or(0);
        let plan = self.plan_call(inside, limits)?.charging(cost_of);
        inside.charge_planned(&plan, largest_cost(limits)).await
    }

    /// [`charge`](Named::charge) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::charge`].
    pub fn charge_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Usage, Error> {
        block_on(self.charge(key, limit, cost))
    }

    /// [`charge_all`](Named::charge_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::charge_all`].
    pub fn charge_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Usage, Error> {
        block_on(self.charge_all(limits))
    }
}

impl Inside {
    /// Charges the counters of a planned call whose largest cost is `cost`.
    async fn charge_planned(&self, plan: &Plan<'_>, cost: u32) -> Result<Usage, Error> {
        match &plan.requests {
            Planned::Single { name, request, .. } => {
                self.charge(DecisionContext::new(name, request), plan.options).await
            }
            Planned::Off { limit, .. } => Ok(Usage::uncounted_by_mode(*limit, cost, limit.max_cost())),
            Planned::Rules(planned) => self.charge_rules(planned, plan.options, cost).await,
        }
    }

    /// Charges the counters of the rules that are enforced, and then those of rules in shadow mode. Those fail no charge, and
    /// are described only if no rule is enforced.
    async fn charge_rules(&self, planned: &PlannedRules<'_>, options: CallOptions, cost: u32) -> Result<Usage, Error> {
        if planned.has_slots() {
            return Err(enter_instead());
        }
        if let Some((_, error)) = &planned.invalid {
            self.observers.failed(error);
            return Err(error.clone());
        }
        let enforced = planned.enforced.context();
        let mut usage = match enforced.requests {
            [] => None,
            _ => Some(Box::pin(self.charge(enforced, options)).await?),
        };
        // Observed requests are on counters of the enforced ones.
        for trial in self.usable_shadow(planned).iter().flat_map(|shadow| &shadow.0) {
            let taking = trial.taking.context();
            if !taking.requests.is_empty()
                && let Ok(of_shadow) = Box::pin(self.charge(taking, trial.options)).await
            {
                usage.get_or_insert(of_shadow);
            }
        }
        Ok(usage.unwrap_or_else(|| {
            let (_, limit) = planned.first.unwrap_or((DIRECT_CALL, Limit::WIDEST));
            let remaining = if planned.denying.is_some() { 0 } else { limit.max_cost() };
            Usage::uncounted_by_mode(limit, cost, remaining)
        }))
    }

    /// Charges the counters of these requests, and records it in the series of their rules.
    async fn charge(&self, context: DecisionContext<'_>, options: CallOptions) -> Result<Usage, Error> {
        let DecisionContext { names, requests } = context;
        check_number_of(requests.len())?;
        if requests.is_empty() {
            return Ok(Usage::uncounted_by_mode(Limit::WIDEST, 0, Limit::WIDEST.max_cost()));
        }
        let counted = match &self.backend {
            Backend::Memory(store) => CountedReply::from_charge(store.charge(requests), 0),
            Backend::Guarded(guard) => {
                let charged = guard.charge(requests, &options, &self.observers).await;
                charged.inspect_err(|_| metrics::charge_failed(names, requests))?
            }
        };
        metrics::charged(names, requests, counted.charges());
        Ok(Usage::new(requests, &counted))
    }
}

fn largest_cost(limits: &[(&Key, &Limit, u32)]) -> u32 {
    limits.iter().map(|(.., cost)| *cost).max().unwrap_or(0)
}
