//! One script call: to whoever serves the slot, and on to whoever it says does.
//!
//! What may have been applied is never sent again. What is sent again was refused before it ran: NOSCRIPT (the script is
//! loaded and called), MOVED and ASK (another node is asked). After TRYAGAIN, which says that no node has all keys of a call,
//! the call ends as torn, and its keys are for calls of their own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use crate::Error;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::connection::context::ConnectionContext;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::connection::topology::Topology;
use crate::store::redis::script::Command;
use crate::store::redis::worker::batch::InFlightPermit;

pub(crate) struct ScriptCall {
    terms: Rc<ConnectionContext>,
    nodes: Rc<Topology>,
    /// What an answer is waited for from, and since when.
    under_way: RefCell<Option<(ServerConnection, Instant)>>,
    /// Its part of the place that it takes in a server's lane.
    seat: RefCell<Option<Rc<InFlightPermit>>>,
    /// Refused because its keys are in two places, while a slot moves.
    torn: Cell<bool>,
}

/// A call that was moved so often is not sent on without a pause.
const AT_ONCE: u32 = 2;

/// The pause before a call is sent again that was refused so often.
fn pause(refused: u32) -> Duration {
    Duration::from_millis(1 << refused.min(5))
}

impl ScriptCall {
    pub(crate) fn new(terms: &Rc<ConnectionContext>, nodes: &Rc<Topology>) -> Self {
        let (terms, nodes) = (Rc::clone(terms), Rc::clone(nodes));
        Self { terms, nodes, under_way: RefCell::default(), seat: RefCell::default(), torn: Cell::default() }
    }

    pub(crate) fn taking(self, seat: Option<Rc<InFlightPermit>>) -> Self {
        Self { seat: RefCell::new(seat), ..self }
    }

    /// The server of the lane has nothing more to do for it.
    pub(crate) fn leave(&self) {
        // Given up after it is taken out: others depart by that.
        let seat = self.seat.take();
        drop(seat);
    }

    /// Calls the script; nobody waits longer than until the call's deadline, which is the caller's to watch.
    pub(crate) async fn call(&self, command: &Command, slot: u16) -> Result<Value, Error> {
        let mut link = self.nodes.serving(slot).await?;
        let (mut asking, mut refused, mut missed) = (false, 0, 0);
        loop {
            let wire = link.wire().await?;
            let loads = wire.loads();
            self.under_way.replace(Some((wire.clone(), Instant::now())));
            let call = command.with(&wire.digest(command.program()));
            let sent = if asking { wire.send_asking(call).await } else { wire.send(call).await };
            let refusal = match sent {
                Ok(value) => return Ok(value),
                Err(refusal) => refusal,
            };
            if refusal.is_no_script() {
                // A server that was restarted or replaced behind this connection forgets its scripts, too.
                link.failed();
                wire.reload(loads, &self.terms.scripts).await?;
                missed += 1;
                if missed > AT_ONCE {
                    // Several servers behind one address, perhaps.
                    sleep(pause(missed - AT_ONCE)).await;
                }
                continue;
            }
            refused += 1;
            match refusal.redirect().filter(|_| self.nodes.are_of_a_cluster()) {
                // It may take long until one node has all keys. They are requested one by one.
                Some(Redirect::TryAgain) if command.has_several_keys() => {
                    self.torn.set(true);
                    return Err(refusal.into());
                }
                Some(Redirect::TryAgain) => sleep(pause(refused)).await,
                Some(redirect) => {
                    self.leave();
                    asking = matches!(redirect, Redirect::Ask { .. });
                    link = match self.nodes.instead(redirect, &link) {
                        Some(other) => other,
                        None => return Err(refusal.into()),
                    };
                    if refused > AT_ONCE {
                        sleep(pause(refused - AT_ONCE)).await;
                    }
                }
                None => {
                    if refusal.is_loading() {
                        link.failed();
                    }
                    return Err(self.failed(refusal, &wire));
                }
            }
        }
    }

    /// Whether nothing came of it but that its keys have to be asked about apart.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn.get()
    }

    fn failed(&self, refusal: CommandError, wire: &ServerConnection) -> Error {
        let is_cluster_down = refusal.is_cluster_down();
        let error = Error::from(refusal);
        if is_cluster_down {
            self.terms.lost.notify_one();
        } else {
            wire.failed(&error);
        }
        error
    }

    /// The answer was an error of one of several decisions.
    pub(crate) fn failed_in_part(&self, error: &Error) {
        if let Some((wire, _)) = &*self.under_way.borrow() {
            wire.failed(error);
        }
    }

    /// The call was not answered in time.
    pub(crate) fn late(&self) {
        if let Some((wire, since)) = &*self.under_way.borrow() {
            if since.elapsed() >= self.terms.deadline / 2 {
                wire.unanswered_since(*since);
            } else {
                // That says more of how busy this thread is, or how short the call's own deadline.
                wire.probe_within(self.terms.deadline);
            }
        }
    }
}
