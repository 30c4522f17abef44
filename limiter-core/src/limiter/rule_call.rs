//! The decision about a call under rules, by the settings and modes of each.

use std::time::Duration;

use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::limit::LimitOrNearest;
use crate::limiter::wait::{Waiting, WatchedRules};
use crate::limiter::{Backend, Limiter};
use crate::request::sharing::{self, SameCounter};
use crate::request::{CallOptions, Request, Role, check_number_of};
use crate::rule::Settings;
use crate::{Allowed, Decision, Denied, Error, ErrorKind, Key, Limit, Mode, OnError, Source};

mod shadow;

use shadow::Shadow;

/// A call with the requests of its rules.
///
/// The rules that are enforced decide first, as one decision. If it allows the call, those in shadow mode decide. A rule
/// that is off adds nothing.
#[derive(Default)]
pub(crate) struct RuleCall<'a> {
    /// The state of the rules that it was read in.
    generation: u64,
    enforced: RuleRequests<'a>,
    shadow: Shadow<'a>,
    /// The first rule that denies every call.
    denying: Option<RuleRequests<'a>>,
    /// The first enforced rule with an invalid limit.
    invalid: Option<(usize, Error)>,
    /// The first rule, which describes a call without any request.
    first: Option<(&'static str, Limit)>,
    /// The enforced rules that have no limit.
    unlimited: Vec<UnlimitedRule>,
    pub(crate) policies: Policies,
}

/// A rule that has no limit.
#[derive(PartialEq)]
struct UnlimitedRule {
    rule_index: usize,
    name: &'static str,
    /// The policy of its own settings.
    on_error: Option<OnError>,
    /// The limit may be in shared rules, which the limiter has not read yet.
    is_shared_unread: bool,
}

impl UnlimitedRule {
    /// The policy for the failure to read this rule's limit, in a call with this one. A policy of the rule's own settings
    /// is not replaced by that of another rule of the call.
    fn policy(&self, on_error: OnError) -> OnError {
        match self.on_error {
            // Only the policy of the call shows whether the function has a handler.
            Some(OnError::Raise) if on_error != OnError::Raise => OnError::Closed,
            own => own.unwrap_or(on_error),
        }
    }
}

/// The policies that the settings of a call's rules have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Policies {
    /// The policy of the first rule that has one.
    pub(crate) on_error: Option<OnError>,
    /// The policy of rules that set none, in any layer or attribute.
    pub(crate) default_on_error: Option<OnError>,
    /// The shortest.
    pub(crate) deadline: Option<Duration>,
}

impl Policies {
    /// The policies of a call with one rule.
    #[inline]
    pub(crate) fn new(settings: &Settings) -> Self {
        let Settings { on_error, default_on_error, deadline, .. } = *settings;
        Self { on_error, default_on_error, deadline }
    }

    /// Adds the policies of the next rule.
    #[inline]
    pub(crate) fn add(&mut self, settings: &Settings) {
        *self = self.then(Self::new(settings));
    }

    /// Returns them with those of the next rules.
    #[inline]
    fn then(self, next: Self) -> Self {
        Self {
            on_error: self.on_error.or(next.on_error),
            default_on_error: self.default_on_error.or(next.default_on_error),
            deadline: self.deadline.into_iter().chain(next.deadline).min(),
        }
    }
}

/// Requests of one decision, with the rule of each.
#[derive(Default, PartialEq)]
struct RuleRequests<'a> {
    requests: Vec<Request<'a>>,
    names: Vec<&'static str>,
    rule_indices: Vec<usize>,
    policies: Policies,
    /// The setting of the last rule that has a request here. A decision about several requests takes no lease, so it is
    /// of use for one alone.
    leases: Option<bool>,
}

impl RuleRequests<'_> {
    fn context(&self) -> DecisionContext<'_> {
        DecisionContext::new(&self.names, &self.requests)
    }

    fn rule_of(&self, denied: &Denied) -> usize {
        self.rule_indices.get(denied.request_index()).copied().unwrap_or(0)
    }
}

