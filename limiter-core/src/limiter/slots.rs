//! The slots of a call: taken before its permits, and held until it ends.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Moment;
use crate::concurrency::{
    HeldSlot, HeldSlots, QueuedOutcome, QueuedSlot, SharedSlots, SlotClaim, SlotHolder, SlotOutlook, SlotTable,
    SlotsOfKey, return_at_the_end,
};
use crate::decision::{DIRECT_CALL, DecisionContext, Resolution};
use crate::error::{OnError, Source};
use crate::failure_policy::apply_policy;
use crate::limiter::wait::{Waiting, WatchedRules};
use crate::limiter::{Backend, Inside, Limiter, RuleDecision};
use crate::request::{CallOptions, CountedReply, Request, StoreReply};
use crate::rule::{Plan, RuleRequests, SlotRequests};
use crate::{Allowed, Decision, Error, ErrorKind, Key, Limit, metrics};

/// The time until a call of a key could start of which this process has had none.
const FIRST_RETRY: Duration = Duration::from_millis(100);

/// The decision about slots of one key.
struct SlotDecision {
    /// The slots of a call that may run. A call that takes none has none. Of a denial: the time until the next try; `None`
    /// if the call never gets them.
    slot: Result<Option<HeldSlot>, Option<Duration>>,
    source: Source,
    /// The slots that are free after it.
    free: u32,
}

/// Requests for slots of one key, which a call takes together.
struct SlotsOfCall<'a> {
    /// The place of the first of them.
    index: usize,
    key: &'a Key,
    limit: Limit,
    cost: u32,
}

/// Methods for the command alone.
#[doc(hidden)]
impl Limiter {
    /// Reads which processes have slots of a key, or wait for some. Empty in a limiter in memory.
    ///
    /// # Errors
    /// The failure of the store, under every policy.
    pub async fn slot_holders(&self, key: &Key) -> Result<Vec<SlotHolder>, Error> {
        match self.inside().slot_table().outbox() {
            None => Ok(Vec::new()),
            Some(outbox) => outbox.peek(key).await,
        }
    }

    /// Waits until the store has the slots of this process back, of which no call runs any more. Returns `false` if it
    /// has not within `max_wait`.
    pub async fn return_slots(&self, max_wait: Duration) -> bool {
        let inside = self.inside();
        let Some(table) = inside.slots.get() else { return true };
        let deadline = inside.clock.now().after(max_wait);
        while table.all().iter().any(|slots| !slots.is_unused()) {
            if inside.clock.now() >= deadline || inside.clock.sleep(Duration::from_millis(1)).await.is_err() {
                return false;
            }
        }
        true
    }
}

impl Inside {
    /// The slots of all keys in this process, made by the first call that needs one.
    fn slot_table(&self) -> &SlotTable {
        self.slots.get_or_init(|| {
            let table = Arc::new(SlotTable::new(self.clock.clone(), self.shared_slots()));
            if table.outbox().is_some() {
                return_at_the_end(&table);
            }
            table
        })
    }

    fn shared_slots(&self) -> Option<SharedSlots> {
        let Backend::Guarded(guard) = &self.backend else { return None };
        let outbox = guard.slot_outbox(&self.clock)?;
        let shown_key = self.exposes_keys.then(|| guard.shown_key());
        Some(SharedSlots::new(outbox, self.slot_options.clone(), shown_key, self.instances.clone()))
    }

    /// Takes slots that are free, for a direct call while no rule has settings. `None` leaves the call to
    /// [`take_slots`](Self::take_slots).
    pub(super) fn try_enter(&self, key: &Key, limit: &Limit, cost: u32) -> Option<(Allowed, HeldSlots)> {
        if !limit.is_concurrent() || self.rules.has_settings() || self.rules.switch().is_some() {
            return None;
        }
        let (max, cost) = (u16::try_from(limit.max()).ok()?, u16::try_from(cost).ok().filter(|cost| *cost > 0)?);
        let slot = self.slot_table().slots_of(key).enter(max, SlotClaim::new(cost, self.default_options()))?;
        let requests = [Request::new(key, *limit, cost.into())];
        let (context, mut held) = (DecisionContext::direct(&requests), HeldSlots::new());
        let mut decision = self.slot_decision(context, 0, SlotDecision::held(slot, Source::Store), &mut held);
        self.report(context, &mut decision);
        Some((decision.into_result().ok()?, held))
    }

