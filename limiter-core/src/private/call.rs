//! The decision about an annotated call. All its rules together make one decision.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::decision::DecisionContext;
use crate::limiter::{FastDecision, Inside, RuleDecision};
use crate::local::StoreTicket;
use crate::private::{AnnotatedFunction, HeldSlots, LimiterHandle, RuleRequest};
use crate::request::Request;
use crate::rule::{OwnLimits, OwnPolicy, Plan, Planned, RuleUse};
use crate::run::block_on;
use crate::{Denied, Error, OnError};

/// Takes the permits of an annotated call for all rules that apply. Waits for them up to `max_wait`.
///
/// A rule that does not apply is `None`. Returns the denial of a denied call, with the index of the rule that denied
/// it. The slots of an allowed call are in `held`.
#[inline]
pub fn denied<'a>(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &'a [Option<RuleRequest>],
    max_wait: Duration,
    held: &'a mut HeldSlots,
) -> impl Future<Output = Option<(usize, Denied)>> + 'a {
    CallFuture::new(AnnotatedCall { function, rules, max_wait, settles: false }, limiter, held)
}

/// Takes the permits of a call whose function handles the limiter's failures. `None` runs the body.
#[inline]
pub fn decide<'a>(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &'a [Option<RuleRequest>],
    max_wait: Duration,
    held: &'a mut HeldSlots,
) -> impl Future<Output = Option<Result<(usize, Denied), Error>>> + 'a {
    CallFuture::new(AnnotatedCall { function, rules, max_wait, settles: false }, limiter, held)
}

/// Blocking form of [`denied`].
pub fn denied_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Option<(usize, Denied)> {
    block_on(denied(function, limiter, rules, max_wait, held))
}

/// Blocking form of [`decide`].
pub fn decide_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Option<Result<(usize, Denied), Error>> {
    block_on(decide(function, limiter, rules, max_wait, held))
}

/// A call of an annotated function, with the requests of its rules.
#[derive(Clone, Copy)]
pub(super) struct AnnotatedCall<'a> {
    pub(super) function: &'static AnnotatedFunction,
    pub(super) rules: &'a [Option<RuleRequest>],
    pub(super) max_wait: Duration,
    /// The function gets the permit, or settles the call.
    pub(super) settles: bool,
}

/// A call that a shared store must decide, or rules that do more than that. It has a ticket if it was looked up.
pub(super) type Pending<'a> = Option<(Plan<'a>, Option<StoreTicket>)>;

impl<'a> AnnotatedCall<'a> {
    /// Decides at once about a plain call that does not wait, as most calls are.
    ///
    /// # Errors
    /// The call is not one of these, or a shared store must decide and this has found no cached denial.
    #[inline]
    pub(super) fn try_plain<D: FastDecision>(&self, inside: &Inside) -> Result<D, Option<StoreTicket>> {
        if let ([Some(rule)], [name]) = (self.rules, self.function.names)
            && self.max_wait.is_zero()
            && let Some(limit) = inside.rules.plain_limit(rule.own_limit())
        {
            // The request is built in its place, since moving one takes longer.
            let options = || self.function.settings_of(0).resolve(inside.default_options());
            return inside.try_decide_one(name, &Request::new(rule.key(), *limit, rule.cost), options);
        }
        Err(None)
    }

