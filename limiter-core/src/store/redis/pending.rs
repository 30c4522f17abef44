//! A call that waits, among others, for its answer.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::call::{Call, Reply, Until};
use super::exchange::Exchange;
use super::link::Link;
use crate::Error;
use crate::guard::Failure;
use crate::store::{Answer, Asked, Question};

/// Takes permits of one count. It is answered once, by whoever comes first: its group, or its deadline.
pub(super) struct Pending {
    /// One question.
    asked: Arc<[Asked]>,
    pub(super) until: Until,
    reply: RefCell<Option<oneshot::Sender<Reply>>>,
    /// Permits that the stand-in holds for it meanwhile.
    pub(super) held: Cell<Option<Answer>>,
    /// Whom it waits for.
    link: Weak<Link>,
    /// Where it is under way, once it is.
    flight: RefCell<Option<Rc<Exchange>>>,
}

impl Pending {
    pub(super) fn of(call: Call, link: Weak<Link>) -> Rc<Self> {
        let Call { asked, until, reply, .. } = call;
        let reply = RefCell::new(Some(reply));
        Rc::new(Self { asked, until, reply, held: Cell::default(), link, flight: RefCell::default() })
    }

    pub(super) fn question(&self) -> Question<'_> {
        self.asked[0].question()
    }

    pub(super) fn is_answered(&self) -> bool {
        self.reply.borrow().is_none()
    }

    /// Whether anybody still waits for an answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.reply.borrow().as_ref().is_some_and(|reply| !reply.is_closed())
    }

    pub(super) fn was_sent(&self) -> bool {
        self.flight.borrow().is_some()
    }

    pub(super) fn sent(&self, exchange: &Rc<Exchange>) {
        self.flight.replace(Some(Rc::clone(exchange)));
    }

    pub(super) fn answer(&self, reply: Reply) {
        if let Some(sender) = self.reply.take() {
            // The caller may have been dropped meanwhile.
            let _ = sender.send(reply);
        }
    }

    pub(super) fn fail(&self, error: Error) {
        self.answer(Err(Failure { error, held: self.held.get() }));
    }

    /// Reports to the connection that its time is over. A call that was not sent reports for all that wait where it does, so
    /// one of many is enough: `reported` is where the last one waited.
    pub(super) fn report_silence(&self, reported: &mut Weak<Link>) {
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
