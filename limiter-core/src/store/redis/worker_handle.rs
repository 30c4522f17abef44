//! The thread that talks to Redis, as its callers see it.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::Error;
use crate::local::LocalState;
use crate::request::StoreFailure;
use crate::request::{OwnedRequest, Request};
use crate::store::naming::Naming;
use crate::store::redis::connection::breaker_table::BreakerTable;
use crate::store::redis::log_throttle::LogThrottle;
use crate::store::redis::ready_signal::stopped;
use crate::store::redis::worker::call::{Action, Call, Deadline, Reply};
use crate::store::redis::worker::in_flight::InFlight;
use crate::store::redis::{Endpoint, Options, ReadySignal, worker};
use crate::sync::process::{DroppedAtHome, forked, is_this};

/// A handle to the thread of one process, with all that the thread and its callers share.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// Not dropped in a child of `fork`: that would wake the parent's thread, by a descriptor that both have.
    calls: DroppedAtHome<mpsc::UnboundedSender<Call>>,
    routes: Arc<BreakerTable>,
    local: LocalState,
    in_flight: InFlight,
    notices: LogThrottle,
}

impl WorkerHandle {
    pub(crate) fn start(
        place: &Endpoint,
        options: &Options,
        local: LocalState,
        connected: Option<ReadySignal>,
    ) -> Result<Self, Error> {
        let (calls, queue) = mpsc::unbounded_channel();
        let routes = Arc::new(match place {
            Endpoint::One(_) => BreakerTable::one(),
            Endpoint::Cluster(_) => BreakerTable::slots(),
        });
        worker::spawn(place.anew(), Arc::clone(&routes), worker::Settings::of(options, &local), queue, connected)?;
        Ok(Self {
            calls: DroppedAtHome::new(calls),
            routes,
            local,
            in_flight: InFlight::new(options.max_in_flight),
            notices: LogThrottle::default(),
        })
    }

    pub(crate) fn local(&self) -> &LocalState {
        &self.local
    }

    /// Why the requests need not be asked, if so.
    pub(crate) fn refusal(&self, requests: &[Request<'_>], naming: &Naming) -> Option<Error> {
        self.routes.refusal(requests, naming)
    }

    /// The store has written something.
    pub(crate) fn written(&self) {
        self.notices.written();
    }

    pub(crate) async fn ask(&self, action: Action, requests: &[Request<'_>], within: Duration) -> Reply {
        let mut reply = self.answer(action, requests, within).await;
        if let Err(failure) = &mut reply {
            self.notices.failed(&failure.error);
        }
        reply
    }

    async fn answer(&self, action: Action, requests: &[Request<'_>], within: Duration) -> Reply {
        let failure = |error| StoreFailure { error, reservation: None };
        let _place = self.in_flight.enter().map_err(failure)?;
        let (reply, mut answer) = oneshot::channel();
        let asked = OwnedRequest::copy_all(requests);
        let call = Call { action, asked: Arc::clone(&asked), until: Deadline::within(within), reply };
        if let Some(calls) = self.calls.get() {
            // The thread answers every call it takes, and ends only with this store.
            let _ = calls.send(call);
        }
        let mut was_polled = false;
        let mut settled = poll_fn(|context| match Pin::new(&mut answer).poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer.unwrap_or_else(|_| Err(failure(stopped())))),
            // Polled in a child of the process that sent it: the answer goes to the parent.
            Poll::Pending if mem::replace(&mut was_polled, true) && !is_this(self.calls.process()) => {
                Poll::Ready(Err(failure(forked())))
            }
            Poll::Pending => Poll::Pending,
        })
        .await?;
        settled.requests = Some(asked);
        Ok(settled)
    }
}
