//! The decision about an annotated call. All its rules together make one decision.

use std::slice;
use std::time::Duration;

use crate::block_on::block_on;
use crate::decision::DecisionContext;
use crate::limiter::{FastPath, Policies, RuleArguments, RuleDecision};
use crate::private::limiters::LimiterHandle;
use crate::private::{AnnotatedFunction, LimitOrNearest, StaticKey, limit};
use crate::request::{CacheLookup, CallOptions, Request};
use crate::{Denied, Error, Key, Limiter, Mode, OnError};

/// The requests of one rule of a call: a key, its limits and a cost.
#[derive(Debug)]
pub struct RuleRequest {
    key: KeyRef,
    limits: Limits,
    cost: u32,
}

/// The key of a rule.
#[derive(Debug)]
pub enum KeyRef {
    Owned(Key),
    Static(&'static StaticKey),
}

impl From<Key> for KeyRef {
    #[inline]
    fn from(key: Key) -> Self {
        Self::Owned(key)
    }
}

impl From<&'static StaticKey> for KeyRef {
    #[inline]
    fn from(key: &'static StaticKey) -> Self {
        Self::Static(key)
    }
}

#[derive(Debug)]
enum Limits {
    One(LimitOrNearest),
    Several(Vec<LimitOrNearest>),
    /// The limits are those of the settings by name. Without them the rule has none.
    Configured,
}

impl RuleRequest {
    /// Creates the request of a rule with one limit.
    #[inline]
    #[must_use]
    pub fn with_limit(key: impl Into<KeyRef>, limit: LimitOrNearest, cost: u32) -> Self {
        Self { key: key.into(), limits: Limits::One(limit), cost }
    }

    /// Creates the request of a rule with several limits.
    #[must_use]
    pub fn with_limits<const N: usize>(key: impl Into<KeyRef>, limits: [LimitOrNearest; N], cost: u32) -> Self {
        Self { key: key.into(), limits: Limits::Several(limits.into()), cost }
    }

    /// Creates the most common request: one permit of one limit whose numbers are literals.
    #[inline]
    #[must_use]
    pub fn one_permit(key: impl Into<KeyRef>, max: u32, window_millis: u64) -> Option<Self> {
        Some(Self::with_limit(key, Ok(limit(max, window_millis)), 1))
    }

    /// Creates the request of a rule that is known at compile time. It can be in a `static`, so a call neither builds
    /// nor moves it.
    #[must_use]
    pub const fn one_permit_static(key: &'static StaticKey, max: u32, window_millis: u64) -> Option<Self> {
        Some(Self { key: KeyRef::Static(key), limits: Limits::One(Ok(limit(max, window_millis))), cost: 1 })
    }

    /// Creates the request of a rule whose limits are in the settings by name alone.
    #[must_use]
    pub fn configured(key: impl Into<KeyRef>, cost: u32) -> Option<Self> {
        Some(Self { key: key.into(), limits: Limits::Configured, cost })
    }

    /// Creates the request of such a rule, of one permit and with a key without values, in a `static`.
    #[must_use]
    pub const fn configured_static(key: &'static StaticKey) -> Option<Self> {
        Some(Self { key: KeyRef::Static(key), limits: Limits::Configured, cost: 1 })
    }

    #[inline]
    fn key(&self) -> &Key {
        match &self.key {
            KeyRef::Owned(key) => key,
            KeyRef::Static(key) => key.key(),
        }
    }

    fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
            Limits::Configured => &[],
        }
    }
}

/// Takes the permits of an annotated call for all rules that apply. Waits for them up to `max_wait`.
///
/// A rule that does not apply is `None`. Returns the denial of a denied call, with the index of the rule that denied
/// it.
pub async fn denied(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<(usize, Denied)> {
    let call = AnnotatedCall { function, limiter: &limiter, rules, max_wait };
    let full_path = {
        let first = call.first_step();
        match call.decide_fast(&first) {
            FastPath::Decided(denied) => return denied.map(|denied| (0, denied)),
            FastPath::NeedsStore(cache_lookup) => Box::pin(call.decide(first, cache_lookup, Handler::None)),
        }
    };
    match full_path.await {
        Ok(decision) => decision.err(),
        // Without a handler the policy is not `Raise`, so there is no error. The call must not run in any case.
        Err(_) => Some((0, DecisionContext { names: function.names, requests: &[] }.failed_closed())),
    }
}

/// Takes the permits of a call whose function handles the limiter's failures. `None` runs the body.
pub async fn decide(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    let call = AnnotatedCall { function, limiter: &limiter, rules, max_wait };
    let full_path = {
        let first = call.first_step();
        match call.decide_fast(&first) {
            FastPath::Decided(denied) => return denied.map(|denied| Ok((0, denied))),
            FastPath::NeedsStore(cache_lookup) => Box::pin(call.decide(first, cache_lookup, Handler::Own)),
        }
    };
    full_path.await.map(RuleDecision::err).transpose()
}

/// Blocking form of [`denied`].
pub fn denied_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<(usize, Denied)> {
    block_on(denied(function, limiter, rules, max_wait))
}

/// Blocking form of [`decide`].
pub fn decide_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> Option<Result<(usize, Denied), Error>> {
    block_on(decide(function, limiter, rules, max_wait))
}

/// A call of an annotated function, with the requests of its rules.
#[derive(Clone, Copy)]
pub(super) struct AnnotatedCall<'a> {
    pub(super) function: &'static AnnotatedFunction,
    pub(super) limiter: &'a Limiter,
    pub(super) rules: &'a [Option<RuleRequest>],
    pub(super) max_wait: Duration,
}

/// The handler of an error that the policy `Raise` returns.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    Own,
    None,
}

