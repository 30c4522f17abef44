//! The items that limiter-tower uses. They are not part of the public API and may change with any version.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, iter, slice};

use crate::block::BlockRef;
use crate::collected;
pub use crate::collected::CollectedQuotas;
pub use crate::concurrency::HeldSlots;
use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::http::Fields;
pub use crate::limiter::OpenCall;
use crate::limiter::{Inside, decision_of};
use crate::local::StoreTicket;
pub use crate::private::PlanOfCall;
use crate::request::{CallOptions, CallSettings, Request, Role};
use crate::rule::{OwnLimits, OwnPolicy, Plan, Planned, RegisteredRule, RuleUse, ServiceRule};
pub use crate::until_done::UntilDone;
use crate::{Allowed, Decision, Denied, Error, Key, Limit, Limiter, OnError, http};

/// The rule of a layer.
#[derive(Clone, Debug)]
pub struct TowerRule {
    rule: Arc<str>,
    /// `None` if there are too many rules. Decisions then have another name.
    registered: Option<RegisteredRule>,
}

/// A request that a layer limits.
#[derive(Clone, Copy, Debug)]
pub struct LimitedRequest<'a> {
    pub key: &'a Key,
    /// The index of the key's template.
    pub form: usize,
    pub cost: u32,
    /// One permit must be free, and none is taken, whatever the cost. `None` leaves it to the settings of the rule, and
    /// `Some(false)` is for a request that nothing charges afterwards.
    pub postpaid: Option<bool>,
    /// The failure policy of rules that set none.
    pub on_error: Option<OnError>,
    /// The decision has the state of each limit.
    pub wants_limits: bool,
    /// The plan of the customer.
    pub plan: PlanOfCall,
}

/// A request that was planned, for a shared store to decide. It has no key, which may move meanwhile.
#[derive(Debug)]
pub struct UndecidedRequest {
    generation: u64,
    options: CallOptions,
    name: &'static str,
    limit: Limit,
    cost: u32,
    role: Role,
    block: Option<BlockRef>,
    ticket: Option<StoreTicket>,
}

impl TowerRule {
    /// Registers the rule of a layer, with a template for each form of its keys.
    #[must_use]
    pub fn new(rule: &str, templates: &[String], limit: Option<Limit>) -> Self {
        Self { rule: rule.into(), registered: RegisteredRule::register(rule, templates, limit) }
    }

    /// Creates the rule of a layer as one above the most that can be registered. It is in no list of rules.
    #[cfg(all(test, not(limiter_loom)))]
    pub(crate) fn unregistered(rule: &str) -> Self {
        Self { rule: rule.into(), registered: None }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.rule
    }

    /// Resolves the settings for each form of the key, so that the log has what does not suit them before the first
    /// request.
    pub fn resolve_settings(&self, limiter: &Limiter) {
        let rules = &limiter.inside().rules;
        if !rules.has_settings() {
            return;
        }
        for form in 0..self.registered.map_or(0, |rule| rule.forms.len()) {
            rules.with_rule(&self.service_rule(form), |_| ());
        }
    }

    /// Plans a request under one limit, and decides about it if no reply of a shared store is needed.
    ///
    /// # Errors
    /// The request that was planned. `None` if [`decide`](Self::decide) must plan it: more than one request decides, or it needs
    /// slots.
    pub fn try_decide(
        &self,
        limiter: &Limiter,
        limit: &Limit,
        request: &LimitedRequest<'_>,
    ) -> Result<Decision, Option<UndecidedRequest>> {
        let (rule, reference) = self.rule_use(slice::from_ref(limit), request);
        let inside = limiter.inside();
        let plan = inside.rules.plan_one(request.own_policy(), &rule, &reference).ok_or(None)?;
        collected::without(|| inside.try_decide(&plan)).map_err(|ticket| UndecidedRequest::new(&plan, ticket))
    }

    /// Decides about a request under all of these limits, waiting up to `max_wait` for its permits and its slots. `held` gets the
    /// slots of one that is allowed.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::wait`].
    pub async fn decide(
        &self,
        limiter: &Limiter,
        limits: &[Limit],
        request: LimitedRequest<'_>,
        max_wait: Duration,
        held: &mut HeldSlots,
    ) -> Result<Decision, Error> {
        let inside = limiter.inside();
        let read = || self.plan(inside, limits, &request);
        collected::poll_without(pin!(inside.decide_named(read, max_wait, Some(held)))).await.map(decision_of)
    }

