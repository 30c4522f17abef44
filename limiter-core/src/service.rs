//! The items that limiter-tower uses. They are not part of the public API and may change with any version.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, iter, slice};

use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::http::Fields;
use crate::request::Request;
use crate::rule::{OwnLimits, OwnPolicy, Plan, RegisteredRule, RuleUse, ServiceRule};
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
}

impl TowerRule {
    /// Registers the rule of a layer, with a template for each form of its keys.
    #[must_use]
    pub fn new(rule: &str, templates: &[String], limit: Option<Limit>) -> Self {
        Self { rule: rule.into(), registered: RegisteredRule::register(rule, templates, limit) }
    }

    /// Creates the rule of a layer as one above the most that can be registered. It is in no list of rules.
    #[cfg(all(test, feature = "leases", not(limiter_loom)))]
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
        let rules = limiter.rule_table();
        if !rules.has_settings() {
            return;
        }
        for form in 0..self.registered.map_or(0, |rule| rule.forms.len()) {
            // A process that cannot read the settings reports it at its calls.
            let _ = rules.with_rule(&self.service_rule(form), |_| ());
        }
    }

    /// Decides about a request at once. `None` if [`decide`](Self::decide) must: a shared store is needed, or the rule is
    /// not enforced with one valid limit.
    #[must_use]
    pub fn decide_now(&self, limiter: &Limiter, limit: &Limit, request: &LimitedRequest<'_>) -> Option<Decision> {
        let plan = self.plan(limiter, slice::from_ref(limit), *request, OwnPolicy::NONE).ok()?;
        limiter.try_decide(&plan).ok()
    }

    /// Decides about a request under all of these limits, waiting up to `max_wait` for its permits. `on_error` is the
    /// policy of rules that set none.
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
        on_error: Option<OnError>,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let own = OwnPolicy { on_error, ..OwnPolicy::NONE };
        limiter.decide_read(&|| self.plan(limiter, limits, request, own), own, max_wait).await
    }

    /// Takes the permit of a request that waits for something else, if there is one now. `None` if there is none: the
    /// observers get no denial.
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
        on_error: Option<OnError>,
    ) -> Result<Option<Decision>, Error> {
        let own = OwnPolicy { on_error, ..OwnPolicy::NONE };
        limiter.take_read(&|| self.plan(limiter, slice::from_ref(limit), request, own), own).await
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
        limiter.deny_until(DecisionContext::new(&names, &requests), pause)
    }

    /// Plans a request under these limits and the settings of the rule.
    fn plan<'a>(
        &self,
        limiter: &Limiter,
        limits: &[Limit],
        request: LimitedRequest<'a>,
        own: OwnPolicy,
    ) -> Result<Plan<'a>, Error> {
        let LimitedRequest { key, form, cost } = request;
        let (name, limits) = (self.decision_name(), OwnLimits::Layer(limits));
        let rule = RuleUse { rule_index: 0, name, key, limits, cost, leases: None };
        limiter.rule_table().plan(own, &iter::once((rule, self.service_rule(form))))
    }

    fn service_rule(&self, form: usize) -> ServiceRule<'_> {
        ServiceRule { name: &self.rule, form: self.registered.and_then(|rule| rule.forms.get(form)) }
    }

    fn decision_name(&self) -> &'static str {
        self.registered.map_or(DIRECT_CALL, |rule| rule.name)
    }
}

/// Returns the rule of a permit. It lives until the process ends.
#[must_use]
pub fn rule_name(allowed: &Allowed) -> &'static str {
    allowed.static_name()
}

/// Returns the time by the limiter's clock, since the clock's origin.
#[must_use]
pub fn now(limiter: &Limiter) -> Duration {
    Duration::from_micros(limiter.clock().now().micros())
}

/// Waits by the limiter's clock, on any runtime or none.
///
/// # Errors
/// The thread for waits cannot be started, or the process was forked meanwhile.
///
/// # Cancel safety
/// A dropped future leaves nothing behind.
pub async fn sleep(limiter: &Limiter, wait: Duration) -> Result<(), Error> {
    limiter.clock().sleep(wait).await
}

/// Passes each header field of an answer to `write`, without allocations: see [`fields`](http::fields).
pub fn write_fields(decision: &Decision, fields: Fields, write: impl FnMut(&'static str, fmt::Arguments<'_>)) {
    http::write_fields(decision, fields, write);
}
