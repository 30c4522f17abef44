//! Direct calls under the name and the settings of a rule.

use std::time::Duration;

use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::limiter::wait::Waiting;
use crate::limiter::{Limiter, LimitsOf, Policies, RuleArguments, RuleCall};
use crate::request::Request;
use crate::rule::{KeyText, RuleRef, ServiceRule, Settings, UNCACHED, intern};
use crate::run::block_on;
use crate::{Decision, Denied, Error, Key, Limit, OnError};

/// Direct calls under a rule: [`Limiter::named`] returns it.
///
/// The limit that a method gets is the rule's default: configured limits replace it.
#[must_use = "a name decides nothing until one of its methods is called"]
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    limiter: &'a Limiter,
    rule: NamedRule<'a>,
    /// The name in decisions.
    name: &'static str,
    on_error: Option<OnError>,
}

#[derive(Clone, Copy, Debug)]
enum NamedRule<'a> {
    Direct { name: &'a str, position: u32 },
    Service(ServiceRule<'a>),
}

impl RuleRef for NamedRule<'_> {
    fn position(&self) -> u32 {
        match self {
            Self::Direct { position, .. } => *position,
            Self::Service(rule) => rule.position(),
        }
    }

    fn name_and_key(&self) -> (&str, KeyText) {
        match self {
            Self::Direct { name, .. } => (name, KeyText::Unknown),
            Self::Service(rule) => rule.name_and_key(),
        }
    }
}

impl Limiter {
    /// Returns the methods of this limiter for calls under a rule: with its name in decisions and observers, and with
    /// its limits, mode, failure policy and deadline from [sets of rules](crate::RuleSet).
    ///
    /// Names are kept until the process ends, at most 10 000 of them. Decisions of further rules have the name `check`,
    /// with the settings of their rule. So a name should not contain values such as a user's id: those belong into the
    /// key.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter, Rule, RuleSet};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = Limiter::memory();
    /// limiter.set_rules(RuleSet::new().rule("upload", Rule::new().limit("1/h".parse()?)))?;
    /// let (user, default) = (Key::new("upload:").part(42), "100/h".parse()?);
    /// assert!(limiter.named("upload").check(&user, &default).await?.is_allowed());
    /// assert!(limiter.named("upload").check(&user, &default).await?.is_denied());
    /// # Ok(())
    /// # }
    /// ```
    pub fn named<'a>(&'a self, rule: &'a str) -> Named<'a> {
        let (name, position) = intern(rule).unwrap_or((DIRECT_CALL, UNCACHED));
        let rule = NamedRule::Direct { name: rule, position };
        Named { limiter: self, rule, name, on_error: None }
    }