    /// Takes the permit of a request that waits for something else, if there is one now, and its slots. `None` if one is lacking:
    /// the observers get no denial, and `held` no slot.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub async fn take(
        &self,
        limiter: &Limiter,
        limit: &Limit,
        request: LimitedRequest<'_>,
        held: &mut HeldSlots,
    ) -> Result<Option<Decision>, Error> {
        let inside = limiter.inside();
        let read = || self.plan(inside, slice::from_ref(limit), &request);
        Ok(collected::poll_without(pin!(inside.take_named(read, held))).await?.map(decision_of))
    }

    /// Begins a postpaid request, before the decision about it: at most `max_open` of a key are open in this process, until
    /// what this returns is dropped. It returns nothing while no limit is enforced.
    ///
    /// It must be dropped after the charge. So each decision counts the charge of each request that is not open any more.
    ///
    /// # Errors
    /// The denial of a request that is one too many. The observers get it.
    pub fn begin(
        &self,
        limiter: &Limiter,
        limits: &[Limit],
        request: &LimitedRequest<'_>,
        max_open: u32,
    ) -> Result<Option<OpenCall>, Denied> {
        let inside = limiter.inside();
        match self.plan(inside, limits, request) {
            Ok(plan) => inside.begin_call(&plan, request.key, max_open),
            // The decision has this error.
            Err(_) => Ok(None),
        }
    }

    /// Denies a request in this process, because its peer has demanded a pause that lasts from [`now`] until its end, by
    /// the limiter's clock. The observers get the denial.
    #[must_use]
    pub fn deny_until(
        &self,
        limiter: &Limiter,
        limit: Limit,
        request: LimitedRequest<'_>,
        pause: Range<Duration>,
    ) -> Denied {
        let LimitedRequest { key, cost, .. } = request;
        let (names, requests) = ([self.decision_name()], [Request::new(key, limit, cost)]);
        limiter.inside().deny_until(DecisionContext::new(&names, &requests), pause)
    }

    /// Plans a request under these limits and the settings of the rule.
    fn plan<'a>(&self, inside: &Inside, limits: &[Limit], request: &LimitedRequest<'a>) -> Result<Plan<'a>, Error> {
        let mut plan = inside.rules.plan(request.own_policy(), &iter::once(self.rule_use(limits, request)))?;
        plan.options.wants_reports |= request.wants_limits;
        Ok(plan)
    }

    fn rule_use<'a, 'l>(
        &'l self,
        limits: &'l [Limit],
        request: &LimitedRequest<'a>,
    ) -> (RuleUse<'a, 'l>, ServiceRule<'l>) {
        let LimitedRequest { key, form, cost, postpaid, plan, .. } = *request;
        let (name, limits) = (self.decision_name(), OwnLimits::Layer(limits));
        let own = CallSettings { postpaid, ..CallSettings::NONE };
        (
            RuleUse { rule_index: 0, name, key, limits, cost, own, customer_plan: plan.customer_plan() },
            self.service_rule(form),
        )
    }

    fn service_rule(&self, form: usize) -> ServiceRule<'_> {
        ServiceRule { name: &self.rule, form: self.registered.and_then(|rule| rule.forms.get(form)) }
    }

    fn decision_name(&self) -> &'static str {
        self.registered.map_or(DIRECT_CALL, |rule| rule.name)
    }
}

impl LimitedRequest<'_> {
    fn own_policy(&self) -> OwnPolicy {
        OwnPolicy { on_error: self.on_error, ..OwnPolicy::NONE }
    }
}

impl UndecidedRequest {
    /// `None` for a plan without a request of its own, which is decided at once.
    fn new(plan: &Plan<'_>, ticket: Option<StoreTicket>) -> Option<Self> {
        let &Plan { generation, options, ref requests } = plan;
        // Each field of the request is named, so that none is left out.
        let Planned::Single { name: [name], request: [Request { key: _, limit, cost, role, block }], .. } = *requests
        else {
            return None;
        };
        Some(Self { generation, options, name, limit, cost, role, block, ticket })
    }

