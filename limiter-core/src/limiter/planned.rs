//! The decision about a planned call: what its requests and the modes of its rules lead to.

use std::convert::Infallible;
use std::time::Duration;

use crate::concurrency::HeldSlots;
use crate::decision::{DIRECT_CALL, DecisionContext};
use crate::limiter::wait::{Waiting, WatchedRules};
use crate::limiter::{Backend, Inside};
use crate::local::StoreTicket;
use crate::request::CallOptions;
use crate::rule::{Plan, Planned, PlannedRules, Shadow, Trial, UnlimitedRule};
use crate::run::join_all;
use crate::{Allowed, Decision, Denied, Error, ErrorKind, Limit, OnError, Source};

/// The decision about a planned call, with the index of the rule that denied it.
pub(crate) type RuleDecision = Result<Allowed, (usize, Denied)>;

/// Returns the decision of a direct call, whose rules have no index.
pub(crate) fn decision_of(decision: RuleDecision) -> Decision {
    decision.map_or_else(|(_, denied)| Decision::Denied(denied), Decision::Allowed)
}

/// The decision about a call whose only rule is off.
fn when_off(name: &'static str, limit: Limit) -> Allowed {
    Allowed::without_limit(name, limit, Source::Mode)
}

/// The form in which a caller gets a decision that is made at once.
pub(crate) trait FastDecision: Sized {
    /// Stands for the decision of an allowed call, where that need not be built. It has no value for a caller that may
    /// refund the permits, and so needs each decision.
    type Unbuilt: Copy;
    const UNBUILT: Option<Self::Unbuilt>;

    fn from_decision(decision: Decision) -> Self;

    /// Returns the form of an allowed call whose decision is not built.
    fn from_unbuilt(unbuilt: Self::Unbuilt) -> Self;
}

impl FastDecision for Decision {
    type Unbuilt = Infallible;
    const UNBUILT: Option<Infallible> = None;

    #[inline]
    fn from_decision(decision: Decision) -> Self {
        decision
    }

    fn from_unbuilt(unbuilt: Infallible) -> Self {
        match unbuilt {}
    }
}

/// The denial of a denied call.
impl FastDecision for Option<Denied> {
    type Unbuilt = ();
    const UNBUILT: Option<()> = Some(());

    #[inline]
    fn from_decision(decision: Decision) -> Self {
        decision.into_result().err()
    }

    #[inline]
    fn from_unbuilt((): ()) -> Self {
        None
    }
}

/// The error of a method that ends at its decision, so that it cannot hold a slot.
#[cold]
pub(crate) fn enter_instead() -> Error {
    let problem = "`limit` must have a window where a call ends at its decision, got calls at once: call `enter` or `enter_wait`, \
                   or annotate the function";
    Error::new(ErrorKind::Config, problem)
}

/// Checks that a call need not hold anything until it ends.
///
/// # Errors
/// [`ErrorKind::Config`] for a limit of concurrent calls.
#[inline]
pub(super) fn check_holds_nothing(limits: impl IntoIterator<Item = Limit>) -> Result<(), Error> {
    if limits.into_iter().any(|limit| limit.is_concurrent()) { Err(enter_instead()) } else { Ok(()) }
}

impl Inside {
    /// Decides about a call that does not wait, if no reply of a shared store is needed.
    ///
    /// # Errors
    /// [`decide`](Self::decide) must decide, by the ticket if the request was looked up here.
    pub(crate) fn try_decide<D: FastDecision>(&self, plan: &Plan<'_>) -> Result<D, Option<StoreTicket>> {
        match &plan.requests {
            Planned::Single { name: [name], request: [request], .. } => {
                self.try_decide_one(name, request, || plan.options)
            }
            Planned::Off { name, limit } => Ok(D::from_decision(Decision::Allowed(when_off(name, *limit)))),
            Planned::Rules(_) => Err(None),
        }
    }

    /// Decides about a call that `read` plans, waiting up to `max_wait`. `pending` is the plan of a call that does not
    /// wait, if there is one. `fail` applies the failure policy to a call that cannot be planned.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide), and those of `fail`.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    pub(crate) fn plan_and_decide<'k>(
        &self,
        read: impl Fn() -> Result<Plan<'k>, Error> + Send + Sync,
        fail: impl Fn(Error) -> Result<RuleDecision, Error>,
        max_wait: Duration,
        pending: Option<(Plan<'k>, Option<StoreTicket>)>,
        mut held: Option<&mut HeldSlots>,
    ) -> impl Future<Output = Result<RuleDecision, Error>> {
        async move {
            if max_wait.is_zero() {
                let (mut plan, ticket) = match pending {
                    Some(pending) => pending,
                    None => match read() {
                        Ok(plan) => (plan, None),
                        Err(error) => return fail(error),
                    },
                };
                return match (plan.take_slots(), held) {
                    (Some(slots), Some(held)) => Box::pin(self.decide_holding(&plan, &slots, held)).await,
                    (Some(_), None) => Err(enter_instead()),
                    (None, _) => self.decide(&plan, ticket).await,
                };
            }
            let mut waiting = self.begin_wait(max_wait);
            loop {
                if let Some(decision) = self.attempt(&read, &fail, &mut waiting, held.as_deref_mut()).await? {
                    return Ok(decision);
                }
            }
        }
    }

