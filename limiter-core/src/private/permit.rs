//! The decision about an annotated call whose body gets its permit: `permit = allowed`.

use std::time::Duration;

use crate::decision::DecisionContext;
use crate::limiter::RuleDecision;
use crate::private::call::AnnotatedCall;
use crate::private::{AnnotatedFunction, HeldSlots, LimiterHandle, RuleRequest};
use crate::run::block_on;
use crate::{Decision, Denied, Error, Limiter, Permit};

/// Takes the permits of an annotated call as [`denied`](crate::private::denied) does, and returns the permit of an
/// allowed call.
///
/// If no rule applies, or the failure policy allows the call, the permit has nothing to refund.
///
/// # Errors
/// The denial of a denied call, with the index of the rule that denied it.
pub async fn allowed(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Result<Permit, (usize, Denied)> {
    match decide_with_permit(function, &limiter, rules, max_wait, false, held).await {
        Ok(decided) => decided.map(|allowed| Permit::new(allowed, limiter)),
        // Without a handler the policy is not `Raise`, so there is no error. The call must not run in any case.
        Err(_) => Err((0, DecisionContext::new(function.names, &[]).failed_closed())),
    }
}

/// Takes the permits of a call whose function handles the limiter's failures.
///
/// # Errors
/// The denial of a denied call, as [`allowed`] returns it, or the failure of the limiter.
pub async fn try_allowed(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Result<Permit, Result<(usize, Denied), Error>> {
    match decide_with_permit(function, &limiter, rules, max_wait, true, held).await {
        Ok(decided) => decided.map(|allowed| Permit::new(allowed, limiter)).map_err(Ok),
        Err(error) => Err(Err(error)),
    }
}

/// Blocking form of [`allowed`].
///
/// # Errors
/// As for [`allowed`].
pub fn allowed_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Result<Permit, (usize, Denied)> {
    block_on(allowed(function, limiter, rules, max_wait, held))
}

/// Blocking form of [`try_allowed`].
///
/// # Errors
/// As for [`try_allowed`].
pub fn try_allowed_blocking(
    function: &'static AnnotatedFunction,
    limiter: LimiterHandle,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    held: &mut HeldSlots,
) -> Result<Permit, Result<(usize, Denied), Error>> {
    block_on(try_allowed(function, limiter, rules, max_wait, held))
}

/// Settles the rules of a call for which `actual` has a number, in the order of the function's rules. It does not wait for
/// the store: see [`Permit::settle_in_background`].
pub fn settle(function: &'static AnnotatedFunction, permit: &Permit, actual: &[Option<u32>]) {
    let actual: Box<[_]> = actual.into();
    permit.settle_by(move |rule| {
        let of_rules = function.names.iter().zip(&actual).filter(|(name, _)| **name == rule);
        of_rules.filter_map(|(_, actual)| *actual).max()
    });
}

/// Returns what a call has cost. The type of the closure's argument is inferred from this call.
pub fn actual_cost<R: ?Sized>(returned: &R, settle: impl FnOnce(&R) -> u32) -> u32 {
    settle(returned)
}

/// Decides at once if the call has one request and does not wait, and else by a future on the heap.
#[expect(clippy::result_large_err, reason = "the plan goes on to the decision, where a box would be an allocation")]
async fn decide_with_permit(
    function: &'static AnnotatedFunction,
    limiter: &Limiter,
    rules: &[Option<RuleRequest>],
    max_wait: Duration,
    has_handler: bool,
    held: &mut HeldSlots,
) -> Result<RuleDecision, Error> {
    let (call, own) = (AnnotatedCall { function, rules, max_wait, settles: true }, function.own_policy(has_handler));
    let inside = limiter.inside();
    match call.try_plain::<Decision>(inside).or_else(|tried| call.try_planned(inside, own, tried)) {
        Ok(decision) => Ok(decision.into_result().map_err(|denied| (0, denied))),
        Err(pending) => Box::pin(call.decide(inside, own, pending, held)).await,
    }
}