    /// Decides at once about a call with one request that does not wait. `tried` is the error of
    /// [`try_plain`](Self::try_plain).
    ///
    /// # Errors
    /// [`decide`](Self::decide) must decide, by the plan if there is one. There is none for a call that may wait.
    #[inline(never)]
    #[expect(clippy::result_large_err, reason = "the plan goes on to the decision, where a box would be an allocation")]
    pub(super) fn try_planned<D: FastDecision>(
        &self,
        inside: &Inside,
        own: OwnPolicy,
        tried: Option<StoreTicket>,
    ) -> Result<D, Pending<'a>> {
        if !self.max_wait.is_zero() {
            return Err(None);
        }
        // After an error `decide` fails again, and applies the failure policy.
        let plan = self.plan(inside, own).map_err(|_| None)?;
        // Settings that came since then may have given the call another counter.
        let decided = match tried.filter(|_| self.is_plain(&plan)) {
            None if plan.is_of_first_rule() => inside.try_decide(&plan),
            ticket => Err(ticket),
        };
        decided.map_err(|ticket| Some((plan, ticket)))
    }

    /// Returns whether a plan has the one request that [`try_plain`](Self::try_plain) looks up.
    fn is_plain(&self, plan: &Plan<'_>) -> bool {
        match (&plan.requests, self.rules) {
            (Planned::Single { request: [request], .. }, [Some(rule)]) => rule.own_limit() == Some(&request.limit),
            _ => false,
        }
    }

    /// Plans a call under all rules that apply.
    fn plan(&self, inside: &Inside, own: OwnPolicy) -> Result<Plan<'a>, Error> {
        let Self { function, rules, settles, .. } = *self;
        let rules = function.names.iter().zip(rules).enumerate().filter_map(|(rule_index, (name, rule))| {
            let rule = rule.as_ref()?;
            let (limits, own) = (OwnLimits::Attribute(rule.limits()), function.settings_of(rule_index));
            let (key, cost, is_postpaid) = (rule.key(), rule.cost, rule.is_postpaid);
            let customer_plan = rule.customer_plan;
            let rule = RuleUse { rule_index, name, key, limits, cost, own, customer_plan };
            let settles = settles && function.settles(rule_index);
            let rule = if settles { rule.with_postpaid(is_postpaid) } else { rule.never_settled() };
            Some((rule, function.rule(rule_index)))
        });
        inside.rules.plan(own, &rules)
    }

    /// Decides about all rules that apply.
    ///
    /// # Errors
    /// The failure of the limiter, if the function handles it.
    pub(super) fn decide(
        self,
        inside: &Inside,
        own: OwnPolicy,
        pending: Pending<'a>,
        held: &mut HeldSlots,
    ) -> impl Future<Output = Result<RuleDecision, Error>> {
        let fail = move |error| self.deny_unplanned(inside, error);
        inside.plan_and_decide(move || self.plan(inside, own), fail, self.max_wait, pending, Some(held))
    }

    /// Denies a call with too many requests, which no handler and no policy admits.
    #[cold]
    fn deny_unplanned(&self, inside: &Inside, error: Error) -> Result<RuleDecision, Error> {
        let context = DecisionContext::new(self.function.names, &[]);
        Ok(Err((0, inside.fail_without_request(context, error, OnError::Closed)?)))
    }
}

impl AnnotatedFunction {
    /// The function's part of the failure policy. Its handler gets every error that no rule has a policy for.
    pub(super) fn own_policy(&self, has_handler: bool) -> OwnPolicy {
        let on_error = if has_handler { Some(OnError::Raise) } else { self.on_error };
        OwnPolicy { on_error, returns_errors: has_handler, max_deadline: None }
    }
}

/// The future of a decision about an annotated call. Most calls are decided at its first poll.
///
/// It is a type because an `async fn` moves its output several times, which takes as long as a good part of a decision.
pub(super) struct CallFuture<'a, T> {
    call: AnnotatedCall<'a>,
    /// `None` once the call has begun.
    limiter: Option<LimiterHandle>,
    /// `None` once the full path has it.
    held: Option<&'a mut HeldSlots>,
    full_path: Option<FullPath<'a>>,
    output: PhantomData<fn() -> T>,
}

/// The rest of a call that the fast path has not decided. It is boxed, so that an annotated function's future does not
/// contain it.
type FullPath<'a> = Pin<Box<dyn Future<Output = Result<RuleDecision, Error>> + Send + Sync + 'a>>;

/// The output of a [`CallFuture`].
pub(super) trait CallOutput {
    /// The function handles errors.
    const HAS_HANDLER: bool;