    /// Plans a call that may wait and decides about it: see [`decide_or_wait`](Self::decide_or_wait).
    pub(super) async fn attempt<'k>(
        &self,
        read: &(impl Fn() -> Result<Plan<'k>, Error> + Send + Sync),
        fail: &impl Fn(Error) -> Result<RuleDecision, Error>,
        waiting: &mut Waiting,
        held: Option<&mut HeldSlots>,
    ) -> Result<Option<RuleDecision>, Error> {
        let mut plan = match read() {
            Ok(plan) => plan,
            Err(error) => return fail(error).map(Some),
        };
        let blocking = plan.blocking_rule().filter(|_| !waiting.max_wait().is_zero());
        let slots = plan.take_slots();
        if let Some(rule) = blocking {
            // A call that waits is one that is denied, which begins the block.
            self.rules
                .warn_of_unused_setting(rule, "has a `block`, so its calls do not wait: remove `wait` or `block`");
            return match (slots, held) {
                (Some(slots), Some(held)) => Box::pin(self.decide_holding(&plan, &slots, held)).await.map(Some),
                (Some(_), None) => Err(enter_instead()),
                (None, _) => self.decide(&plan, None).await.map(Some),
            };
        }
        let still_hold = || read().is_ok_and(|mut now| now.take_slots() == slots && now.is_same(&plan));
        let rules = WatchedRules { generation: plan.generation, still_hold: &still_hold };
        match (&slots, held) {
            (Some(slots), Some(held)) => Box::pin(self.wait_holding(&plan, slots, waiting, &rules, held)).await,
            (Some(_), None) => Err(enter_instead()),
            (None, _) => self.decide_or_wait(&plan, waiting, Some(&rules)).await,
        }
    }

    /// Decides about a planned call that does not wait. It has a ticket if its only request was looked up already.
    ///
    /// # Errors
    /// The failure of an enforced rule, if the policy is [`OnError::Raise`].
    pub(crate) async fn decide(&self, plan: &Plan<'_>, ticket: Option<StoreTicket>) -> Result<RuleDecision, Error> {
        match &plan.requests {
            Planned::Single { rule_index, name, request } => {
                let decision = self.decide_requests(DecisionContext::new(name, request), plan.options, ticket).await?;
                Ok(decision.into_result().map_err(|denied| (*rule_index, denied)))
            }
            Planned::Off { name, limit } => Ok(Ok(when_off(name, *limit))),
            // Nothing has looked all of its requests up.
            Planned::Rules(planned) => {
                let options = plan.options;
                let decide = async |context: DecisionContext<'_>| self.decide_requests(context, options, None).await;
                Box::pin(self.decide_rules(planned, options.on_error, Duration::ZERO, decide)).await
            }
        }
    }

