//! The worker: the thread that sends calls to Redis and replies to each by its deadline.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::timeout_at;

pub(crate) mod call;
mod batch;
mod busy_poll;
mod deadlines;
pub(crate) mod direct_sender;
mod late_replies;
pub(crate) mod leases;
mod multi_slot;
mod pending_call;
pub(crate) mod receipts;
mod send_margin;
pub(crate) mod slots;
mod slot_looks;
mod look_queue;
mod slot_notices;
#[cfg(test)]
mod direct_tests;
#[cfg(test)]
pub(super) mod tests;

use busy_poll::BusyPoll;
use call::{Call, CallResult, Deadline};
use deadlines::Deadlines;
pub(crate) use leases::Renewal;
use leases::{BatchTerms, HeldCall, Keeper, ReleasedCalls};
use look_queue::LookQueue;
use multi_slot::MultiSlotCall;
use pending_call::BatchQueue;
use slot_looks::SlotLooks;
use slot_notices::SlotSubscription;
use slots::{SlotLosses, SlotOrder};

use super::connection::gate_table::GateTable;
use super::connection::managed::ManagedConnection;
use super::connection::topology::Topology;
use super::endpoint::{Endpoint, ReadySignal};
use super::health::{HealthBoard, StoreHealth};
use super::naming::Naming;
use super::presence::{FollowedVersion, Presence, PresenceCall, PresenceOptions};
use super::script::action::Action;
use super::script::command::ReturnedPermits;
#[cfg(feature = "rules")]
use super::shared_rules::{self, RulesCall, RulesServer};
use crate::clock::Clock;
use crate::local::Local;
use crate::metrics::BatchSizes;
use crate::request::settlement::{self, CounterChange};
use crate::request::sharing::in_redis;
use crate::request::{
    ChargeReply, CountedReply, DecisionReply, RefundInfo, Request, Settlement, StoreFailure, StoreReply,
};
use crate::store::redis::connection::server_connection::ConnectionContext;
use crate::store::redis::connection::topology::SlotGroup;
use crate::{Error, ErrorKind};

/// The settings of one worker.
pub(crate) struct WorkerSettings {
    pub(crate) naming: Arc<Naming>,
    /// The limiter's own deadline.
    pub(crate) deadline: Duration,
    /// The time limit of busy polling. Zero turns it off.
    pub(crate) busy_poll: Duration,
    pub(crate) clock: Clock,
    pub(crate) local: Arc<Local>,
    pub(crate) health: Arc<HealthBoard>,
    pub(crate) batch_sizes: BatchSizes,
    /// Tells callers whether notices about slots come.
    pub(crate) has_slot_notices: Arc<AtomicBool>,
    pub(crate) presence: PresenceOptions,
    pub(crate) followed_version: FollowedVersion,
}

/// The channels from the callers.
pub(crate) struct Receivers {
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    pub(crate) renewals: mpsc::UnboundedReceiver<Renewal>,
    pub(crate) slot_orders: mpsc::UnboundedReceiver<SlotOrder>,
    #[cfg(feature = "rules")]
    pub(crate) rules_calls: mpsc::UnboundedReceiver<RulesCall>,
    pub(crate) presence_calls: mpsc::UnboundedReceiver<PresenceCall>,
}

/// Starts the worker's thread. It runs until all senders of `calls` are dropped.
///
/// `ready` gets the result of the first attempt to connect.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn spawn(
    endpoint: Endpoint,
    gates: Arc<GateTable>,
    settings: WorkerSettings,
    receivers: Receivers,
    ready: Option<ReadySignal>,
) -> Result<(), Error> {
    let failed = |error| Error::with_source(ErrorKind::Unavailable, "the thread for Redis cannot be started", error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, async {
            let worker = Rc::new(Worker::start(endpoint, gates, settings, ready));
            worker.serve(receivers).await;
        });
        // An attempt to connect may be reading certificates on the blocking pool. The thread does not wait for it.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rate-limited".to_owned()).spawn(serve).map(drop).map_err(failed)
}

