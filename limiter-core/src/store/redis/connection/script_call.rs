//! One script call: to the owner of the slot, and on to the node that a redirect names.
//!
//! A call that may have been applied is never sent again. A call is sent again only after an error that proves that the
//! script did not run: NOSCRIPT (the script is loaded and called again), MOVED and ASK (the call goes to another node).
//! After TRYAGAIN no node has all keys of the call. Such a call ends and has to be split by key.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};

use super::in_flight_batches::InFlightPermit;
use super::managed::ManagedConnection;
use super::server_connection::{ConnectionContext, ServerConnection};
use super::topology::Topology;
use crate::Error;
use crate::store::redis::command_error::{CommandError, Redirect};
use crate::store::redis::pipelined::{DirectReply, ReplyBound};
use crate::store::redis::script::command::Command;

pub(crate) struct ScriptCall {
    context: Rc<ConnectionContext>,
    topology: Rc<Topology>,
    attempt: Rc<Attempt>,
    /// The permit of its batch, while the call is in flight to the server of the queue.
    permit: RefCell<Option<Rc<InFlightPermit>>>,
    needs_split: Cell<bool>,
}

/// The reply of one node.
struct NodeReply {
    connection: ServerConnection,
    /// The script epoch of the connection at the time of sending.
    script_epoch: u64,
    result: Result<Value, CommandError>,
}

/// Times that a call is sent again without a pause.
const MAX_IMMEDIATE_RETRIES: u32 = 2;

/// The pause before a call is sent again: 2 ms after the first refusal, doubled up to 8 ms. Nodes seldom disagree for
/// longer about a slot that moves, and a call waits for all of the last pause.
fn retry_pause(refusals: u32) -> Duration {
    Duration::from_millis(1 << refusals.min(3))
}

impl ScriptCall {
    pub(crate) fn new(
        context: &Rc<ConnectionContext>,
        topology: &Rc<Topology>,
        permit: Option<Rc<InFlightPermit>>,
    ) -> Self {
        Self {
            context: Rc::clone(context),
            topology: Rc::clone(topology),
            attempt: Rc::new(Attempt::new(context.deadline)),
            permit: RefCell::new(permit),
            needs_split: Cell::default(),
        }
    }

    pub(crate) fn attempt(&self) -> &Rc<Attempt> {
        &self.attempt
    }

    /// Releases the call's share of the permit: the server of the queue has nothing more to do for it.
    pub(crate) fn release_permit(&self) {
        self.permit.take();
    }

    /// Records that there was no reply in time.
    pub(crate) fn report_missed_reply(&self) {
        if let Some(permit) = &*self.permit.borrow() {
            permit.report_missed_reply();
        }
    }

    /// Returns whether the call failed only because its keys are on two nodes.
    pub(crate) fn needs_split(&self) -> bool {
        self.needs_split.get()
    }

    /// Calls the script and returns its reply. The caller enforces the deadline.
    pub(crate) async fn run(&self, command: &Command, slot: u16) -> Result<Value, Error> {
        let node = self.topology.owner_of(slot).await?;
        let reply = self.send(command, &node, false).await?;
        self.resolve(command, node, reply).await
    }

    /// Waits for the reply to a command that the caller has written to `node`, and goes on as [`run`](Self::run) does.
    ///
    /// `connection` is the one that it was written to; `None` if that is lost. An error says nothing about a later one.
    pub(crate) async fn run_direct(
        &self,
        command: &Command,
        node: Rc<ManagedConnection>,
        connection: Option<ServerConnection>,
        reply: DirectReply,
    ) -> Result<Value, Error> {
        let Some(connection) = connection else {
            // The reply may have come before.
            return Ok(CommandError::check_reply(reply.received().await)?);
        };
        let script_epoch = connection.script_epoch();
        let result = connection.receive_direct(reply).await;
        self.resolve(command, node, NodeReply { connection, script_epoch, result }).await
    }

    /// Sends the command to a node and waits for its reply.
    async fn send(&self, command: &Command, node: &ManagedConnection, is_asking: bool) -> Result<NodeReply, Error> {
        let connection = node.connected().await?;
        let script_epoch = connection.script_epoch();
        self.attempt.sent_on(&connection);
        let call = command.with_digest(&connection.digest(command.program()), &self.context.clock);
        let result = match is_asking {
            true => connection.send_asking(&call, ReplyBound::Script).await,
            false => connection.send(&call).await,
        };
        self.attempt.record_reply();
        Ok(NodeReply { connection, script_epoch, result })
    }