    /// Takes the slots of a call; one that waits does so until `deadline`. A denial by any of them frees those before
    /// it. It is not reported.
    ///
    /// # Errors
    /// The failure of the store, under [`OnError::Raise`].
    async fn take_slots(
        &self,
        slots: &SlotRequests<'_>,
        options: &CallOptions,
        deadline: Option<Moment>,
        held: &mut HeldSlots,
    ) -> Result<RuleDecision, Error> {
        let (context, mut taken, mut allowed) = (slots.enforced.context(), HeldSlots::new(), None);
        for of_key in slots_of_keys(&slots.enforced.requests) {
            let decision = self.take_slot(&of_key, options, deadline).await?;
            match self.slot_decision(context, of_key.index, decision, &mut taken) {
                Decision::Allowed(next) => allowed = Some(with_least(allowed, next)),
                Decision::Denied(denied) => return Ok(Err((slots.enforced.rule_of(&denied), denied))),
            }
        }
        let mut allowed = allowed.map(Decision::Allowed);
        if slots.are_alone
            && let Some(decision) = &mut allowed
        {
            self.report(context, decision);
        }
        let allowed = self.take_shadow_slots(&slots.shadow, allowed, &mut taken).await;
        held.append(taken);
        Ok(Ok(allowed))
    }

    /// Decides about a call that holds slots: takes them first, and frees them if another limit denies.
    pub(super) async fn decide_holding(
        &self,
        plan: &Plan<'_>,
        slots: &SlotRequests<'_>,
        held: &mut HeldSlots,
    ) -> Result<RuleDecision, Error> {
        let mut taken = HeldSlots::new();
        let allowed = match self.take_slots(slots, &plan.options, None, &mut taken).await? {
            Ok(allowed) => allowed,
            Err(denied) => {
                self.observers.denied(slots.enforced.context(), &denied.1);
                return Ok(Err(denied));
            }
        };
        let decision = self.decide(plan, None).await?;
        Ok(slots.with_rest(allowed, decision).inspect(|_| held.append(taken)))
    }