    /// Returns the methods for calls under a rule of services. `name` is that in decisions.
    pub(crate) fn under_service_rule<'a>(&'a self, rule: ServiceRule<'a>, name: &'static str) -> Named<'a> {
        Named { limiter: self, rule: NamedRule::Service(rule), name, on_error: None }
    }

    /// Takes permits of several rules at once, all of them or none. Each rule is a `(name, key, limit, cost)`; the limit
    /// is the rule's default.
    ///
    /// The decision's [`name`](Decision::name) is that of the rule that it describes. Otherwise it is as for
    /// [`check_all`](Limiter::check_all), with the settings of each rule. If a rule comes twice with one key, configured
    /// limits apply once, at the largest of the costs.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_rules(&self, rules: &[(&str, &Key, &Limit, u32)]) -> Result<Decision, Error> {
        let read = || {
            self.collect(|call| {
                rules.iter().enumerate().try_for_each(|(index, &(rule, key, ..))| {
                    let is_same =
                        |&&(other, other_key, ..): &&(&str, &Key, &Limit, u32)| (other, other_key) == (rule, key);
                    if rules[..index].iter().any(|earlier| is_same(&earlier)) {
                        return Ok(());
                    }
                    let rule_index = rules.iter().position(|(other, ..)| *other == rule).unwrap_or(index);
                    let of_rule = rules.iter().filter(is_same).map(|&(.., limit, cost)| (limit, cost));
                    let Named { rule, name, .. } = self.named(rule);
                    self.add_rule(call, &RuleArguments::direct(rule_index, name, key, of_rule), &rule)
                })
            })
        };
        self.decide_direct(read, None, Duration::ZERO).await
    }

    /// Decides about a direct call under rules, which `read` reads. `own` is the policy of the call, for rules that set
    /// none.
    pub(super) async fn decide_direct<'k>(
        &self,
        read: impl Fn() -> Result<RuleCall<'k>, Error> + Send + Sync,
        own: Option<OnError>,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let mut waiting = self.waiting(max_wait);
        loop {
            if let Some(decision) = self.decide_read(&read, own, waiting.as_mut()).await? {
                return Ok(decision);
            }
        }
    }

    /// Reads a direct call and decides about it: see [`decide_rules`](Self::decide_rules).
    async fn decide_read<'k>(
        &self,
        read: &(impl Fn() -> Result<RuleCall<'k>, Error> + Send + Sync),
        own: Option<OnError>,
        waiting: Option<&mut Waiting>,
    ) -> Result<Option<Decision>, Error> {
        let call = match read() {
            Ok(call) => call,
            Err(error) => return self.unreadable(error, own).map(|denied| Some(Decision::Denied(denied))),
        };
        call.check_size()?;
        let on_error = self.direct_policy(call.policies, own);
        let still_holds = || read().is_ok_and(|now| now.is_same(&call));
        let decision = self.decide_rules(&call, on_error, waiting, &still_holds).await?;
        Ok(decision.map(|decision| decision.map_or_else(|(_, denied)| Decision::Denied(denied), Decision::Allowed)))
    }

    /// Decides about a direct call without a rule while `RATE_LIMITED_MODE` is set.
    #[cold]
    pub(super) async fn decide_switched(
        &self,
        requests: &[Request<'_>],
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        self.decide_direct(|| Ok(self.switched_call(requests)), None, max_wait).await
    }

    pub(super) fn switched_call<'k>(&self, requests: &[Request<'k>]) -> RuleCall<'k> {
        let mut settings = Settings::default();
        settings.switch_mode(self.rule_table().switch());
        let mut call = RuleCall::in_generation(self.rule_table().generation());
        for Request { key, limit, cost, .. } in requests {
            let limits = [(Ok(*limit), *cost)].into_iter();
            // Without limits or algorithms in the settings no limit is invalid.
            let (limits_of, name, cost) = (LimitsOf::DirectCall, DIRECT_CALL, *cost);
            let arguments = RuleArguments { rule_index: 0, name, key, limits, limits_of, cost, leases: None };
            let _ = call.add(&arguments, &settings);
        }
        call
    }

    /// Applies the failure policy to a call whose settings cannot be read in this process.
    #[cold]
    fn unreadable(&self, error: Error, own: Option<OnError>) -> Result<Denied, Error> {
        let context = DecisionContext::new(&[DIRECT_CALL], &[]);
        self.fail_without_request(context, error, self.direct_policy(Policies::default(), own))
    }

    fn direct_policy(&self, policies: Policies, own: Option<OnError>) -> OnError {
        policies.on_error.or(own).or(policies.default_on_error).unwrap_or(self.inner.on_error)
    }
}

