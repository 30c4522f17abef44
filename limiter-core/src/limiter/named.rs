//! Direct calls under the name and the settings of a rule.

use std::iter;
use std::time::Duration;

use crate::block::BlockRef;
use crate::concurrency::HeldSlots;
use crate::decision::DIRECT_CALL;
use crate::limiter::planned::{RuleDecision, decision_of};
use crate::limiter::{Inside, Limiter};
use crate::request::Request;
use crate::request::options::MIN_DEADLINE;
use crate::rule::{CustomerPlan, KeyText, OwnPolicy, Plan, RuleRef, RuleUse, UNCACHED, intern};
use crate::run::block_on;
use crate::{Block, Decision, Error, Key, Limit, OnError};

/// Direct calls under a rule: [`Limiter::named`] returns it.
///
/// The limit that a method gets is the rule's default: configured limits replace it.
#[must_use = "a name decides nothing until one of its methods is called"]
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    limiter: &'a Limiter,
    rule: &'a str,
    position: u32,
    /// The name in decisions.
    name: &'static str,
    on_error: Option<OnError>,
    max_deadline: Option<Duration>,
    customer_plan: CustomerPlan,
}

impl RuleRef for Named<'_> {
    fn position(&self) -> u32 {
        self.position
    }

    fn name_and_key(&self) -> (&str, KeyText) {
        (self.rule, KeyText::Unknown)
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
        Named {
            limiter: self,
            rule,
            position,
            name,
            on_error: None,
            max_deadline: None,
            customer_plan: CustomerPlan::NONE,
        }
    }

    /// Takes permits of several rules at once, all of them or none. Each rule is a `(name, key, limit, cost)`; the limit
    /// is the rule's default.
    ///
    /// The decision's [`name`](Decision::name) is that of the rule that it describes. Otherwise it is as for
    /// [`check_all`](Limiter::check_all), with the settings of each rule, and without a [plan](Named::plan). If a rule comes twice with one key, configured
    /// limits apply once, at the largest of the costs.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_rules(&self, rules: &[(&str, &Key, &Limit, u32)]) -> Result<Decision, Error> {
        self.check_rules_with(OwnPolicy::NONE, rules).await
    }

    /// [`check_rules`](Self::check_rules) with a bound of the deadline, as
    /// [`deadline_at_most`](Named::deadline_at_most) sets it.
    ///
    /// # Errors
    /// As for [`check`](Limiter::check).
    ///
    /// # Cancel safety
    /// As for [`check`](Limiter::check).
    pub async fn check_rules_within(
        &self,
        rules: &[(&str, &Key, &Limit, u32)],
        most: Duration,
    ) -> Result<Decision, Error> {
        let own = OwnPolicy { max_deadline: Some(most.max(MIN_DEADLINE)), ..OwnPolicy::NONE };
        self.check_rules_with(own, rules).await
    }

    async fn check_rules_with(&self, own: OwnPolicy, rules: &[(&str, &Key, &Limit, u32)]) -> Result<Decision, Error> {
        let is_same = |one: usize, other: usize| (rules[one].0, rules[one].1) == (rules[other].0, rules[other].1);
        let is_first = |index: &usize| !(0..*index).any(|earlier| is_same(earlier, *index));
        let items_of = |first: usize| {
            let items = rules[first..].iter().filter(|(rule, ..)| *rule == rules[first].0);
            items.map(|&(_, key, limit, cost)| (key, limit, cost)).collect::<Vec<_>>()
        };
        let items: Vec<_> = (0..rules.len()).filter(is_first).map(|first| (first, items_of(first))).collect();
        let uses = items.iter().map(|(first, items)| {
            let &(rule, key, ..) = &rules[*first];
            let rule_index = rules.iter().position(|(other, ..)| *other == rule).unwrap_or(*first);
            let named = self.named(rule);
            (RuleUse::direct(rule_index, named.name, key, items), named)
        });
        let uses: Vec<_> = uses.collect();
        let inside = self.inside();
        let read = || inside.rules.plan(own, &uses.iter().copied());
        inside.decide_named(read, Duration::ZERO, None).await.map(decision_of)
    }
}

impl Inside {
    /// Decides about a direct call under rules, which `read` plans. It waits up to `max_wait`.
    pub(crate) fn decide_named<'k>(
        &self,
        read: impl Fn() -> Result<Plan<'k>, Error> + Send + Sync,
        max_wait: Duration,
        held: Option<&mut HeldSlots>,
    ) -> impl Future<Output = Result<RuleDecision, Error>> {
        // A call with too many requests has no decision, whatever its policy.
        self.plan_and_decide(read, Err, max_wait, None, held)
    }

    /// Takes the permits of a direct call under rules if they are free now. `None` if they are not: the call waits
    /// elsewhere, so the observers get no denial.
    pub(crate) async fn take_named<'k>(
        &self,
        read: impl Fn() -> Result<Plan<'k>, Error> + Send + Sync,
        held: &mut HeldSlots,
    ) -> Result<Option<RuleDecision>, Error> {
        self.attempt(&read, &Err, &mut self.begin_attempt(), Some(held)).await
    }
}