/// The way to decide a call, after a look at its rules' settings.
pub(super) enum FirstStep<'a> {
    /// One request decides: the call has one rule, with one limit, and the rule is enforced.
    Single(Request<'a>, Policies),
    /// The only rule is off.
    Off,
    /// The full path collects the requests of all rules.
    Several,
}

impl<'a> AnnotatedCall<'a> {
    /// Looks at the settings of a call with one rule and one limit, as most calls are.
    #[inline]
    pub(super) fn first_step(&self) -> FirstStep<'a> {
        let ([Some(rule)], [_]) = (self.rules, self.function.names) else { return FirstStep::Several };
        if self.limiter.rule_table().has_settings() {
            return self.first_step_by_settings(rule);
        }
        let Limits::One(Ok(limit)) = &rule.limits else { return FirstStep::Several };
        FirstStep::Single(Request { key: rule.key(), limit: *limit, cost: rule.cost }, Policies::default())
    }

    #[inline(never)]
    fn first_step_by_settings(&self, rule: &'a RuleRequest) -> FirstStep<'a> {
        let key = rule.key();
        let step = self.limiter.rule_table().with_rule(self.function.rule(0), |resolved| {
            let settings = resolved.settings_for(key);
            match (settings.mode(), &rule.limits) {
                (Mode::Off, _) => FirstStep::Off,
                (Mode::Enforce, Limits::One(Ok(own))) => match settings.single_limit(*own) {
                    Some(limit) => {
                        let mut policies = Policies::default();
                        policies.add(&settings);
                        FirstStep::Single(Request { key, limit, cost: rule.cost }, policies)
                    }
                    None => FirstStep::Several,
                },
                _ => FirstStep::Several,
            }
        });
        // The full path fails again, and applies the failure policy.
        step.unwrap_or(FirstStep::Several)
    }

    /// Decides on the fast path of most calls: one request, no wait, and no request to a shared store.
    #[inline]
    fn decide_fast(&self, first: &FirstStep<'_>) -> FastPath {
        match (first, self.function.names) {
            (FirstStep::Single(request, _), [name]) if self.max_wait.is_zero() => {
                self.limiter.decide_fast(name, request)
            }
            (FirstStep::Off, _) => FastPath::Decided(None),
            _ => FastPath::NeedsStore(CacheLookup::Needed),
        }
    }

    /// Decides about all rules that apply. This full path is boxed, so that an annotated function's future does not
    /// contain it.
    pub(super) async fn decide(
        self,
        first: FirstStep<'_>,
        cache_lookup: CacheLookup,
        handler: Handler,
    ) -> Result<RuleDecision, Error> {
        let FirstStep::Single(request, policies) = first else { return self.decide_all(handler).await };
        let context = DecisionContext { names: self.function.names, requests: &[request] };
        let options = CallOptions {
            on_error: self.policy(policies, handler),
            deadline: policies.deadline,
            cache_lookup,
            ..self.limiter.default_options()
        };
        let decision = if self.max_wait.is_zero() {
            self.limiter.decide(context, options).await?
        } else {
            self.limiter.decide_waiting(context, options, self.max_wait).await?
        };
        Ok(decision.into_result().map_err(|denied| (0, denied)))
    }

    /// Collects the requests of all rules that apply, and decides about them.
    async fn decide_all(self, handler: Handler) -> Result<RuleDecision, Error> {
        let call = self.limiter.collect(|call| {
            let rules = self.function.names.iter().copied().zip(self.rules).enumerate();
            rules.filter_map(|(rule_index, (name, rule))| Some((rule_index, name, rule.as_ref()?))).try_for_each(
                |(rule_index, name, rule)| {
                    let limits = rule.limits().iter().map(|limit| (limit.clone(), rule.cost));
                    let arguments = RuleArguments { rule_index, name, key: rule.key(), limits, cost: rule.cost };
                    self.limiter.add_rule(call, &arguments, self.function.rule(rule_index))
                },
            )
        });
        let call = match call {
            Ok(call) => call,
            Err(error) => {
                let context = DecisionContext { names: self.function.names, requests: &[] };
                let denied =
                    self.limiter.fail_without_request(context, error, self.policy(Policies::default(), handler))?;
                return Ok(Err((0, denied)));
            }
        };
        let on_error = self.policy(call.policies, handler);
        self.limiter.decide_rules(call, on_error, self.max_wait).await
    }

    /// Returns the policy of the settings of the rules, else the function's own, else the default of all rules, else
    /// the limiter's.
    fn policy(&self, policies: Policies, handler: Handler) -> OnError {
        match (policies.on_error, handler) {
            (Some(OnError::Raise), Handler::None) => OnError::Closed,
            (Some(policy), _) => policy,
            (None, Handler::Own) => OnError::Raise,
            (None, Handler::None) => {
                let own = self.function.on_error.or(policies.default_on_error);
                match own.unwrap_or(self.limiter.default_options().on_error) {
                    // The function has no handler for an error.
                    OnError::Raise => OnError::Closed,
                    policy => policy,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FUNCTION: AnnotatedFunction = AnnotatedFunction::new(&["a"], &[]);

    /// An annotated function's future contains both.
    #[test]
    fn the_future_of_a_decision_and_its_rules_are_small() {
        let rules = [Some(RuleRequest::with_limit(Key::new("a"), Ok(limit(5, 10_000)), 1))];
        let future = denied(&FUNCTION, LimiterHandle::Other(Limiter::memory()), &rules, Duration::ZERO);
        let (future, rules) = (size_of_val(&future), size_of_val(&rules));
        assert!(future + rules <= 256, "{future} and {rules} bytes");
    }
}
