//! The thread that talks to Redis, as its callers see it.

use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::call::{Action, Call, Reply, Until};
use super::in_flight::InFlight;
use super::notices::Notices;
use super::routes::Routes;
use super::{Connected, Options, Place, driver, stopped};
use crate::Error;
use crate::guard::{Failure, Local};
use crate::store::naming::Naming;
use crate::store::{Asked, Question};
use crate::sync::process::{DroppedAtHome, forked, is_this};

/// A handle to the thread of one process, with all that the thread and its callers share.
#[derive(Debug)]
pub(super) struct Worker {
    /// Not dropped in a child of `fork`: that would wake the parent's thread, by a descriptor that both have.
    calls: DroppedAtHome<mpsc::UnboundedSender<Call>>,
    routes: Arc<Routes>,
    local: Local,
    in_flight: InFlight,
    notices: Notices,
}

impl Worker {
    pub(super) fn start(
        place: &Place,
        options: &Options,
        local: Local,
        connected: Option<Connected>,
    ) -> Result<Self, Error> {
        let (calls, queue) = mpsc::unbounded_channel();
        let routes = Arc::new(match place {
            Place::One(_) => Routes::one(),
            Place::Cluster(_) => Routes::slots(),
        });
        driver::spawn(place.anew(), Arc::clone(&routes), driver::Settings::of(options, &local), queue, connected)?;
        Ok(Self {
            calls: DroppedAtHome::new(calls),
            routes,
            local,
            in_flight: InFlight::new(options.max_in_flight),
            notices: Notices::default(),
        })
    }

    pub(super) fn local(&self) -> &Local {
        &self.local
    }

    /// Why the questions need not be asked, if so.
    pub(super) fn refusal(&self, questions: &[Question<'_>], naming: &Naming) -> Option<Error> {
        self.routes.refusal(questions, naming)
    }

    /// The store has written something.
    pub(super) fn written(&self) {
        self.notices.written();
    }

    pub(super) async fn ask(&self, action: Action, questions: &[Question<'_>], within: Duration) -> Reply {
        let mut reply = self.answer(action, questions, within).await;
        if let Err(failure) = &mut reply {
            self.notices.failed(&failure.error);
        }
        reply
    }

    async fn answer(&self, action: Action, questions: &[Question<'_>], within: Duration) -> Reply {
        let failure = |error| Failure { error, held: None };
        let _place = self.in_flight.enter().map_err(failure)?;
        let (reply, mut answer) = oneshot::channel();
        let asked = Asked::all(questions);
        let call = Call { action, asked: Arc::clone(&asked), until: Until::within(within), reply };
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
        settled.asked = Some(asked);
        Ok(settled)
    }
}