struct Worker {
    context: Rc<ConnectionContext>,
    topology: Rc<Topology>,
    local: Arc<Local>,
    keeper: Rc<Keeper>,
    deadlines: Rc<Deadlines>,
    busy_poll: Rc<BusyPoll>,
    batch_sizes: BatchSizes,
    /// The queue of each server that had a batch, with the task that sends batches when a permit is released.
    queues: RefCell<Vec<(Rc<BatchQueue>, AbortHandle)>>,
    slot_looks: RefCell<SlotLooks>,
    slot_queues: RefCell<Vec<Rc<LookQueue>>>,
    slot_losses: SlotLosses,
    slot_subscription: RefCell<Option<SlotSubscription>>,
    /// Taken when the worker begins to serve.
    presence: Cell<Option<Presence>>,
}

/// Calls that are received before the first of them is sent.
const MAX_RECEIVED_CALLS: usize = 256;

impl Worker {
    /// Starts to connect. It runs inside of a `LocalSet`.
    fn start(endpoint: Endpoint, gates: Arc<GateTable>, settings: WorkerSettings, ready: Option<ReadySignal>) -> Self {
        let WorkerSettings { naming, deadline, busy_poll, clock, local, health, batch_sizes, has_slot_notices, .. } =
            settings;
        let (options, followed_version, board) = (settings.presence, settings.followed_version, Arc::clone(&health));
        let deadlines = Rc::new(Deadlines::new(&local));
        let health = StoreHealth::new(health);
        let context =
            ConnectionContext::new(clock.clone(), naming, deadline, Arc::clone(&local), health, has_slot_notices);
        let context = Rc::new(context);
        let topology = Rc::new(Topology::start(endpoint, gates, &context, ready));
        let presence = Presence { options, topology: Rc::clone(&topology), health: board, followed_version };
        let keeper = Keeper::new(Arc::clone(&local), clock, &topology, deadline);
        Self {
            context,
            topology,
            local,
            keeper,
            deadlines,
            busy_poll: Rc::new(BusyPoll::new(busy_poll)),
            batch_sizes,
            queues: RefCell::default(),
            slot_looks: RefCell::default(),
            slot_queues: RefCell::default(),
            slot_losses: SlotLosses::default(),
            slot_subscription: RefCell::default(),
            presence: Cell::new(Some(presence)),
        }
    }

    /// Serves calls until all senders are dropped. Calls in flight end with the other tasks of the thread.
    async fn serve(self: Rc<Self>, receivers: Receivers) {
        #[cfg(feature = "rules")]
        spawn_local(shared_rules::serve(
            RulesServer::new(Rc::clone(&self.topology), &self.context.naming),
            receivers.rules_calls,
        ));
        let presence = self.presence.take();
        let presence =
            presence.map(|own| spawn_local(own.serve(Arc::clone(&self.context.naming), receivers.presence_calls)));
        spawn_local(Rc::clone(&self).serve_renewals(receivers.renewals));
        let slots = spawn_local(Rc::clone(&self).serve_slots(receivers.slot_orders));
        let mut calls = receivers.calls;
        let deadlines = Rc::clone(&self.deadlines);
        spawn_local(async move { deadlines.enforce().await });
        let busy_poll = Rc::clone(&self.busy_poll);
        spawn_local(async move { busy_poll.run().await });
        let (mut received, mut queues) = (Vec::new(), Vec::new());
        while calls.recv_many(&mut received, MAX_RECEIVED_CALLS).await > 0 {
            received.drain(..).for_each(|call| self.enqueue(call));
            // A batch that fails at once may add a queue.
            queues.extend(self.queues.borrow().iter().map(|(queue, _)| Rc::clone(queue)));
            queues.drain(..).for_each(|queue| self.send_batches(&queue));
        }
        // Calls that run may outlive the limiter. Their slots are renewed until they end.
        let _ = slots.await;
        if let Some(presence) = presence {
            // The instance is removed.
            let _ = presence.await;
        }
    }

    /// Serves requests for renewals until all senders are dropped.
    async fn serve_renewals(self: Rc<Self>, mut renewals: mpsc::UnboundedReceiver<Renewal>) {
        while let Some(renewal) = renewals.recv().await {
            self.renew(renewal);
        }
    }

    /// Serves a renewal in a task of its own.
    fn renew(self: &Rc<Self>, renewal: Renewal) {
        let worker = Rc::clone(self);
        spawn_local(async move {
            let released = worker.keeper.renew(renewal, Deadline::after(worker.context.deadline)).await;
            worker.send_released(released);
        });
    }