    /// [`decide_holding`](Self::decide_holding) for a call that waits.
    pub(super) async fn wait_holding<'a>(
        &'a self,
        plan: &'a Plan<'a>,
        slots: &SlotRequests<'_>,
        waiting: &'a mut Waiting,
        rules: &'a WatchedRules<'a>,
        held: &mut HeldSlots,
    ) -> Result<Option<RuleDecision>, Error> {
        let mut taken = HeldSlots::new();
        let allowed = match self.take_slots(slots, &plan.options, waiting.deadline(), &mut taken).await? {
            Ok(allowed) => allowed,
            // Of an attempt: the call waits elsewhere.
            Err(_) if waiting.deadline().is_none() => return Ok(None),
            Err(denied) => {
                self.observers.denied(slots.enforced.context(), &denied.1);
                return Ok(Some(Err(denied)));
            }
        };
        let decision = self.decide_or_wait(plan, waiting, Some(rules)).await?;
        Ok(decision.map(|decision| slots.with_rest(allowed, decision).inspect(|_| held.append(taken))))
    }

    /// Decides about slots without taking any, and without calling the observers of decisions. `None` if all are free,
    /// or if the failure policy allows the call.
    ///
    /// # Errors
    /// As for [`take_slots`](Self::take_slots).
    pub(super) async fn peek_slots(
        &self,
        slots: &RuleRequests<'_>,
        options: &CallOptions,
    ) -> Result<Option<Decision>, Error> {
        let mut allowed = None;
        for of_key in slots_of_keys(&slots.requests) {
            let decision = self.peek_slot(&of_key, options).await?;
            match self.slot_decision(slots.context(), of_key.index, decision, &mut HeldSlots::new()) {
                Decision::Allowed(next) => allowed = Some(with_least(allowed, next)),
                denied => return Ok(Some(denied)),
            }
        }
        Ok(allowed.map(Decision::Allowed))
    }

    /// Reads the number of slots of a key that are in use, in all processes.
    ///
    /// # Errors
    /// The failure of the store, under every policy.
    pub(super) async fn slots_in_use(&self, key: &Key) -> Result<u32, Error> {
        let table = self.slot_table();
        match table.outbox() {
            None => Ok(table.find(key).map_or(0, |slots| slots.outlook().running)),
            Some(outbox) => Ok(outbox.peek(key).await?.iter().map(|holder| u32::from(holder.slots)).sum()),
        }
    }

    async fn peek_slot(&self, call: &SlotsOfCall<'_>, options: &CallOptions) -> Result<SlotDecision, Error> {
        let (max, table) = (call.limit.max(), self.slot_table());
        let here = table.find(call.key).map(|slots| slots.outlook());
        let in_use = match self.slots_in_use(call.key).await {
            Ok(in_use) => in_use,
            Err(error) => {
                let resolution = apply_policy(&self.observers, error, options.on_error, |_| None)?;
                return Ok(SlotDecision::by_policy(&resolution));
            }
        };
        let free = max.saturating_sub(in_use);
        let retry_after = here.map_or(FIRST_RETRY, |here| here.retry_after);
        let slot = match call.cost {
            cost if cost <= free => Ok(None),
            cost => Err((cost <= max).then_some(retry_after)),
        };
        Ok(SlotDecision { slot, source: Source::Store, free })
    }

    /// Resets the slots of a key: forgets who waits in other processes. Slots in use stay.
    ///
    /// # Errors
    /// The failure of the store.
    pub(super) async fn reset_slots(&self, key: &Key) -> Result<(), Error> {
        match self.slot_table().outbox() {
            None => Ok(()),
            Some(outbox) => outbox.reset(key).await,
        }
    }

    /// Takes slots of rules in shadow mode that are free now. They deny nothing.
    async fn take_shadow_slots(
        &self,
        shadow: &RuleRequests<'_>,
        allowed: Option<Decision>,
        held: &mut HeldSlots,
    ) -> Allowed {
        let mut allowed = allowed.and_then(|decision| decision.into_result().ok());
        let options = CallOptions { on_error: OnError::Closed, ..*self.default_options() };
        for of_key in slots_of_keys(&shadow.requests) {
            let Ok(decision) = self.take_slot(&of_key, &options, None).await else { continue };
            let decision = self.slot_decision(shadow.context(), of_key.index, decision, held).in_shadow();
            if let Decision::Denied(denied) = &decision {
                self.observers.shadowed(shadow.context(), denied);
            }
            allowed = Some(match allowed {
                Some(allowed) => allowed.with_shadow_decision(decision),
                None => Allowed::from_shadow_decision(decision),
            });
        }
        let (name, limit) = (DIRECT_CALL, Limit::WIDEST);
        allowed.unwrap_or_else(|| Allowed::without_limit(name, limit, Source::Mode))
    }

    /// Decides about slots of one key.
    async fn take_slot(
        &self,
        call: &SlotsOfCall<'_>,
        options: &CallOptions,
        deadline: Option<Moment>,
    ) -> Result<SlotDecision, Error> {
        let max = u16::try_from(call.limit.max()).unwrap_or(u16::MAX);
        let cost = match u16::try_from(call.cost) {
            Ok(0) => return Ok(SlotDecision { slot: Ok(None), source: Source::Store, free: max.into() }),
            Ok(cost) if cost <= max => cost,
            _ => return Ok(SlotDecision::denied(None, Source::Store)),
        };
        let slots = self.slot_table().slots_of(call.key);
        let claim = SlotClaim::new(cost, options);
        if let Some(held) = slots.enter(max, claim) {
            return Ok(SlotDecision::held(held, Source::Store));
        }
        let Some(queued) = slots.queue(claim, deadline.is_some()) else {
            return Ok(SlotDecision::too_few(&slots, Source::Store));
        };
        match self.outcome_of(queued, deadline).await {
            QueuedOutcome::Entered(held) => Ok(SlotDecision::held(held, Source::Store)),
            QueuedOutcome::Denied => Ok(SlotDecision::too_few(&slots, Source::Store)),
            // The locks of the parent's slots may be held for ever.
            QueuedOutcome::Failed(error) if error.kind() == ErrorKind::Forked => {
                let resolution = apply_policy(&self.observers, error, options.on_error, |_| None)?;
                Ok(SlotDecision::by_policy(&resolution))
            }
            QueuedOutcome::Failed(error) => self.enter_by_policy(error, &slots, cost, options.on_error),
        }
    }

    /// Waits for the outcome of a queued call. The end of its wait is a denial.
    async fn outcome_of(&self, queued: QueuedSlot, deadline: Option<Moment>) -> QueuedOutcome {
        let Some(deadline) = deadline else { return queued.await };
        let (mut queued, mut sleep) = (pin!(queued), pin!(self.clock.sleep_until(deadline)));
        poll_fn(|context| match (queued.as_mut().poll(context), sleep.as_mut().poll(context)) {
            (Poll::Ready(outcome), _) => Poll::Ready(outcome),
            (Poll::Pending, Poll::Ready(Ok(()))) => Poll::Ready(QueuedOutcome::Denied),
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(QueuedOutcome::Failed(error)),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        })
        .await
    }

    /// Decides about slots by the failure policy.
    #[cold]
    fn enter_by_policy(
        &self,
        error: Error,
        slots: &Arc<SlotsOfKey>,
        cost: u16,
        on_error: OnError,
    ) -> Result<SlotDecision, Error> {
        let mut by_share = None;
        let resolution = apply_policy(&self.observers, error, on_error, |on_error| {
            (on_error == OnError::Standby).then(|| {
                by_share = slots.enter_by_share(cost);
                CountedReply::from_standby(StoreReply { allowed: by_share.is_some(), ..StoreReply::ALLOWED })
            })
        })?;
        Ok(match (resolution, by_share) {
            (Resolution::FailedOpen, _) => {
                let held = slots.enter_unlimited(cost);
                SlotDecision { slot: Ok(held), source: Source::Policy, free: 0 }
            }
            (_, Some(held)) => SlotDecision::held(held, Source::Standby),
            (Resolution::Counted(_), None) => SlotDecision::too_few(slots, Source::Standby),
            (resolution, None) => SlotDecision::by_policy(&resolution),
        })
    }

    /// The decision for the call's caller. Slots of a call that may run are held.
    fn slot_decision(
        &self,
        context: DecisionContext<'_>,
        request_index: usize,
        decision: SlotDecision,
        held: &mut HeldSlots,
    ) -> Decision {
        let SlotDecision { slot, source, free } = decision;
        let retry_after = slot.as_ref().map_or_else(|retry_after| *retry_after, |_| Some(Duration::ZERO));
        let started_at = slot.as_ref().ok().and_then(Option::as_ref).map(HeldSlot::started_at);
        let stamp = started_at.unwrap_or_else(|| self.clock.now()).micros();
        let reply = StoreReply {
            allowed: slot.is_ok(),
            request_index,
            remaining: free,
            retry_after,
            stamp,
            ..StoreReply::ALLOWED
        };
        let is_counted = source == Source::Store && retry_after.is_some();
        if let Some(request) = context.requests.get(request_index).filter(|_| is_counted) {
            metrics::slots_in_use(context.name_of(request_index), request.limit.max().saturating_sub(free));
        }
        slot.into_iter().flatten().for_each(|slot| held.hold(slot));
        let counted = CountedReply { source, ..CountedReply::from_store(reply, 0) };
        let mut decision = context.decision(Resolution::Counted(counted), None);
        self.expose_key(&mut decision, context.requests);
        decision
    }
}

