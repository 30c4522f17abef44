//! The decision about an annotated call. All its rules together make one decision.

use std::iter;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::decision::DecisionContext;
use crate::limiter::{FastPath, LimitsOf, Policies, RuleArguments, RuleDecision};
use crate::private::rules::FirstStep;
use crate::private::{AnnotatedFunction, LimiterHandle, RuleRequest};
use crate::request::{CacheLookup, CallOptions};
use crate::rule::LeaseSettings;
use crate::run::block_on;
use crate::{Denied, Error, Limiter, OnError};

/// Takes the permits of an annotated call for all rules that apply. Waits for them up to `max_wait`.
///
/// A rule that does not apply is `None`. Returns the denial of a denied call, with the index of the rule that denied
/// it.
#[inline]
pub fn denied(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> impl Future<Output = Option<(usize, Denied)>> {
    CallFuture::new(AnnotatedCall { function, rules, max_wait }, limiter)
}

/// Takes the permits of a call whose function handles the limiter's failures. `None` runs the body.
#[inline]
pub fn decide(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
) -> impl Future<Output = Option<Result<(usize, Denied), Error>>> {
    CallFuture::new(AnnotatedCall { function, rules, max_wait }, limiter)
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
    pub(super) rules: &'a [Option<RuleRequest>],
    pub(super) max_wait: Duration,
}

/// The handler of an error that the policy `Raise` returns.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    Own,
    None,
}

