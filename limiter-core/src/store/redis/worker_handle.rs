//! The callers' side of a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;

use super::connection::gate_table::GateTable;
use super::endpoint::{Endpoint, ReadySignal, worker_stopped};
use super::health::HealthBoard;
use super::naming::{Naming, RedisKeys};
use super::notifier::LogThrottle;
use super::presence::PresenceCall;
use super::script::action::Action;
#[cfg(feature = "rules")]
use super::shared_rules::RulesCall;
use super::worker::call::{Call, CallResult};
use super::worker::direct_sender::DirectSender;
use super::worker::slots::SlotSender;
use super::worker::{self, Receivers, Renewal, WorkerSettings};
use crate::Error;
use crate::health::Health;
use crate::local::StoreTicket;
use crate::metrics::BatchSizes;
use crate::request::{CountedReply, OwnedRequest, Request, StoreFailure};
use crate::store::redis::worker::call::{InFlight, InFlightCall};
use crate::store::redis::worker::direct_sender::CallerPoll;
use crate::sync::process::AtHome;

#[cfg(test)]
mod tests;

/// A handle to the worker of one process, with the state that the worker and its callers share.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// The channel to the worker.
    calls: mpsc::UnboundedSender<Call>,
    renewals: mpsc::UnboundedSender<Renewal>,
    slots: SlotSender,
    #[cfg(feature = "rules")]
    rules_calls: mpsc::UnboundedSender<RulesCall>,
    presence_calls: mpsc::UnboundedSender<PresenceCall>,
    gates: Arc<GateTable>,
    direct: DirectSender,
    health: Arc<HealthBoard>,
    in_flight: InFlight,
    log: LogThrottle,
    batch_sizes: BatchSizes,
    /// The time limit of busy polling. Zero turns it off.
    busy_poll: Duration,
}

impl WorkerHandle {
    pub(crate) fn start(
        endpoint: &Endpoint,
        settings: WorkerSettings,
        max_in_flight: u32,
        ready: Option<ReadySignal>,
    ) -> Result<Self, Error> {
        let (calls, receiver) = mpsc::unbounded_channel();
        let (renewals, renewals_receiver) = mpsc::unbounded_channel();
        let (slots, slot_orders) = mpsc::unbounded_channel();
        #[cfg(feature = "rules")]
        let (rules_calls, rules_receiver) = mpsc::unbounded_channel();
        let (presence_calls, presence_receiver) = mpsc::unbounded_channel();
        let receivers = Receivers {
            calls: receiver,
            renewals: renewals_receiver,
            slot_orders,
            #[cfg(feature = "rules")]
            rules_calls: rules_receiver,
            presence_calls: presence_receiver,
        };
        let gates = Arc::new(match endpoint {
            Endpoint::Single(_) => GateTable::single(),
            Endpoint::Cluster(_) => GateTable::by_slot(),
        });
        let (local, health) = (Arc::clone(&settings.local), Arc::clone(&settings.health));
        let (batch_sizes, busy_poll) = (settings.batch_sizes.clone(), settings.busy_poll);
        let has_notices = Arc::clone(&settings.has_slot_notices);
        let direct = DirectSender::new(Arc::clone(&gates), settings.clock.clone(), local, batch_sizes.clone());
        worker::spawn(endpoint.clone_without_state(), Arc::clone(&gates), settings, receivers, ready)?;
        Ok(Self {
            calls,
            renewals,
            slots: SlotSender { orders: slots, has_notices },
            #[cfg(feature = "rules")]
            rules_calls,
            presence_calls,
            gates,
            direct,
            health,
            in_flight: InFlight::new(max_in_flight),
            log: LogThrottle::new(endpoint.to_string()),
            batch_sizes,
            busy_poll,
        })
    }

    pub(crate) fn health(&self) -> Health {
        self.health.health()
    }

    /// Sends a request for a renewal to the worker.
    pub(crate) fn send_renewal(&self, renewal: Renewal) {
        // The worker ends only with this store.
        let _ = self.renewals.send(renewal);
    }

    /// The way of orders about slots to the worker.
    pub(crate) fn slot_sender(&self) -> SlotSender {
        self.slots.clone()
    }

    /// Sends a question about the limiters that live to the worker.
    pub(crate) fn send_presence_call(&self, call: PresenceCall) {
        // The worker ends only with this store.
        let _ = self.presence_calls.send(call);
    }