    /// Returns the value of a reply. After an error that proves that the script did not run, it sends the command again.
    async fn resolve(
        &self,
        command: &Command,
        mut node: Rc<ManagedConnection>,
        mut reply: NodeReply,
    ) -> Result<Value, Error> {
        let (mut is_asking, mut redirects, mut missing_scripts) = (false, 0, 0);
        loop {
            let NodeReply { connection, script_epoch, result } = reply;
            let error = match result {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if error.is_no_script() {
                // A server that was restarted or replaced behind this connection has lost its scripts and its counters.
                node.report_data_loss();
                connection.load_scripts(script_epoch, &self.context.scripts).await?;
                missing_scripts += 1;
                if missing_scripts > MAX_IMMEDIATE_RETRIES {
                    // There may be several servers behind one address.
                    sleep(retry_pause(missing_scripts - MAX_IMMEDIATE_RETRIES)).await;
                }
                reply = self.send(command, &node, is_asking).await?;
                continue;
            }
            redirects += 1;
            match error.redirect().filter(|_| self.topology.is_cluster()) {
                // It may take long until one node has all keys.
                Some(Redirect::TryAgain) if command.has_several_keys() => {
                    self.needs_split.set(true);
                    return Err(error.into());
                }
                Some(Redirect::TryAgain) => sleep(retry_pause(redirects)).await,
                Some(redirect) => {
                    self.release_permit();
                    is_asking = matches!(redirect, Redirect::Ask { .. });
                    node = match self.topology.follow_redirect(redirect, &node) {
                        Some(other) => other,
                        None => return Err(error.into()),
                    };
                    if redirects > MAX_IMMEDIATE_RETRIES {
                        sleep(retry_pause(redirects - MAX_IMMEDIATE_RETRIES)).await;
                    }
                }
                None => {
                    if error.is_loading() {
                        node.report_data_loss();
                    }
                    return Err(self.report(error, &connection));
                }
            }
            reply = self.send(command, &node, is_asking).await?;
        }
    }

    /// Reports an error to the connection or to the topology, and converts it.
    fn report(&self, error: CommandError, connection: &ServerConnection) -> Error {
        let is_cluster_down = error.is_cluster_down();
        let error = Error::from(error);
        if is_cluster_down {
            // It may be the whole cluster, or this slot alone.
            connection.request_write_probe();
            self.context.topology_changed.notify_one();
        } else {
            connection.report_error(&error);
        }
        error
    }
}

// The connection that a script call waits on.

/// The latest attempt of one script call: its connection, and the time at which it was sent.
///
/// Calls report here that their deadlines have passed. So they need not know the script call.
pub(crate) struct Attempt {
    latest: RefCell<Option<(ServerConnection, Instant)>>,
    /// The limiter's own deadline.
    deadline: Duration,
}

impl Attempt {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { latest: RefCell::default(), deadline }
    }

    /// Records that the call is sent on this connection now.
    pub(crate) fn sent_on(&self, connection: &ServerConnection) {
        self.latest.replace(Some((connection.clone(), Instant::now())));
    }

    /// Records the time of the reply that has just come, if it has.
    pub(crate) fn record_reply(&self) {
        if let Some((connection, sent_at)) = &*self.latest.borrow() {
            connection.record_reply_since(*sent_at);
        }
    }

    /// The time of the latest reply on its connection.
    pub(crate) fn replied_at(&self) -> Option<Instant> {
        self.latest.borrow().as_ref().map(|(connection, _)| connection.last_reply_at())
    }

    /// Reports that there was no reply within a call's deadline.
    pub(crate) fn report_timeout(&self) {
        if let Some((connection, sent_at)) = &*self.latest.borrow() {
            if sent_at.elapsed() >= self.deadline / 2 {
                connection.check_liveness(*sent_at);
            } else {
                // A short wait shows how busy this thread is, or how short the call's own deadline.
                connection.probe_within(self.deadline);
            }
        }
    }

    /// Reports that the reply was an error.
    pub(crate) fn report_error(&self, error: &Error) {
        if let Some((connection, _)) = &*self.latest.borrow() {
            connection.report_error(error);
        }
    }
}