    /// Adds a call to the queue of its server, unless its caller has sent it. A call that cannot be batched, or whose
    /// server is not connected, gets a task of its own.
    fn enqueue(self: &Rc<Self>, mut call: Call) {
        if let Some(direct) = call.direct.take() {
            return self.take_over(call, *direct);
        }
        match self.topology.connected_owner_of(call.keys.first_slot()) {
            Some(connection) if call.can_be_batched => {
                let call = self.queue_of(&connection).push(call);
                self.deadlines.watch(&call);
            }
            _ => drop(spawn_local(Rc::clone(self).handle(call))),
        }
    }

    /// The queue of a connected server; a new one for its first call.
    fn queue_of(self: &Rc<Self>, connection: &Rc<ManagedConnection>) -> Rc<BatchQueue> {
        let mut queues = self.queues.borrow_mut();
        if let Some((queue, _)) = queues.iter().find(|(queue, _)| queue.is_of(connection)) {
            return Rc::clone(queue);
        }
        queues.retain(|(queue, sender)| {
            let is_used = !queue.is_orphaned() || !queue.is_empty();
            if !is_used {
                sender.abort();
            }
            is_used
        });
        let queue = Rc::new(BatchQueue::new(connection));
        let sender = spawn_local(Rc::clone(self).send_on_release(Rc::clone(&queue))).abort_handle();
        queues.push((Rc::clone(&queue), sender));
        queue
    }

    async fn handle(self: Rc<Self>, call: Call) {
        let result = self.decide_unbatched(&call).await;
        // The caller may have been dropped meanwhile.
        let _ = call.reply_to.send(result);
    }

    async fn decide_unbatched(self: &Rc<Self>, call: &Call) -> CallResult {
        let requests = call.requests();
        let groups = SlotGroup::of_decision(&call.action, &requests, call.keys.as_slice());
        self.until_ready(call, &requests, &groups).await?;
        let (deadline, is_split) = (call.deadline, Cell::new(false));
        let decision = MultiSlotCall { worker: self, requests: &requests, keys: &call.keys, deadline, is_split };
        match &call.action {
            Action::Take { .. } | Action::TakeWithReports => self.take(call, decision, groups).await,
            Action::Peek | Action::PeekWithReports | Action::FirstLook { .. } => {
                self.peek(call, decision, groups).await
            }
            Action::Charge => self.charge(call, decision, groups).await,
            Action::Refund(info) => self.refund(call, info, decision, groups).await,
            Action::Settle(settlement) => match settlement.once {
                Some(once) => self.settle_once(call, settlement, once, decision, groups).await,
                None => self.settle(call, settlement, decision, groups).await,
            },
            Action::Reset => self.reset(call, decision, groups).await,
        }
    }