impl<'a> AnnotatedCall<'a> {
    /// Looks at the settings of a call with one rule and one limit, as most calls are.
    #[inline]
    pub(super) fn first_step(&self, limiter: &Limiter) -> FirstStep<'a> {
        let ([Some(rule)], [_]) = (self.rules, self.function.names) else { return FirstStep::Several };
        if limiter.rule_table().has_settings() {
            return self.first_step_by_settings(limiter, rule);
        }
        match rule.own_limit() {
            Some(limit) => {
                FirstStep::Single { request: rule.request(rule.key(), *limit), leases: LeaseSettings::default() }
            }
            None => FirstStep::Several,
        }
    }

    #[inline(never)]
    fn first_step_by_settings(&self, limiter: &Limiter, rule: &'a RuleRequest) -> FirstStep<'a> {
        let key = rule.key();
        // Assigned in its place. Moving it out of the two closures takes as long as reading the settings.
        let mut step = FirstStep::Several;
        let read = limiter.rule_table().with_rule(&self.function.rule(0), |resolved| {
            step = rule.single_by_settings(key, resolved, &resolved.settings_for(key));
        });
        // After an error the full path fails again, and applies the failure policy.
        if read.is_ok() { step } else { FirstStep::Several }
    }

    /// Looks at the settings again, for the full path, which needs the policies too.
    fn first_step_with_policies(&self, limiter: &Limiter) -> (FirstStep<'a>, Policies) {
        let [Some(rule)] = self.rules else { return (FirstStep::Several, Policies::default()) };
        if !limiter.rule_table().has_settings() {
            let request = rule.own_limit().map(|limit| rule.request(rule.key(), *limit));
            let step = request.map(|request| FirstStep::Single { request, leases: LeaseSettings::default() });
            return (step.unwrap_or_default(), Policies::default());
        }
        let key = rule.key();
        let read = limiter.rule_table().with_rule(&self.function.rule(0), |resolved| {
            let settings = resolved.settings_for(key);
            (rule.single_by_settings(key, resolved, &settings), Policies::new(&settings))
        });
        read.unwrap_or_default()
    }

    /// Decides on the fast path of most calls: one request, no wait, and no request to a shared store.
    #[inline]
    pub(super) fn decide_fast(&self, limiter: &Limiter) -> FastPath {
        // Most rules have no settings. Their requests are built in their place, since moving one takes longer.
        if let ([Some(rule)], [name]) = (self.rules, self.function.names)
            && let Some(limit) = rule.own_limit()
            && self.max_wait.is_zero()
            && !limiter.rule_table().has_settings()
        {
            return limiter.decide_fast(name, &rule.request(rule.key(), *limit), self.function.leases);
        }
        self.decide_fast_by_settings(limiter)
    }

    #[inline(never)]
    fn decide_fast_by_settings(&self, limiter: &Limiter) -> FastPath {
        if let ([Some(rule)], [name]) = (self.rules, self.function.names)
            && self.max_wait.is_zero()
            && limiter.rule_table().has_settings()
        {
            let (mut simple, mut leases) = (None, None);
            // After an error the full path fails again, and applies the failure policy.
            let _ = limiter.rule_table().with_rule(&self.function.rule(0), |resolved| {
                simple = rule.simple_limit(resolved);
                leases = resolved.leases().or_attribute(self.function.leases);
            });
            if let Some(limit) = simple {
                return limiter.decide_fast(name, &rule.request(rule.key(), limit), leases);
            }
        }
        match (self.first_step(limiter), self.function.names) {
            (FirstStep::Single { request, leases }, [name]) if self.max_wait.is_zero() => {
                limiter.decide_fast(name, &request, leases.or_attribute(self.function.leases))
            }
            (FirstStep::Off, _) => FastPath::Allowed,
            _ => FastPath::NeedsStore(CacheLookup::Needed),
        }
    }

    /// Decides about all rules that apply, on the full path.
    pub(super) async fn decide(
        self,
        limiter: &Limiter,
        cache_lookup: CacheLookup,
        handler: Handler,
    ) -> Result<RuleDecision, Error> {
        if !self.max_wait.is_zero() {
            // It reads its rules again whenever they change.
            return self.decide_all(limiter, handler).await;
        }
        let (FirstStep::Single { request, leases }, policies) = self.first_step_with_policies(limiter) else {
            return self.decide_all(limiter, handler).await;
        };
        if let ([name], true) = (self.function.names, leases.is_demanded(self.function.leases)) {
            limiter.warn_if_unleased(name, iter::once(request.limit));
        }
        let context = DecisionContext { names: self.function.names, requests: &[request] };
        let options = CallOptions {
            on_error: self.policy(limiter, policies, handler),
            deadline: policies.deadline,
            cache_lookup,
            leases: limiter.leases(leases.or_attribute(self.function.leases)),
            ..limiter.default_options()
        };
        let decision = limiter.decide(context, options).await?;
        Ok(decision.into_result().map_err(|denied| (0, denied)))
    }

    /// Collects the requests of all rules that apply, and decides about them.
    async fn decide_all(self, limiter: &Limiter, handler: Handler) -> Result<RuleDecision, Error> {
        let read = || {
            limiter.collect(|call| {
                let rules = self.function.names.iter().copied().zip(self.rules).enumerate();
                rules.filter_map(|(rule_index, (name, rule))| Some((rule_index, name, rule.as_ref()?))).try_for_each(
                    |(rule_index, name, rule)| {
                        let limits = rule.limits().iter().map(|limit| (limit.clone(), rule.cost));
                        let (key, cost, leases) = (rule.key(), rule.cost, self.function.leases_of(rule_index));
                        let limits_of = LimitsOf::Rule;
                        let arguments = RuleArguments { rule_index, name, key, limits, limits_of, cost, leases };
                        limiter.add_rule(call, &arguments, &self.function.rule(rule_index))
                    },
                )
            })
        };
        let mut waiting = limiter.waiting(self.max_wait);
        loop {
            let call = match read() {
                Ok(call) => call,
                Err(error) => {
                    let context = DecisionContext::new(self.function.names, &[]);
                    let on_error = self.policy(limiter, Policies::default(), handler);
                    return Ok(Err((0, limiter.fail_without_request(context, error, on_error)?)));
                }
            };
            if let Err(error) = call.check_size() {
                // No handler and no policy admits such a call.
                let context = DecisionContext::new(self.function.names, &[]);
                return Ok(Err((0, limiter.fail_without_request(context, error, OnError::Closed)?)));
            }
            let on_error = self.policy(limiter, call.policies, handler);
            let still_holds = || read().is_ok_and(|now| now.is_same(&call));
            if let Some(decision) = limiter.decide_rules(&call, on_error, waiting.as_mut(), &still_holds).await? {
                return Ok(decision);
            }
        }
    }

    /// Returns the policy of the settings of the rules, else the function's own, else the default of all rules, else
    /// the limiter's.
    fn policy(&self, limiter: &Limiter, policies: Policies, handler: Handler) -> OnError {
        match (policies.on_error, handler) {
            (Some(OnError::Raise), Handler::None) => OnError::Closed,
            (Some(policy), _) => policy,
            (None, Handler::Own) => OnError::Raise,
            (None, Handler::None) => {
                let own = self.function.on_error.or(policies.default_on_error);
                match own.unwrap_or(limiter.default_options().on_error) {
                    // The function has no handler for an error.
                    OnError::Raise => OnError::Closed,
                    policy => policy,
                }
            }
        }
    }
}