/// A rule of a call: its key, and the limits of its attribute or of a direct call, each with its cost.
#[derive(Clone, Copy)]
pub(crate) struct RuleArguments<'a, L> {
    pub(crate) rule_index: usize,
    pub(crate) name: &'static str,
    pub(crate) key: &'a Key,
    pub(crate) limits: L,
    /// The meaning of `limits`: those of a rule or items of a direct call.
    pub(crate) limits_of: LimitsOf,
    /// The cost of a configured limit.
    pub(crate) cost: u32,
    /// The attribute's setting of leases.
    pub(crate) leases: Option<bool>,
}

/// The meaning of the limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitsOf {
    /// They are limits of a rule: on one counter the call counts once.
    Rule,
    /// They are items of a direct call: on one counter their costs add up.
    DirectCall,
}

impl<'a> RuleArguments<'a, ()> {
    /// The rule of a direct call, with its limits and the cost of each. A configured limit has the largest of the costs.
    pub(crate) fn direct<'l>(
        rule_index: usize,
        name: &'static str,
        key: &'a Key,
        limits: impl Iterator<Item = (&'l Limit, u32)> + Clone,
    ) -> RuleArguments<'a, impl Iterator<Item = (LimitOrNearest, u32)> + Clone> {
        let cost = limits.clone().map(|(_, cost)| cost).max().unwrap_or(0);
        RuleArguments {
            rule_index,
            name,
            key,
            limits: limits.map(|(limit, cost)| (Ok(*limit), cost)),
            limits_of: LimitsOf::DirectCall,
            cost,
            leases: None,
        }
    }
}