    fn allowed() -> Self;
    fn denied(rule_index: usize, denied: Denied) -> Self;
    fn failed(call: &AnnotatedCall<'_>, error: Error) -> Self;
}

/// The output of a call without a handler.
impl CallOutput for Option<(usize, Denied)> {
    const HAS_HANDLER: bool = false;

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
    const HAS_HANDLER: bool = true;

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
    pub(super) fn new(call: AnnotatedCall<'a>, limiter: LimiterHandle, held: &'a mut HeldSlots) -> Self {
        Self { call, limiter: Some(limiter), held: Some(held), full_path: None, output: PhantomData }
    }

    /// Begins a call that is not decided yet.
    #[inline(never)]
    fn poll_planned(
        &mut self,
        limiter: LimiterHandle,
        tried: Option<StoreTicket>,
        context: &mut Context<'_>,
    ) -> Poll<T> {
        let (call, own) = (self.call, self.call.function.own_policy(T::HAS_HANDLER));
        match call.try_planned(limiter.inside(), own, tried) {
            Ok(None) => Poll::Ready(T::allowed()),
            Ok(Some(denied)) => Poll::Ready(T::denied(0, denied)),
            Err(pending) => {
                // It is there until the only poll that gets here.
                let Some(held) = self.held.take() else { return Poll::Pending };
                self.full_path = Some(Box::pin(async move { call.decide(limiter.inside(), own, pending, held).await }));
                self.poll_full_path(context)
            }
        }
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
            return match self.call.try_plain(limiter.inside()) {
                Ok(None) => Poll::Ready(T::allowed()),
                Ok(Some(denied)) => Poll::Ready(T::denied(0, denied)),
                Err(tried) => self.poll_planned(limiter, tried, context),
            };
        }
        self.poll_full_path(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::counter_hash::CounterHash;
    use crate::private::limit;
    use crate::{Builder, Decision, ErrorKind, Key, Limiter, Rule, RuleSet};

    static FUNCTION: AnnotatedFunction = AnnotatedFunction::new(&["a"], &[]);

    /// An annotated function's future contains both.
    #[test]
    fn the_future_of_a_decision_and_its_rules_are_small() {
        let rules = [Some(RuleRequest::with_limit(Key::new("a"), Ok(limit(5, 10_000)), 1))];
        let mut held = HeldSlots::new();
        let future = denied(&FUNCTION, LimiterHandle::Other(Limiter::memory()), &rules, Duration::ZERO, &mut held);
        let (future, rules) = (size_of_val(&future), size_of_val(&rules));
        assert!(future + rules <= 256, "{future} and {rules} bytes");
    }

    /// The rules change between the look-up and the plan.
    #[test]
    fn a_ticket_of_another_counter_is_not_used() {
        let limiter = Builder::default().misconfigured(Error::new(ErrorKind::Unavailable, "no server"));
        let (key, own, other) = (Key::new("a"), limit(5, 10_000), limit(5, 20_000));
        let rules = [Some(RuleRequest::with_limit(key.clone(), Ok(own), 1))];
        let call = AnnotatedCall { function: &FUNCTION, rules: &rules, max_wait: Duration::ZERO, settles: false };
        let tickets = [(); 2].map(|()| call.try_plain::<Decision>(limiter.inside()).expect_err("no server"));
        let mut limits = [own, other].into_iter();
        for ticket in tickets {
            assert!(ticket.is_some(), "it was looked up");
            let pending =
                call.try_planned::<Decision>(limiter.inside(), OwnPolicy::NONE, ticket).expect_err("no server");
            let counter = pending.and_then(|(_, ticket)| ticket).map(StoreTicket::into_counter);
            let planned = limits.next().expect("a limit for each");
            assert_eq!(counter, Some(CounterHash::of(&Request::new(&key, planned, 1))));
            limiter.set_rules(RuleSet::new().rule("a", Rule::new().limit(other))).expect("valid");
        }
    }
}