impl<'a> Named<'a> {
    /// The limiter's inside of this process.
    pub(super) fn inside(&self) -> &'a Inside {
        self.limiter.inside()
    }

    /// Sets the failure policy for a rule that has none in any set of rules.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// Bounds the deadline of the calls, for a caller whose own peer waits no longer. A shorter deadline of the rule or of
    /// the [limiter](crate::Builder::deadline) stays. Less than 1 ms counts as 1 ms.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::time::Duration;
    /// use rate_limited::{Key, Limiter};
    ///
    /// # let limiter = Limiter::memory();
    /// let of_peer = Duration::from_millis(17);
    /// let search = limiter.named("search").deadline_at_most(of_peer);
    /// assert!(search.check_blocking(&Key::new("search"), &"10/s".parse()?)?.is_allowed());
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn deadline_at_most(mut self, most: Duration) -> Self {
        self.max_deadline = Some(most.max(MIN_DEADLINE));
        self
    }

    /// Sets the plan of the calls' customer, such as `pro`, by which the rule may have [other limits](crate::Rule::plans).
    /// An empty text is none.
    ///
    /// The plan is no part of the key. So a customer who changes it keeps what was used.
    pub fn plan(mut self, name: &str) -> Self {
        self.customer_plan = CustomerPlan::of_call(name);
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

    /// Decides whether one permit is free, and takes none: [`Limiter::check_postpaid`] under the rule.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// Nothing is taken, whether the future is dropped or not.
    pub async fn check_postpaid(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        let (inside, items) = (self.limiter.inside(), [(key, limit, 0)]);
        let rule = || (self.rule_use(key, &items).with_postpaid(true), *self);
        let plan = || inside.rules.plan(self.own_policy(), &iter::once(rule()));
        inside.decide_named(plan, Duration::ZERO, None).await.map(decision_of)
    }

    /// Takes permits of several limits at once, waiting up to `max_wait` for them.
    pub(crate) async fn wait_all(&self, limits: &[(&Key, &Limit, u32)], max_wait: Duration) -> Result<Decision, Error> {
        let (inside, mut pending) = (self.limiter.inside(), None);
        // Most calls are decided here, without the states of a future.
        if let (&[(key, ..)], true) = (limits, max_wait.is_zero())
            && let Some(plan) = inside.rules.plan_one(self.own_policy(), &self.rule_use(key, limits), self)
        {
            match inside.try_decide(&plan) {
                Ok(decision) => return Ok(decision),
                Err(ticket) => pending = Some((plan, ticket)),
            }
        }
        let read = || self.plan_call(inside, limits);
        inside.plan_and_decide(read, Err, max_wait, pending, None).await.map(decision_of)
    }

    /// Takes one permit, waiting up to `max_wait` for it: [`Limiter::wait`] under the rule. Nothing waits for a rule in
    /// [shadow mode](crate::Mode::Shadow), nor for one with a [block](crate::Rule::block): its call is denied at once, and
    /// the log has a warning.
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
        let inside = self.limiter.inside();
        inside.peek_planned(&self.plan_call(inside, &[(key, limit, 1)])?).await
    }

    /// Resets the counters of `key` for the rule's limits: the configured ones, or else `limit`. It ends the key's
    /// [block](crate::Rule::block) by the rule. The counts of a [packed](crate::Rule::packed) rule are reset in the hashes that
    /// it has now, and not where they were before a change.
    ///
    /// # Errors
    /// As for [`Limiter::reset`].
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done may have reset some of the counters.
    pub async fn reset(&self, key: &Key, limit: &Limit) -> Result<(), Error> {
        let block = Some(BlockRef::of_rule(self.name, Block::ANY));
        for limit in self.limits_for(key, limit)? {
            self.inside().reset(&Request { block, ..Request::new(key, limit, 0) }).await?;
        }
        Ok(())
    }

    /// Returns the rule's limits for `key`: the configured ones, or else `limit`.
    ///
    /// # Errors
    /// The settings of the rule do not suit a limit.
    #[doc(hidden)]
    pub fn limits_for(&self, key: &Key, limit: &Limit) -> Result<Vec<Limit>, Error> {
        self.inside().rules.with_rule(self, |resolved| {
            let settings = resolved.settings_for(key, self.customer_plan, || true);
            match settings.limits() {
                [] => settings.apply(*limit, None).map(|limit| vec![limit]),
                limits => limits.iter().map(|configured| settings.apply(*configured, Some(*limit))).collect(),
            }
        })
    }

    /// The name in the sets of rules.
    pub(super) fn rule_name(&self) -> &str {
        self.rule
    }

    pub(super) fn customer_plan(&self) -> CustomerPlan {
        self.customer_plan
    }

    /// Plans a call under the rule: each distinct key is a use of it.
    pub(super) fn plan_call<'k>(&self, inside: &Inside, items: &[(&'k Key, &Limit, u32)]) -> Result<Plan<'k>, Error> {
        let is_first = |index: usize, key: &Key| !items[..index].iter().any(|(earlier, ..)| *earlier == key);
        let uses = items.iter().enumerate().filter(|(index, (key, ..))| is_first(*index, key));
        let uses = uses.map(|(_, (key, ..))| (self.rule_use(key, items), *self));
        inside.rules.plan(self.own_policy(), &uses)
    }

    /// The rule of a direct call about a key.
    pub(super) fn rule_use<'k, 'l>(&self, key: &'k Key, items: &'l [(&'k Key, &'l Limit, u32)]) -> RuleUse<'k, 'l> {
        RuleUse::direct(0, self.name, key, items).with_customer_plan(self.customer_plan)
    }

    fn own_policy(&self) -> OwnPolicy {
        OwnPolicy { on_error: self.on_error, max_deadline: self.max_deadline, ..OwnPolicy::NONE }
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

    /// [`check_postpaid`](Named::check_postpaid) for code that is not async.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    pub fn check_postpaid_blocking(&self, key: &Key, limit: &Limit) -> Result<Decision, Error> {
        block_on(self.check_postpaid(key, limit))
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