impl<'a> RuleCall<'a> {
    /// A call without rules, which are added in this state of the rules.
    pub(crate) fn in_generation(generation: u64) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Adds a rule with its settings.
    ///
    /// # Errors
    /// The settings do not suit the limit. Enforced, the call then fails. In shadow mode the rule decides nothing.
    pub(crate) fn add<L: Iterator<Item = (LimitOrNearest, u32)> + Clone>(
        &mut self,
        rule: &RuleArguments<'a, L>,
        settings: &Settings,
    ) -> Result<(), Error> {
        let first_limit = || settings.limits().first().copied().or_else(|| rule.first_limit()).unwrap_or(Limit::WIDEST);
        self.first.get_or_insert_with(|| (rule.name, first_limit()));
        if settings.limits().is_empty()
            && rule.limits.clone().next().is_none()
            && matches!(settings.mode(), Mode::Enforce)
        {
            self.unlimited.push(UnlimitedRule {
                rule_index: rule.rule_index,
                name: rule.name,
                on_error: settings.on_error,
                is_shared_unread: settings.is_shared_unread,
            });
        }
        match settings.mode() {
            Mode::Off => {}
            Mode::Deny => {
                self.denying.get_or_insert_with(|| {
                    let mut denying = RuleRequests::default();
                    denying.push(rule, first_limit(), 1, 0);
                    denying
                });
            }
            Mode::Shadow => {
                let requests = self.shadow.requests_of(rule.rule_index);
                requests.policies.add(settings);
                return requests.add(rule, settings);
            }
            Mode::Enforce => {
                self.policies.add(settings);
                if let Err(error) = self.enforced.add(rule, settings) {
                    self.invalid.get_or_insert_with(|| (rule.rule_index, error.clone()));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl<L: Iterator<Item = (LimitOrNearest, u32)> + Clone> RuleArguments<'_, L> {
    fn first_limit(&self) -> Option<Limit> {
        self.limits.clone().next().map(|(limit, _)| limit.unwrap_or_else(|(_, nearest)| nearest))
    }
}

impl<'a> RuleCall<'a> {
    /// Checks the number of requests that decide about the call, before they do.
    ///
    /// # Errors
    /// There are too many. No policy and no handler makes that an admission.
    pub(crate) fn check_size(&self) -> Result<(), Error> {
        check_number_of(self.enforced.requests.len())
    }

    /// Lets the requests of its rules that use one counter take permits of it together. Does nothing for too many, of
    /// which no store decides.
    pub(crate) fn share_counters(&mut self, same_counter: SameCounter) {
        if self.check_size().is_err() {
            return;
        }
        self.shadow.share_counters(&self.enforced.requests, same_counter);
        sharing::remove_unshared_lanes(&mut self.enforced.requests);
    }
}

impl RuleCall<'_> {
    /// Returns whether it is decided as another reading of the same call, in whatever state of the rules.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { generation: _, enforced, shadow, denying, invalid, first: _, unlimited, policies } = self;
        (enforced, shadow, unlimited, policies) == (&other.enforced, &other.shadow, &other.unlimited, &other.policies)
            && (denying.is_none(), invalid.is_none()) == (other.denying.is_none(), other.invalid.is_none())
    }

    /// The decision about a call whose rules are off or have no limit.
    fn without_limit(&self) -> Allowed {
        let (name, limit) = self.first.unwrap_or((DIRECT_CALL, Limit::WIDEST));
        let is_unread = self.unlimited.iter().any(|rule| rule.is_shared_unread);
        Allowed::without_limit(name, limit, if is_unread { Source::Policy } else { Source::Mode })
    }
}

impl<'a> RuleRequests<'a> {
    fn push<L>(&mut self, rule: &RuleArguments<'a, L>, limit: Limit, cost: u32, limit_index: usize) {
        let role = Role::of_limit(rule.rule_index, limit_index);
        self.requests.push(Request { role, ..Request::new(rule.key, limit, cost) });
        self.names.push(rule.name);
        self.rule_indices.push(rule.rule_index);
    }

    /// Adds the requests of a rule: one for each of its limits.
    ///
    /// # Errors
    /// The first invalid limit. The requests then have the nearest valid limit in its place.
    fn add<L: Iterator<Item = (LimitOrNearest, u32)> + Clone>(
        &mut self,
        rule: &RuleArguments<'a, L>,
        settings: &Settings,
    ) -> Result<(), Error> {
        let mut invalid = None;
        let mut add = |limit: LimitOrNearest, cost, limit_index| {
            let limit = limit.unwrap_or_else(|(error, nearest)| {
                invalid.get_or_insert(error);
                nearest
            });
            self.push(rule, limit, cost, limit_index);
            self.leases = settings.leases.or_attribute(rule.leases);
        };
        let apply = |limit: Limit, own| settings.apply(limit, own).map_err(|error| (error, limit));
        match settings.limits() {
            [] => {
                for (index, (own, cost)) in rule.limits.clone().enumerate() {
                    let limit_index = if rule.limits_of == LimitsOf::Rule { index } else { 0 };
                    add(own.and_then(|own| apply(own, None)), cost, limit_index);
                }
            }
            limits => {
                let own = rule.limits.clone().find_map(|(own, _)| own.ok());
                limits.iter().enumerate().for_each(|(index, limit)| add(apply(*limit, own), rule.cost, index));
            }
        }
        invalid.map_or(Ok(()), Err)
    }
}

/// The decision about a call under rules, with the index of the rule that denied it.
pub(crate) type RuleDecision = Result<Allowed, (usize, Denied)>;

impl Limiter {
    /// Decides about a call under rules. If it may wait, it waits for the permits of the rules that are enforced, while
    /// `still_holds` returns true after changes of the rules. `None` if it returned false: the call is then read again.
    ///
    /// # Errors
    /// The failure of an enforced rule, if `on_error` is [`OnError::Raise`].
    pub(crate) async fn decide_rules(
        &self,
        call: &RuleCall<'_>,
        on_error: OnError,
        waiting: Option<&mut Waiting>,
        still_holds: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<Option<RuleDecision>, Error> {
        for rule in &call.unlimited {
            if let Some(denied) = self.deny_unread(rule, on_error)? {
                self.inner.observers.denied(DecisionContext::new(&[rule.name], &[]), &denied);
                return Ok(Some(Err((rule.rule_index, denied))));
            }
        }
        if let Some((rule_index, denied)) = self.deny_without_store(call, on_error)? {
            self.inner.observers.denied(DecisionContext::new(&[], &[]), &denied);
            return Ok(Some(Err((rule_index, denied))));
        }
        let max_wait = waiting.as_ref().map_or(Duration::ZERO, |waiting| waiting.max_wait());
        let enforced = &call.enforced.requests[..];
        let none = Shadow::default();
        let shadow = call.shadow.for_decision(enforced.len()).unwrap_or_else(|error| {
            self.inner.observers.failed(&error);
            &none
        });
        let with_observed = shadow.with_observed(enforced, max_wait);
        let context = DecisionContext::new(&call.enforced.names, with_observed.as_deref().unwrap_or(enforced));
        let leases = self.leases(call.enforced.leases);
        let options = CallOptions { on_error, deadline: call.policies.deadline, leases, ..self.default_options() };
        let decision = if context.requests.is_empty() {
            None
        } else if let Some(waiting) = waiting {
            let rules = WatchedRules { generation: call.generation, still_hold: still_holds };
            match self.decide_waiting(context, options, waiting, Some(&rules)).await? {
                None => return Ok(None),
                decision => decision,
            }
        } else {
            Some(self.decide(context, options).await?)
        };
        let allowed = match decision {
            Some(Decision::Denied(denied)) => return Ok(Some(Err((call.enforced.rule_of(&denied), denied)))),
            Some(Decision::Allowed(allowed)) => Some(allowed),
            None => None,
        };
        let allowed = if shadow.is_empty() {
            allowed
        } else {
            Box::pin(self.decide_shadowed(allowed, shadow, options, max_wait)).await
        };
        Ok(Some(Ok(allowed.unwrap_or_else(|| call.without_limit()))))
    }

    /// Returns the denial of a call under a rule without a limit, if the limit may be in settings that could not be read.
    /// Such a call must not be unlimited by accident. Otherwise it counts the call, unless its policy is to allow it.
    fn deny_unread(&self, rule: &UnlimitedRule, on_error: OnError) -> Result<Option<Denied>, Error> {
        let policy = rule.policy(on_error);
        match self.unread_settings(rule) {
            None => {
                self.rule_table().count_unlimited(rule.name);
                Ok(None)
            }
            // The other rules of the call decide.
            Some(error) if rule.is_shared_unread && policy == OnError::Open => {
                self.inner.observers.failed(&error);
                Ok(None)
            }
            Some(error) => {
                let context = DecisionContext { names: &[rule.name], requests: &[] };
                self.deny_after_failure(context, error, policy).map(Some)
            }
        }
    }

    /// Returns the error of the settings that may have a rule's limit and could not be read.
    fn unread_settings(&self, rule: &UnlimitedRule) -> Option<Error> {
        if rule.is_shared_unread {
            return Some(Error::new(
                ErrorKind::Unavailable,
                "the shared rules, which may have the limit, are not read yet",
            ));
        }
        match &self.inner.backend {
            Backend::Guarded(guard) => guard.permanent_failure().cloned(),
            Backend::Memory(_) => None,
        }
    }

    /// Returns the denial of a call that no store decides: a rule denies every call, or has an invalid limit.
    fn deny_without_store(&self, call: &RuleCall<'_>, on_error: OnError) -> Result<Option<(usize, Denied)>, Error> {
        if let Some(denying) = &call.denying {
            let mut denied = denying.context().denied_by_mode();
            self.expose_denied_key(&mut denied, &denying.requests);
            return Ok(Some((denying.rule_of(&denied), denied)));
        }
        let Some((rule_index, error)) = &call.invalid else { return Ok(None) };
        Ok(Some((*rule_index, self.deny_after_failure(call.enforced.context(), error.clone(), on_error)?)))
    }

    /// Decides about a call under one rule without taking permits, and without calling the observers of decisions.
    ///
    /// # Errors
    /// As for [`decide_rules`](Self::decide_rules), and for too many requests.
    pub(crate) async fn peek_rules(&self, call: RuleCall<'_>, on_error: OnError) -> Result<Decision, Error> {
        call.check_size()?;
        let options = CallOptions { on_error, deadline: call.policies.deadline, ..self.default_options() };
        for rule in call.unlimited.iter().filter(|rule| self.unread_settings(rule).is_some()) {
            if let Some(denied) = self.deny_unread(rule, on_error)? {
                return Ok(Decision::Denied(denied));
            }
        }
        if let Some((_, denied)) = self.deny_without_store(&call, on_error)? {
            return Ok(Decision::Denied(denied));
        }
        if !call.enforced.requests.is_empty() {
            return self.peek_once(call.enforced.context(), options).await;
        }
        let decision = match call.shadow.first() {
            Some(rule) => self.peek_once(rule.context(), options).await.ok().map(Decision::in_shadow),
            None => None,
        };
        Ok(Decision::Allowed(decision.map_or_else(|| call.without_limit(), Allowed::from_shadow_decision)))
    }
}