    /// Decides about a planned call that may wait for the permits of the rules that are enforced, while `rules` still
    /// hold.
    /// `None` if they do not, so that it must be planned again, and for an attempt that is denied.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide).
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would keep its arguments twice")]
    pub(crate) fn decide_or_wait<'a>(
        &'a self,
        plan: &'a Plan<'a>,
        waiting: &'a mut Waiting,
        rules: Option<&'a WatchedRules<'a>>,
    ) -> impl Future<Output = Result<Option<RuleDecision>, Error>> + Send + 'a {
        async move {
            match &plan.requests {
                Planned::Single { rule_index, name, request } => {
                    let context = DecisionContext::new(name, request);
                    let decision = self.decide_waiting(context, &plan.options, waiting, rules).await?;
                    Ok(decision.map(|decision| decision.into_result().map_err(|denied| (*rule_index, denied))))
                }
                Planned::Off { name, limit } => Ok(Some(Ok(when_off(name, *limit)))),
                Planned::Rules(planned) => {
                    let (on_error, max_wait) = (plan.options.on_error, waiting.max_wait());
                    let decide = async |context: DecisionContext<'_>| {
                        self.decide_waiting(context, &plan.options, waiting, rules).await?.ok_or(None)
                    };
                    let decided = Box::pin(self.decide_rules(planned, on_error, max_wait, decide)).await;
                    // `None` as the error: there is no decision.
                    decided.map(Some).or_else(|error: Option<Error>| error.map_or(Ok(None), Err))
                }
            }
        }
    }

    /// Decides about the requests of all rules of a call. `decide` decides about those of the rules that are enforced.
    async fn decide_rules<E: From<Error>>(
        &self,
        planned: &PlannedRules<'_>,
        on_error: OnError,
        max_wait: Duration,
        decide: impl AsyncFnOnce(DecisionContext<'_>) -> Result<Decision, E>,
    ) -> Result<RuleDecision, E> {
        if planned.has_slots() {
            return Err(enter_instead().into());
        }
        if let Some(denied) = self.deny_before_store(planned, on_error)? {
            return Ok(Err(denied));
        }
        let shadow = self.usable_shadow(planned);
        let with_observed = shadow.and_then(|shadow| shadow.with_observed(&planned.enforced.requests, max_wait));
        let context = planned.enforced.context().with_observed(with_observed.as_deref());
        let decision = match context.requests {
            [] => None,
            _ => Some(decide(context).await?),
        };
        Ok(self.decided_rules(planned, shadow, decision, max_wait).await)
    }

    /// Returns the denial of a call that no store decides, and calls the observers.
    fn deny_before_store(
        &self,
        planned: &PlannedRules<'_>,
        on_error: OnError,
    ) -> Result<Option<(usize, Denied)>, Error> {
        for rule in &planned.unlimited {
            if let Some(denied) = self.deny_unread(rule)? {
                self.observers.denied(DecisionContext::new(&[rule.name], &[]), &denied);
                return Ok(Some((rule.rule_index, denied)));
            }
        }
        let denied = self.deny_without_store(planned, on_error)?;
        match (&denied, &planned.denying) {
            (Some((_, denied)), Some(denying)) => self.observers.denied_by_mode(denying.context(), denied),
            (Some((_, denied)), None) => self.observers.denied(DecisionContext::new(&[], &[]), denied),
            (None, _) => {}
        }
        Ok(denied)
    }

    /// The rules in shadow mode, if there are any and a decision has room for their requests.
    pub(super) fn usable_shadow<'p, 'a>(&self, planned: &'p PlannedRules<'a>) -> Option<&'p Shadow<'a>> {
        match planned.shadow.for_decision(planned.enforced.requests.len()) {
            Ok(shadow) => (!shadow.is_empty()).then_some(shadow),
            Err(error) => {
                self.observers.failed(&error);
                None
            }
        }
    }

    /// The decision about a call, after that about the enforced rules, if they have any request.
    async fn decided_rules(
        &self,
        planned: &PlannedRules<'_>,
        shadow: Option<&Shadow<'_>>,
        decision: Option<Decision>,
        max_wait: Duration,
    ) -> RuleDecision {
        let allowed = match decision.map(Decision::into_result).transpose() {
            Err(denied) => return Err((planned.enforced.rule_of(&denied), denied)),
            Ok(allowed) => allowed,
        };
        let allowed = match shadow {
            None => allowed,
            Some(shadow) => Box::pin(self.decide_shadowed(allowed, shadow, max_wait)).await,
        };
        Ok(allowed.unwrap_or_else(|| planned.without_limit()))
    }

    /// Returns the denial of a call under a rule without a limit, if the limit may be in settings that could not be
    /// read. Such a call must not be unlimited by accident. Otherwise it counts the call, unless its policy is to allow
    /// it.
    fn deny_unread(&self, rule: &UnlimitedRule) -> Result<Option<Denied>, Error> {
        match self.unread_settings(rule) {
            None => {
                self.rules.count_unlimited(rule.name);
                Ok(None)
            }
            // The other rules of the call decide.
            Some(error) if rule.is_shared_unread && rule.on_error == OnError::Open => {
                self.observers.failed(&error);
                Ok(None)
            }
            Some(error) => {
                let context = DecisionContext { names: &[rule.name], requests: &[] };
                self.deny_after_failure(context, error, rule.on_error).map(Some)
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
        match &self.backend {
            Backend::Guarded(guard) => guard.permanent_failure().cloned(),
            Backend::Memory(_) => None,
        }
    }

    /// Returns the denial of a call that no store decides: a rule denies every call, or has an invalid limit.
    fn deny_without_store(
        &self,
        planned: &PlannedRules<'_>,
        on_error: OnError,
    ) -> Result<Option<(usize, Denied)>, Error> {
        if let Some(denying) = &planned.denying {
            let mut denied = denying.context().denied_by_mode();
            self.expose_denied_key(&mut denied, &denying.requests);
            return Ok(Some((denying.rule_of(&denied), denied)));
        }
        let Some((rule_index, error)) = &planned.invalid else { return Ok(None) };
        Ok(Some((*rule_index, self.deny_after_failure(planned.enforced.context(), error.clone(), on_error)?)))
    }

    /// Decides about a planned call without taking permits, and without calling the observers of decisions.
    ///
    /// # Errors
    /// As for [`decide`](Self::decide).
    pub(crate) async fn peek_planned(&self, plan: &Plan<'_>) -> Result<Decision, Error> {
        let options = plan.options;
        let planned = match &plan.requests {
            Planned::Single { name, request, .. } => {
                return self.peek_once(DecisionContext::new(name, request), options).await;
            }
            Planned::Off { name, limit } => {
                return Ok(Decision::Allowed(when_off(name, *limit)));
            }
            Planned::Rules(planned) => planned,
        };
        for rule in planned.unlimited.iter().filter(|rule| self.unread_settings(rule).is_some()) {
            if let Some(denied) = self.deny_unread(rule)? {
                return Ok(Decision::Denied(denied));
            }
        }
        if let Some((_, denied)) = self.deny_without_store(planned, options.on_error)? {
            return Ok(Decision::Denied(denied));
        }
        let slots = self.peek_slots(&planned.slots, &options).await?;
        if let Some(denied) = slots.as_ref().filter(|decision| decision.is_denied()) {
            return Ok(denied.clone());
        }
        if !planned.enforced.requests.is_empty() {
            return self.peek_once(planned.enforced.context(), options).await;
        }
        if let Some(allowed) = slots {
            return Ok(allowed);
        }
        let decision = match planned.shadow.first() {
            Some(rule) => self.peek_once(rule.context(), options).await.ok().map(Decision::in_shadow),
            None => None,
        };
        Ok(Decision::Allowed(decision.map_or_else(|| planned.without_limit(), Allowed::from_shadow_decision)))
    }
}

impl PlannedRules<'_> {
    /// The decision about a call whose rules are off or have no limit.
    fn without_limit(&self) -> Allowed {
        let (name, limit) = self.first.unwrap_or((DIRECT_CALL, Limit::WIDEST));
        let is_unread = self.unlimited.iter().any(|rule| rule.is_shared_unread);
        Allowed::without_limit(name, limit, if is_unread { Source::Policy } else { Source::Mode })
    }
}

impl Inside {
    /// Decides about the rules in shadow mode of a call that is allowed: by what the store has observed, then about the
    /// other requests of each. Nothing waits, and no failure stops the call.
    pub(super) async fn decide_shadowed(
        &self,
        allowed: Option<Allowed>,
        shadow: &Shadow<'_>,
        max_wait: Duration,
    ) -> Option<Allowed> {
        if self.queues.check_process().is_err() {
            // The process has forked while the store decided, and the policy has allowed the call of the parent.
            return allowed;
        }
        let mut allowed = allowed;
        let source = allowed.as_ref().map_or(Source::Store, Allowed::source);
        let replies = allowed.as_mut().and_then(Allowed::take_observed);
        let mut replies = replies.as_ref().map(|per_request| &per_request.observed[..]);
        let mut trials = Vec::with_capacity(shadow.0.len());
        for trial in &shadow.0 {
            trials
                .push((trial, replies.as_mut().and_then(|replies| replies.split_off(..trial.observed.requests.len()))));
        }
        let decisions = join_all(trials.into_iter().map(|(trial, replies)| async move {
            let Trial { observed, taking, options } = trial;
            // A leaky bucket gives the turn that enforcement would wait for.
            let options = CallOptions { max_wait, ..*options };
            let observed = match replies {
                _ if observed.requests.is_empty() => None,
                Some(replies) => Some((observed, observed.context().observed_decision(replies, source))),
                // No store has counted the enforced rules, or a bucket has given them a turn.
                None => Some((observed, self.peek_once(observed.context(), options).await.ok()?)),
            };
            let is_denied = observed.as_ref().is_some_and(|(_, decision)| decision.is_denied());
            let taken = if is_denied || taking.requests.is_empty() {
                None
            } else {
                let resolution = self.resolve(taking.context(), options, None).await.ok()?;
                Some((taking, taking.context().decision(resolution, Some(self.receipt_terms(&options)))))
            };
            // A rule that is denied counts as denied alone.
            let observed = observed.filter(|_| !taken.as_ref().is_some_and(|(_, decision)| decision.is_denied()));
            Some(observed.into_iter().chain(taken).map(|(rule, decision)| {
                let mut decision = decision.in_shadow();
                self.expose_key(&mut decision, &rule.requests);
                (rule, decision)
            }))
        }));
        for (rule, mut decision) in decisions.await.into_iter().flatten().flatten() {
            match &decision {
                Decision::Allowed(_) => self.report(rule.context(), &mut decision),
                Decision::Denied(denied) => self.observers.shadowed(rule.context(), denied),
            }
            allowed = Some(match allowed {
                Some(allowed) => allowed.with_shadow_decision(decision),
                None => Allowed::from_shadow_decision(decision),
            });
        }
        allowed
    }
}
