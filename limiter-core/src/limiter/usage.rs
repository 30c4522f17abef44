//! The use of all limits of a rule, for a page about one of its keys.

use crate::limiter::{Backend, Inside};
use crate::request::{CallOptions, CountedReply, Request};
use crate::rule::{OwnPolicy, Plan, Planned};
use crate::run::block_on;
use crate::{Error, ErrorKind, Key, Limit, LimitUsage, Named};

impl Named<'_> {
    /// Reads the use of each limit that the rule has for a key, by its overrides, its [plan](Named::plan) or its own settings.
    /// Nothing is taken, and no observer is called.
    ///
    /// Limits of calls at once come last. A rule that is [off](crate::Mode::Off) or denies all calls counts nothing: the
    /// list is empty.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter, Rule, RuleSet};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::memory();
    /// limiter.set_rules(RuleSet::new().rule("api", Rule::new().limit("5/s".parse()?).limit("1000/d".parse()?)))?;
    /// let (api, customer) = (limiter.named("api"), Key::new("api:").part(42));
    /// assert!(api.check_n(&customer, &"1/s".parse()?, 4).await?.is_allowed());
    /// let used: Vec<_> = api.usage(&customer).await?.iter().map(|usage| (usage.used(), usage.remaining())).collect();
    /// assert_eq!(used, [(4, 1), (4, 996)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Limiter::charge`](crate::Limiter::charge). [`ErrorKind::Config`](crate::ErrorKind::Config) for a rule
    /// whose limits are in its attribute or its layer alone: [`usage_or`](Named::usage_or) reads their use.
    ///
    /// # Cancel safety
    /// Nothing is counted, whether the future is dropped or not.
    pub async fn usage(&self, key: &Key) -> Result<Vec<LimitUsage>, Error> {
        self.usage_of(key, &[]).await
    }

    /// Reads the use of each limit that the rule has for a key: `limit`, if no settings have one. Otherwise it is as
    /// [`usage`](Named::usage).
    ///
    /// # Errors
    /// As for [`Limiter::charge`](crate::Limiter::charge).
    ///
    /// # Cancel safety
    /// As for [`usage`](Named::usage).
    pub async fn usage_or(&self, key: &Key, limit: &Limit) -> Result<Vec<LimitUsage>, Error> {
        self.usage_of(key, &[(key, limit, 0)]).await
    }

    /// [`usage`](Named::usage) for code that is not async.
    ///
    /// # Errors
    /// As for [`usage`](Named::usage).
    pub fn usage_blocking(&self, key: &Key) -> Result<Vec<LimitUsage>, Error> {
        block_on(self.usage(key))
    }

    /// [`usage_or`](Named::usage_or) for code that is not async.
    ///
    /// # Errors
    /// As for [`usage_or`](Named::usage_or).
    pub fn usage_or_blocking(&self, key: &Key, limit: &Limit) -> Result<Vec<LimitUsage>, Error> {
        block_on(self.usage_or(key, limit))
    }

    async fn usage_of(&self, key: &Key, items: &[(&Key, &Limit, u32)]) -> Result<Vec<LimitUsage>, Error> {
        let inside = self.inside();
        if items.is_empty() && !inside.rules.has_limits_for(self, key, self.customer_plan()) {
            return Err(self.without_limit());
        }
        let plan = inside.rules.plan(OwnPolicy::NONE, &std::iter::once((self.rule_use(key, items), *self)))?;
        inside.usage_planned(&plan).await
    }

    fn without_limit(&self) -> Error {
        let problem = format!(
            "the rule `{}` must have a limit in a set of rules, got none: call `usage_or` with the limit of its attribute or \
             its layer",
            self.rule_name()
        );
        Error::new(ErrorKind::Config, problem)
    }
}

impl Inside {
    /// Reads the use of the limits of a planned call, whatever its cost.
    async fn usage_planned(&self, plan: &Plan<'_>) -> Result<Vec<LimitUsage>, Error> {
        let planned = match &plan.requests {
            Planned::Single { request, .. } => return self.usage_of_windows(request, &plan.options).await,
            Planned::Off { .. } => return Ok(Vec::new()),
            Planned::Rules(planned) => planned,
        };
        if let Some((_, error)) = &planned.invalid {
            return Err(error.clone());
        }
        if planned.denying.is_some() {
            return Ok(Vec::new());
        }
        let of_shadow = planned.shadow.0.iter().flat_map(|trial| [&trial.observed, &trial.taking]);
        let all = [&planned.enforced].into_iter().chain(of_shadow);
        let windows: Vec<_> = all.flat_map(|rules| &rules.requests).copied().collect();
        let mut usage = self.usage_of_windows(&windows, &plan.options).await?;
        for slots in planned.slots.requests.iter().chain(&planned.shadow_slots.requests) {
            usage.push(LimitUsage::of_slots(slots.limit, self.slots_in_use(slots.key).await?));
        }
        Ok(usage)
    }

    async fn usage_of_windows(
        &self,
        requests: &[Request<'_>],
        options: &CallOptions,
    ) -> Result<Vec<LimitUsage>, Error> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        // A charge of nothing, which reads the counters.
        let requests: Vec<_> = requests.iter().map(|request| Request::new(request.key, request.limit, 0)).collect();
        let counted = match &self.backend {
            Backend::Memory(store) => CountedReply::from_charge(store.charge(&requests), 0),
            Backend::Guarded(guard) => guard.charge(&requests, options, &self.observers).await?,
        };
        Ok(LimitUsage::of_requests(&requests, &counted).collect())
    }
}