/// The future of a decision about an annotated call. Most calls are decided at its first poll.
///
/// It is a type because an `async fn` moves its output several times, which takes as long as a good part of a decision.
pub(super) struct CallFuture<'a, T> {
    call: AnnotatedCall<'a>,
    /// `None` once the call has begun.
    limiter: Option<LimiterHandle>,
    full_path: Option<FullPath<'a>>,
    output: PhantomData<fn() -> T>,
}

/// The rest of a call that the fast path has not decided. It is boxed, so that an annotated function's future does not
/// contain it.
type FullPath<'a> = Pin<Box<dyn Future<Output = Result<RuleDecision, Error>> + Send + Sync + 'a>>;

/// The output of a [`CallFuture`].
pub(super) trait CallOutput {
    /// The handler of errors.
    const HANDLER: Handler;

    fn allowed() -> Self;
    fn denied(rule_index: usize, denied: Denied) -> Self;
    fn failed(call: &AnnotatedCall<'_>, error: Error) -> Self;
}

/// The output of a call without a handler.
impl CallOutput for Option<(usize, Denied)> {
    const HANDLER: Handler = Handler::None;

    #[inline]
    fn allowed() -> Self {
        None
    }

    #[inline]
    fn denied(rule_index: usize, denied: Denied) -> Self {
        Some((rule_index, denied))
    }

    /// Denies the call. Without a handler the policy is not `Raise`, so this is never reached; if it is, nothing runs.
    fn failed(call: &AnnotatedCall<'_>, _: Error) -> Self {
        Some((0, DecisionContext::new(call.function.names, &[]).failed_closed()))
    }
}

/// The output of a call whose function handles errors.
impl CallOutput for Option<Result<(usize, Denied), Error>> {
    const HANDLER: Handler = Handler::Own;

    #[inline]
    fn allowed() -> Self {
        None
    }

    #[inline]
    fn denied(rule_index: usize, denied: Denied) -> Self {
        Some(Ok((rule_index, denied)))
    }

    fn failed(_: &AnnotatedCall<'_>, error: Error) -> Self {
        Some(Err(error))
    }
}

impl<'a, T: CallOutput> CallFuture<'a, T> {
    #[inline]
    pub(super) fn new(call: AnnotatedCall<'a>, limiter: LimiterHandle) -> Self {
        Self { call, limiter: Some(limiter), full_path: None, output: PhantomData }
    }

    #[inline(never)]
    fn start_full_path(&mut self, limiter: LimiterHandle, cache_lookup: CacheLookup) {
        let call = self.call;
        let full_path = async move { call.decide(&limiter, cache_lookup, T::HANDLER).await };
        self.full_path = Some(Box::pin(full_path));
    }

    #[inline(never)]
    fn poll_full_path(&mut self, context: &mut Context<'_>) -> Poll<T> {
        // A later poll than the last one takes no permits again.
        let Some(full_path) = &mut self.full_path else { return Poll::Pending };
        full_path.as_mut().poll(context).map(|result| match result {
            Ok(Ok(_)) => T::allowed(),
            Ok(Err((rule_index, denied))) => T::denied(rule_index, denied),
            Err(error) => T::failed(&self.call, error),
        })
    }
}

impl<T: CallOutput> Future for CallFuture<'_, T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(limiter) = self.limiter.take() {
            match self.call.decide_fast(&limiter) {
                FastPath::Allowed => return Poll::Ready(T::allowed()),
                FastPath::Denied(denied) => return Poll::Ready(T::denied(0, denied)),
                FastPath::NeedsStore(cache_lookup) => self.start_full_path(limiter, cache_lookup),
            }
        }
        self.poll_full_path(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use crate::private::limit;

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