impl SlotDecision {
    fn held(slot: HeldSlot, source: Source) -> Self {
        let free = slot.free_after();
        Self { slot: Ok(Some(slot)), source, free }
    }

    fn denied(retry_after: Option<Duration>, source: Source) -> Self {
        Self { slot: Err(retry_after), source, free: 0 }
    }

    /// A denial of a call for which too few slots are free.
    fn too_few(slots: &SlotsOfKey, source: Source) -> Self {
        let SlotOutlook { free, retry_after, .. } = slots.outlook();
        Self { slot: Err(Some(retry_after)), source, free }
    }

    /// The decision about a call that takes no slots, because no store knows of them.
    fn by_policy(resolution: &Resolution) -> Self {
        let slot = match resolution {
            Resolution::FailedOpen => Ok(None),
            _ => Err(Some(Duration::from_secs(1))),
        };
        Self { slot, source: Source::Policy, free: 0 }
    }
}

/// Returns the requests by their keys, in the order of the keys: calls that wait for several slots take them in one
/// order, so none waits for a slot of another that waits for one of its own.
///
/// The least limit of a key holds. As for permits, costs of one role add up, and the largest of several roles counts.
fn slots_of_keys<'a>(requests: &[Request<'a>]) -> Vec<SlotsOfCall<'a>> {
    let mut order: Vec<_> = (0..requests.len()).collect();
    if requests.len() > 1 {
        order.sort_by_cached_key(|index| requests[*index].key.encoded());
    }
    let of_one_key = order.chunk_by(|one, other| requests[*one].key == requests[*other].key);
    let of_key = of_one_key.filter_map(|indices| {
        let requests_of_key = || indices.iter().map(|index| &requests[*index]);
        let (index, first) =
            indices.iter().map(|index| (*index, &requests[*index])).min_by_key(|(_, request)| request.limit.max())?;
        let cost_of = |role| {
            let costs = requests_of_key().filter(|request| request.role == role).map(|request| request.cost);
            costs.fold(0, u32::saturating_add)
        };
        let cost = requests_of_key().map(|request| cost_of(request.role)).max()?;
        Some(SlotsOfCall { index, key: first.key, limit: first.limit, cost })
    });
    of_key.collect()
}

impl SlotRequests<'_> {
    /// The decision about a call that has its slots, by that about its other limits.
    fn with_rest(&self, slots: Allowed, rest: RuleDecision) -> RuleDecision {
        rest.map(|rest| if self.are_alone { slots } else { rest })
    }
}

/// Returns the decision with fewer slots left.
fn with_least(one: Option<Allowed>, other: Allowed) -> Allowed {
    match one {
        Some(one) if one.remaining() <= other.remaining() => one,
        _ => other,
    }
}