    /// Sends an operation on the shared rules to the worker.
    #[cfg(feature = "rules")]
    pub(crate) fn send_rules_call(&self, call: RulesCall) {
        // The worker ends only with this store.
        let _ = self.rules_calls.send(call);
    }

    /// Sends a call, at once, and returns a future of the reply.
    ///
    /// # Errors
    /// The open breaker's error, at once; the store's failure, at the deadline at the latest.
    pub(crate) fn call(
        &self,
        ticket: StoreTicket,
        action: Action,
        requests: &[Request<'_>],
        naming: &Naming,
        timeout: Duration,
    ) -> impl Future<Output = CallResult> + use<'_> {
        let takes_permits = action.max_wait().is_some() && requests.iter().any(|request| request.own_take() > 0);
        let sent = self.send(ticket, action, requests, naming, timeout).map(AtHome::new);
        self.receive(sent, takes_permits)
    }

    /// Waits for the reply to a call.
    async fn receive(&self, sent: Result<AtHome<SentCall<'_>>, Error>, takes_permits: bool) -> CallResult {
        let result = match sent {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => return Err(StoreFailure { error, reservation: None }),
        };
        self.batch_sizes.record();
        match &result {
            // The store took permits, so it accepts writes.
            Ok(counted) if takes_permits && counted.is_store_admission() => self.log.on_success(),
            Ok(_) => {}
            Err(failure) => self.log.on_failure(&failure.error),
        }
        result
    }

    /// Counts a call on keys in these slots in flight.
    ///
    /// # Errors
    /// That of an open breaker, and else that of too many calls in flight.
    fn enter(&self, slots: &[u16]) -> Result<InFlightCall<'_>, Error> {
        if let Some(error) = self.gates.open_error(slots) {
            return Err(error);
        }
        self.in_flight.enter().inspect_err(|error| {
            self.batch_sizes.record();
            self.log.on_failure(error);
        })
    }

    /// Sends a call to the worker. It is not async, so that the future of a call does not contain the arguments.
    fn send(
        &self,
        ticket: StoreTicket,
        action: Action,
        requests: &[Request<'_>],
        naming: &Naming,
        timeout: Duration,
    ) -> Result<SentCall<'_>, Error> {
        let (keys, in_flight) = if naming.is_cluster() {
            let keys = RedisKeys::new(requests, naming)?;
            let in_flight = self.enter(keys.slots())?;
            (keys, in_flight)
        } else {
            naming.check_exposure(requests)?;
            // A single server needs no slots. So a flood above the bound writes no names.
            let in_flight = self.enter(&[])?;
            (RedisKeys::new(requests, naming)?, in_flight)
        };
        let (reply_to, reply) = oneshot::channel();
        let mut call = Call::new(ticket, action, requests, keys, timeout, reply_to);
        let (requests, mut polled) = (Arc::clone(&call.requests), None);
        self.direct.send(&mut call);
        if !self.busy_poll.is_zero() && call.direct.as_ref().is_some_and(|direct| direct.is_polled()) {
            polled = Some(Box::new(CallerPoll::new(call, &self.direct, &self.calls, self.busy_poll.min(timeout))));
        } else {
            // The worker replies to every call that it receives, and ends only with this store.
            let _ = self.calls.send(call);
        }
        Ok(SentCall { polled, reply, requests: Some(requests), _in_flight: in_flight })
    }
}

/// A call that was sent to the worker, or to the server by its caller. As a future it is the reply.
struct SentCall<'a> {
    /// The call, while its caller polls for the reply.
    polled: Option<Box<CallerPoll<'a>>>,
    reply: oneshot::Receiver<CallResult>,
    /// The copied requests, until there is a reply.
    requests: Option<Arc<[OwnedRequest]>>,
    _in_flight: InFlightCall<'a>,
}

impl Future for SentCall<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        if let Some(polled) = &mut self.polled {
            let counted = ready!(Pin::new(polled).poll(context));
            self.polled = None;
            if let Some(counted) = counted {
                return Poll::Ready(Ok(CountedReply { requests: self.requests.take(), ..counted }));
            }
        }
        // Tokio's budget does not apply. A task without budget would be woken at once, and an executor that blocks inside
        // of a task would poll in vain for ever.
        let reply = ready!(Pin::new(&mut unconstrained(&mut self.reply)).poll(context));
        let stopped = |_| Err(StoreFailure { error: worker_stopped(), reservation: None });
        let requests = self.requests.take();
        Poll::Ready(reply.unwrap_or_else(stopped).map(|counted| CountedReply { requests, ..counted }))
    }
}