impl<'a> Named<'a> {
    /// Sets the failure policy for a rule that has none in any set of rules.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// Takes one permit if there is one: [`Limiter::check`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub async fn check(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        self.check_n(key, limit, 1).await
    }

    /// Takes `cost` permits if there are as many: [`Limiter::check_n`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub async fn check_n(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        self.check_all(&[(key, limit, cost)]).await
    }

    /// Takes permits of several limits at once: [`Limiter::check_all`] under the rule.
    ///
    /// A configured limit applies once to each distinct key, with the largest of its costs.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub async fn check_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        self.wait_all(limits, Duration::ZERO).await
    }

    /// Takes permits of several limits at once, waiting up to `max_wait` for them.
    pub(crate) async fn wait_all(&self, limits: &[(&Key, &Limit, u32)], max_wait: Duration) -> Result<Decision, Error> {
        self.limiter.decide_direct(|| self.call(limits), self.on_error, max_wait).await
    }

    /// Takes permits of several limits at once if they are free now. `None` if they are not: the call waits elsewhere, so
    /// the observers get no denial.
    pub(crate) async fn take_all(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Option<Decision>, Error> {
        let mut attempt = self.limiter.begin_attempt();
        self.limiter.decide_read(&|| self.call(limits), self.on_error, Some(&mut attempt)).await
    }

    /// Takes one permit, waiting up to `max_wait` for it: [`Limiter::wait`] under the rule. Nothing waits for a rule in
    /// [shadow mode](crate::Mode::Shadow).
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::wait`].
    pub async fn wait(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        self.wait_n(key, limit, 1, max_wait).await
    }

    /// Takes `cost` permits, waiting up to `max_wait` for them: [`Limiter::wait_n`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::wait`].
    pub async fn wait_n(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Decision, Error> {
        self.wait_all(&[(key, limit, cost)], max_wait).await
    }

    /// Returns the decision that [`check`](Named::check) would make now, without taking a permit: [`Limiter::peek`]
    /// under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn peek(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        match self.call(&[(key, limit, 1)]) {
            Ok(call) => {
                let on_error = self.limiter.direct_policy(call.policies, self.on_error);
                self.limiter.peek_rules(call, on_error).await
            }
            Err(error) => self.limiter.unreadable(error, self.on_error).map(Decision::Denied),
        }
    }

    /// Resets the counters of `key` for the rule's limits: the configured ones, or else `limit`.
    ///
    /// # Errors
    /// As for [`Limiter::reset`].
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have reset some of the counters.
    pub async fn reset(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        let limits = self.limiter.rule_table().with_rule(&self.rule, |resolved| {
            let settings = resolved.settings_for(key);
            match settings.limits() {
                [] => settings.apply(*limit, None).map(|limit| vec![limit]),
                limits => limits.iter().map(|configured| settings.apply(*configured, Some(*limit))).collect(),
            }
        })??;
        for limit in limits {
            self.limiter.reset(key, &limit).await?;
        }
        Ok(())
    }

    /// Collects the requests of a call under the rule.
    fn call<'k>(&self, limits: &[(&'k Key, &Limit, u32)]) -> Result<RuleCall<'k>, Error> {
        self.limiter.collect(|call| {
            for (index, (key, ..)) in limits.iter().enumerate() {
                if limits[..index].iter().any(|(earlier, ..)| earlier == key) {
                    continue;
                }
                let of_key = limits.iter().filter(|(other, ..)| other == key);
                let of_key = of_key.map(|&(_, limit, cost)| (limit, cost));
                let direct = RuleArguments::direct(0, self.name, key, of_key);
                let limits_of = match self.rule {
                    NamedRule::Direct { .. } => direct.limits_of,
                    NamedRule::Service(_) => LimitsOf::Rule,
                };
                self.limiter.add_rule(call, &RuleArguments { limits_of, ..direct }, &self.rule)?;
            }
            Ok(())
        })
    }
}

/// Blocking methods, for code that is not async: see those of [`Limiter`](crate::Limiter#impl-Limiter-2).
impl Named<'_> {
    /// [`check`](Named::check) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn check_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check(key, limit))
    }

    /// [`check_n`](Named::check_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn check_n_blocking(&self, key: &Key, limit: &Limit, cost: u32) -> Result<Decision, Error> {
        block_on(self.check_n(key, limit, cost))
    }

    /// [`check_all`](Named::check_all) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn check_all_blocking(&self, limits: &[(&Key, &Limit, u32)]) -> Result<Decision, Error> {
        block_on(self.check_all(limits))
    }

    /// [`wait`](Named::wait) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn wait_blocking(&self, key: &Key, limit: &Limit, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait(key, limit, max_wait))
    }

    /// [`wait_n`](Named::wait_n) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn wait_n_blocking(&self, key: &Key, limit: &Limit, cost: u32, max_wait: Duration) -> Result<Decision, Error> {
        block_on(self.wait_n(key, limit, cost, max_wait))
    }

    /// [`peek`](Named::peek) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn peek_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.peek(key, limit))
    }

    /// [`reset`](Named::reset) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::reset`].
    pub fn reset_blocking(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        block_on(self.reset(key, limit))
    }
}