    /// Decides about the request, by the limiter that it was planned for.
    ///
    /// # Errors
    /// As for [`Limiter::check`].
    ///
    /// # Cancel safety
    /// As for [`Limiter::check`].
    pub async fn decide(self, limiter: &Limiter, key: &Key) -> Result<Decision, Error> {
        let Self { generation, options, name, limit, cost, role, block, ticket } = self;
        let request = [Request { key, limit, cost, role, block }];
        let requests = Planned::Single { rule_index: 0, name: [name], request };
        let plan = Plan { generation, options, requests };
        collected::poll_without(pin!(limiter.inside().decide(&plan, ticket))).await.map(decision_of)
    }
}

/// Returns the rules of a limiter and of the program with their limits, a line of JSON for each. It has no overrides.
#[must_use]
pub fn inventory(limiter: &Limiter) -> String {
    limiter.inside().rules.inventory().rules().flat_map(|rule| [rule.line, "\n".to_owned()]).collect()
}

/// Returns the rule of a permit. It lives until the process ends.
#[must_use]
pub fn rule_name(allowed: &Allowed) -> &'static str {
    allowed.static_name()
}

/// Returns the time by the limiter's clock, since the clock's origin.
#[must_use]
pub fn now(limiter: &Limiter) -> Duration {
    Duration::from_micros(limiter.inside().clock.now().micros())
}

/// Waits by the limiter's clock, on any runtime or none.
///
/// # Errors
/// The thread for waits cannot be started, or the process was forked meanwhile.
///
/// # Cancel safety
/// A dropped future leaves nothing behind.
pub async fn sleep(limiter: &Limiter, wait: Duration) -> Result<(), Error> {
    limiter.inside().clock.sleep(wait).await
}

/// Passes each header field of an answer to `write`, without allocations: see [`fields`](http::fields).
pub fn write_fields(decision: &Decision, fields: Fields, write: impl FnMut(&'static str, fmt::Arguments<'_>)) {
    http::write_fields(decision, fields, write);
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::run::block_on;
    use crate::{Builder, ErrorKind, Mode, Rule, RuleSet, Source};

    #[test]
    fn a_request_of_a_layer_is_planned_once() {
        let limiter = Builder::default().misconfigured(Error::new(ErrorKind::Unavailable, "no server"));
        let (layer, key, limit) = (TowerRule::new("layer", &[], None), Key::new("a"), Limit::WIDEST);
        let request = LimitedRequest {
            key: &key,
            form: 0,
            cost: 1,
            postpaid: None,
            on_error: Some(OnError::Raise),
            wants_limits: false,
            plan: PlanOfCall::NONE,
        };
        let undecided = layer.try_decide(&limiter, &limit, &request).expect_err("a shared store").expect("one request");
        limiter.set_rules(RuleSet::new().rule("layer", Rule::new().mode(Mode::Deny))).expect("valid");
        let error = block_on(undecided.decide(&limiter, &key)).expect_err("the policy and the mode of its plan");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(layer.try_decide(&limiter, &limit, &request).expect_err("no single request").is_none());
        let mut held = HeldSlots::new();
        let limits = [limit];
        let decide = layer.decide(&limiter, &limits, request, Duration::ZERO, &mut held);
        assert!(block_on(decide).expect("the mode").is_denied());
    }

    #[test]
    fn a_layer_above_the_most_registered_rules_has_its_settings() {
        let (layer, key) = (TowerRule::unregistered("layer"), Key::new("a"));
        let plan = PlanOfCall::NONE;
        let request =
            LimitedRequest { key: &key, form: 0, cost: 1, postpaid: None, on_error: None, wants_limits: false, plan };
        let limiter = Builder::default().build().expect("valid");
        let decide = || layer.try_decide(&limiter, &Limit::WIDEST, &request).expect("a store in memory");
        assert!(decide().is_allowed());
        limiter.set_rules(RuleSet::new().rule("layer", Rule::new().mode(Mode::Off))).expect("valid");
        assert_eq!((decide().name(), decide().source()), (DIRECT_CALL, Source::Mode));
    }
}
