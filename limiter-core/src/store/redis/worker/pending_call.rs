//! A call that waits, among others, for its answer.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::Error;
use crate::request::StoreFailure;
use crate::request::{OwnedRequest, Request, StoreReply};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::script_call::ScriptCall;
use crate::store::redis::worker::call::{Call, Deadline, Reply};

/// Takes permits of one count. It is answered once, by whoever comes first: its group, or its deadline.
pub(crate) struct PendingCall {
    /// One request.
    asked: Arc<[OwnedRequest]>,
    pub(crate) until: Deadline,
    reply: RefCell<Option<oneshot::Sender<Reply>>>,
    /// Permits that the stand-in holds for it meanwhile.
    pub(crate) reservation: Cell<Option<StoreReply>>,
    /// Whom it waits for.
    link: Weak<ManagedConnection>,
    /// Where it is under way, once it is.
    flight: RefCell<Option<Rc<ScriptCall>>>,
}

impl PendingCall {
    pub(crate) fn of(call: Call, link: Weak<ManagedConnection>) -> Rc<Self> {
        let Call { asked, until, reply, .. } = call;
        let reply = RefCell::new(Some(reply));
        Rc::new(Self { asked, until, reply, reservation: Cell::default(), link, flight: RefCell::default() })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        self.asked[0].as_request()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.reply.borrow().is_none()
    }

    /// Whether anybody still waits for an answer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.reply.borrow().as_ref().is_some_and(|reply| !reply.is_closed())
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.flight.borrow().is_some()
    }

    pub(crate) fn sent(&self, exchange: &Rc<ScriptCall>) {
        self.flight.replace(Some(Rc::clone(exchange)));
    }

    pub(crate) fn answer(&self, reply: Reply) {
        if let Some(sender) = self.reply.take() {
            // The caller may have been dropped meanwhile.
            let _ = sender.send(reply);
        }
    }

    pub(crate) fn fail(&self, error: Error) {
        self.answer(Err(StoreFailure { error, reservation: self.reservation.get() }));
    }

    /// Reports to the connection that its time is over. A call that was not sent reports for all that wait where it does, so
    /// one of many is enough: `reported` is where the last one waited.
    pub(crate) fn report_silence(&self, reported: &mut Weak<ManagedConnection>) {
        if let Some(exchange) = &*self.flight.borrow() {
            exchange.late();
        } else if !Weak::ptr_eq(reported, &self.link)
            && let Some(link) = self.link.upgrade()
        {
            link.lane().late();
            reported.clone_from(&self.link);
        }
    }
}