    /// Waits until the servers of a call are connected.
    ///
    /// # Errors
    /// The call is not to be sent.
    async fn until_ready(
        &self,
        call: &Call,
        requests: &[Request<'_>],
        groups: &[SlotGroup],
    ) -> Result<(), StoreFailure> {
        let error = match timeout_at(call.deadline.instant, self.topology.ready(groups)).await {
            // It has not failed.
            Ok(Ok(())) if call.is_abandoned() => {
                return Err(StoreFailure { error: call.deadline.not_sent_error(), reservation: None });
            }
            // It waited behind too many others. Sent now, it would take permits for a caller that gets a timeout.
            Ok(Ok(())) if call.deadline.is_over() => call.deadline.not_sent_error(),
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => call.deadline.not_sent_error(),
        };
        Err(self.failure(requests, error))
    }

    async fn take(&self, call: &Call, decision: MultiSlotCall<'_>, groups: Vec<SlotGroup>) -> CallResult {
        let requests = call.with_slots(decision.requests);
        let begun = match &call.action {
            Action::TakeWithReports => self.local.begin_with_reports(requests, call.counter),
            action => {
                let begun = self.local.begin(requests, call.counter, action.max_wait().unwrap_or_default());
                begun.map_err(DecisionReply::from)
            }
        };
        let sent = match begun {
            Ok(sent) => sent,
            Err(denial) => return Ok(CountedReply::from_standby(denial)),
        };
        match decision.decide(call, groups).await {
            Ok(reply) => Ok(sent.settle(reply)),
            Err(error) => Err(sent.fail(error)),
        }
    }

    async fn peek(&self, call: &Call, decision: MultiSlotCall<'_>, groups: Vec<SlotGroup>) -> CallResult {
        let with_reports = matches!(call.action, Action::PeekWithReports);
        if let Some(denial) = self.local.peek_denial(call.with_slots(decision.requests), with_reports) {
            return Ok(denial);
        }
        let peeked = decision.decide(call, groups).await;
        let DecisionReply { reply, per_request } = peeked.map_err(|error| self.failure(decision.requests, error))?;
        Ok(CountedReply { per_request, ..CountedReply::from_store(reply, 0) })
    }

    async fn charge(&self, call: &Call, decision: MultiSlotCall<'_>, groups: Vec<SlotGroup>) -> CallResult {
        let charged = decision.decide(call, groups).await;
        let reply = charged.map_err(|error| self.failure(decision.requests, error))?;
        Ok(self.local.settle_charge(decision.requests, reply))
    }

    async fn refund(
        self: &Rc<Self>,
        call: &Call,
        info: &RefundInfo,
        decision: MultiSlotCall<'_>,
        groups: Vec<SlotGroup>,
    ) -> CallResult {
        let requests = decision.requests;
        if let Some(reply) = self.local.refund_lost(call.with_slots(requests), info) {
            return Ok(reply);
        }
        let refunded = match (requests, info.lease()) {
            ([request], Some(id)) => {
                let (permits, _) = request.refund_split(info.max_permits);
                let returned = ReturnedPermits { permits, id };
                self.keeper
                    .return_by_call(request, &call.keys, returned, call.deadline)
                    .await
                    .map(|()| StoreReply::ALLOWED)
            }
            _ => decision.decide(call, groups).await.map(|refunded| refunded.reply),
        };
        let reply = refunded.map_err(|error| self.failure(requests, error))?;
        self.local.settle_refund(requests, info);
        Ok(CountedReply::from_store(reply, 0))
    }

    /// Changes what a call counts. What is returned of permits that the store may have lost goes to the mirror alone, as that
    /// of a refund; what is added is charged all the same.
    async fn settle(
        self: &Rc<Self>,
        call: &Call,
        settlement: &Settlement,
        decision: MultiSlotCall<'_>,
        groups: Vec<SlotGroup>,
    ) -> CallResult {
        let requests = decision.requests;
        let failed = |error| self.failure(requests, error);
        let is_lost = self.local.is_lost(call.with_slots(requests), &settlement.info);
        let reply = match (requests, settlement.info.lease()) {
            _ if is_lost => {
                let charged = settlement::charged(&settlement.changes(requests, in_redis));
                let charge = MultiSlotCall { requests: &charged, ..decision };
                charge.charge(groups).await.map_err(failed)?
            }
            ([request], Some(id)) => {
                let [CounterChange { charged, returned, .. }] = settlement.changes(requests, in_redis)[..] else {
                    return Err(failed(call.deadline.not_sent_error()));
                };
                if returned > 0 {
                    let returned = ReturnedPermits { permits: returned, id };
                    self.keeper.return_by_call(request, &call.keys, returned, call.deadline).await.map_err(failed)?;
                }
                let reply = MultiSlotCall { requests: &[charged], ..decision }.charge(groups).await;
                // What is back is settled, whatever became of the level.
                reply.or_else(|error| match charged.cost {
                    0 => Ok(DecisionReply::of_charges(vec![ChargeReply::default()], 0)),
                    _ => Err(failed(error)),
                })?
            }
            _ => decision.decide(call, groups).await.map_err(failed)?,
        };
        Ok(self.local.settle_settlement(requests, settlement, reply))
    }

    async fn reset(&self, call: &Call, decision: MultiSlotCall<'_>, groups: Vec<SlotGroup>) -> CallResult {
        let reset = decision.decide(call, groups).await;
        let DecisionReply { reply, .. } = reset.map_err(|error| self.failure(decision.requests, error))?;
        self.local.invalidate_denials(decision.requests);
        Ok(CountedReply::from_store(reply, 0))
    }

    /// Records the failure of a call that took no permits, or was not sent.
    pub(super) fn failure(&self, requests: &[Request<'_>], error: Error) -> StoreFailure {
        self.local.fail(requests.iter().copied());
        StoreFailure { error, reservation: None }
    }
}
