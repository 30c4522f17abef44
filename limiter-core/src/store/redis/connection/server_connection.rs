//! A connection that is up: sends commands, loads the scripts, and detects that it is lost.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::{Mutex, Notify};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout};

use super::gate_table::ServerGate;
use super::round_trip::RoundTrip;
use crate::clock::Clock;
use crate::local::Local;
use crate::request::Request;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::health::{ServerHealth, StoreHealth};
use crate::store::redis::known_slots::KnownSlots;
use crate::store::redis::naming::{Naming, RedisKey};
use crate::store::redis::pipelined::{DirectReply, MessageHandler, ReplyBound, WriteLoan};
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::Command;
use crate::store::redis::script::{PROGRAMS, Program, sources};
use crate::store::redis::server::DataConnection;
use crate::{Error, ErrorKind, Key, Layout, Limit};

/// A connection that is up, or was. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    pub(super) data: DataConnection,
    pub(super) state: Rc<ConnectionState>,
}

pub(super) struct ConnectionState {
    /// Notified when the connection is lost.
    lost: Arc<Notify>,
    /// The reason, if this process closed it.
    cause: RefCell<Option<Error>>,
    pub(super) last_reply_at: Cell<Instant>,
    pub(super) round_trip: RoundTrip,
    /// The digests of the programs, in the order of [`Program::ALL`].
    digests: RefCell<Arc<[Arc<str>]>>,
    /// Times that the scripts were loaded. Of many calls that miss a script only one loads them.
    script_epoch: Cell<u64>,
    loading: Mutex<()>,
    is_liveness_check_running: Cell<bool>,
    is_probe_running: Cell<bool>,
    /// Set when this process closes the connection: calls in flight on it fail at once.
    is_closed: Cell<bool>,
    closed: Notify,
    /// The limiter's own deadline.
    deadline: Duration,
    /// The health of the server, if it is tracked.
    health: Option<Rc<ServerHealth>>,
    write_loan: Option<WriteLoan>,
}

/// Time for the reply to a probe of a server that has not replied for a deadline, and for what is in the socket's
/// buffer.
const READ_TIME: Duration = Duration::from_millis(25);

impl ServerConnection {
    /// `server` has the health and the gate of the server, if calls use the connection.
    pub(crate) fn new(
        connection: DataConnection,
        lost: Arc<Notify>,
        deadline: Duration,
        server: Option<(Rc<ServerHealth>, &ServerGate)>,
    ) -> Self {
        let write_loan = server.as_ref().and_then(|(_, gate)| connection.write_loan(Arc::clone(&gate.direct_writer)));
        let state = ConnectionState {
            lost,
            cause: RefCell::default(),
            last_reply_at: Cell::new(Instant::now()),
            round_trip: RoundTrip::default(),
            digests: RefCell::new(Arc::new([""; PROGRAMS].map(Arc::from))),
            script_epoch: Cell::new(0),
            loading: Mutex::new(()),
            is_liveness_check_running: Cell::new(false),
            is_probe_running: Cell::new(false),
            is_closed: Cell::new(false),
            closed: Notify::new(),
            deadline,
            health: server.map(|(health, _)| health),
            write_loan,
        };
        Self { data: connection, state: Rc::new(state) }
    }

    /// Waits until the connection is lost. Returns the reason if this process closed it.
    pub(crate) async fn lost(&self) -> Option<Error> {
        self.state.lost.notified().await;
        self.state.cause.take().or_else(|| self.data.take_cause())
    }

    /// Sends TIME, which the limiter's user may run, and waits for the reply.
    ///
    /// # Errors
    /// Also [`ErrorKind::Protocol`] for the reply to another command. The connection is then out of step, and closed.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        match self.send(&redis::cmd("TIME")).await? {
            Value::Array(parts) if matches!(parts[..], [Value::BulkString(_), Value::BulkString(_)]) => Ok(()),
            _ => Err(self.close_out_of_step()),
        }
    }

    /// Closes the connection after the reply to another command than the one that was sent. Returns the error.
    pub(crate) fn close_out_of_step(&self) -> Error {
        let error = Error::new(ErrorKind::Protocol, "Redis has sent the reply to another command");
        self.close(error.clone());
        error
    }

    /// Sends a command after ASKING, to a node that does not own the slot yet.
    pub(crate) async fn send_asking(&self, command: &Cmd, bound: ReplyBound) -> Result<Value, CommandError> {
        let asking = redis::cmd("ASKING");
        self.receive(self.until_closed(self.data.send_behind(&asking, command, bound)).await)
    }

    /// Returns whether both are one connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.state, &other.state)
    }

    /// Subscribes to a channel. Returns whether its messages come.
    pub(crate) async fn subscribe(&self, channel: &str, handler: MessageHandler) -> bool {
        self.data.on_message(handler) && self.send(redis::cmd("SUBSCRIBE").arg(channel)).await.is_ok()
    }

    /// Sends a command that has a short reply.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, CommandError> {
        self.send_within(command, ReplyBound::Script).await
    }

    /// Sends a command. A reply longer than the bound closes the connection.
    pub(crate) async fn send_within(&self, command: &Cmd, bound: ReplyBound) -> Result<Value, CommandError> {
        let reply = self.data.send(command, bound);
        self.receive(match self.data {
            // It ends by itself when it is closed.
            DataConnection::Own(_) => reply.await,
            DataConnection::OfClient(_) => self.until_closed(reply).await,
        })
    }

    /// Sends a command and a second one behind it, and returns the reply to the first.
    pub(crate) async fn send_with_second(&self, command: Cmd, second: Cmd) -> Result<Value, CommandError> {
        let result = self.until_closed(self.data.send_all(&[command, second])).await;
        self.receive(result.map(|values| values.into_iter().next().unwrap_or(Value::Nil)))
    }

    /// The handle by which its write half is lent to callers, if calls use the connection and it is this crate's own.
    pub(crate) fn write_loan(&self) -> Option<&WriteLoan> {
        self.state.write_loan.as_ref()
    }

    /// Waits for the reply to a command that a caller has written.
    pub(crate) async fn receive_direct(&self, reply: DirectReply) -> Result<Value, CommandError> {
        self.receive(reply.received().await)
    }

    /// Waits for a reply until the connection is closed.
    async fn until_closed<T>(&self, reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let (mut reply, mut closed) = (pin!(reply), pin!(self.state.closed.notified()));
        poll_fn(|context| match reply.as_mut().poll(context) {
            Poll::Pending if self.state.is_closed.get() || closed.as_mut().poll(context).is_ready() => {
                Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()))
            }
            reply => reply,
        })
        .await
    }

    fn receive(&self, result: RedisResult<Value>) -> Result<Value, CommandError> {
        let result = CommandError::check_reply(result);
        if !matches!(&result, Err(error) if error.is_connection_lost()) {
            self.state.last_reply_at.set(Instant::now());
        }
        result
    }

    /// The time of the latest reply.
    pub(crate) fn last_reply_at(&self) -> Instant {
        self.state.last_reply_at.get()
    }

    /// Records the time of a reply that has just come, if it has, to a command that was sent at this time.
    pub(crate) fn record_reply_since(&self, sent_at: Instant) {
        self.state.round_trip.record(self.last_reply_at().saturating_duration_since(sent_at));
    }

    /// The times of its replies.
    pub(crate) fn round_trip(&self) -> &RoundTrip {
        &self.state.round_trip
    }

    /// The digest of a script on this server.
    pub(crate) fn digest(&self, program: Program) -> Arc<str> {
        Arc::clone(&self.state.digests.borrow()[program as usize])
    }

    /// The digests of all scripts on this server, in the order of [`Program::ALL`].
    pub(crate) fn digests(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.state.digests.borrow())
    }

    pub(crate) fn script_epoch(&self) -> u64 {
        self.state.script_epoch.get()
    }

    /// Loads the scripts, unless they were loaded since `script_epoch` was read.
    pub(crate) async fn load_scripts(&self, script_epoch: u64, sources: &[String; PROGRAMS]) -> Result<(), Error> {
        let _loading = self.state.loading.lock().await;
        if self.state.script_epoch.get() == script_epoch {
            for (program, source) in sources.iter().enumerate() {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(source);
                let sent_at = Instant::now();
                let reply = self.send(&load).await?;
                self.record_reply_since(sent_at);
                let digest: String = redis::from_redis_value(reply)
                    // Without the client's error: it repeats the whole reply.
                    .map_err(|_| Error::new(ErrorKind::Protocol, "SCRIPT LOAD gave no digest"))?;
                let mut digests = self.state.digests.borrow().to_vec();
                digests[program] = digest.into();
                self.state.digests.replace(digests.into());
            }
            self.state.script_epoch.set(script_epoch + 1);
        }
        Ok(())
    }

    /// Closes the connection if there was no reply since `sent_at`. The socket may still be open: the server hangs.
    ///
    /// First it probes the server, since it may be this process that stood still. The replies to calls that timed out
    /// meanwhile are not received. Replies come in the order of the commands, so the reply to the probe shows that the
    /// server has not stopped.
    pub(crate) fn check_liveness(&self, sent_at: Instant) {
        if self.state.last_reply_at.get() > sent_at || self.state.is_liveness_check_running.replace(true) {
            return;
        }
        let connection = self.clone();
        spawn_local(async move {
            let mut probe = pin!(connection.probe());
            let mut probed = timeout(READ_TIME, &mut probe).await;
            if probed.is_err() {
                for _ in 0..4 {
                    // From the socket to the task that reads it, and from there to this one, which may be late itself.
                    yield_now().await;
                }
                probed = timeout(Duration::ZERO, probe).await;
            }
            connection.state.is_liveness_check_running.set(false);
            if probed.is_err() && connection.state.last_reply_at.get() <= sent_at {
                connection.close(Error::new(ErrorKind::Unavailable, "Redis has stopped answering"));
            }
        });
    }

    /// Reports that there was no reply within the deadline of a call that was sent at this time.
    pub(crate) fn report_timeout(&self, sent_at: Instant) {
        if sent_at.elapsed() >= self.state.deadline / 2 {
            self.check_liveness(sent_at);
        } else {
            // A short wait shows how busy this thread is, or how short the call's own deadline.
            self.probe_within_deadline();
        }
    }

    /// Probes the server, and checks liveness if it does not reply within the limiter's own deadline.
    ///
    /// For a call whose deadline was shorter than a server may take: its timeout alone proves nothing.
    pub(crate) fn probe_within_deadline(&self) {
        if self.state.is_probe_running.replace(true) {
            return;
        }
        let (connection, sent_at) = (self.clone(), Instant::now());
        spawn_local(async move {
            let is_silent = timeout(connection.state.deadline, connection.probe()).await.is_err();
            connection.state.is_probe_running.set(false);
            if is_silent {
                connection.check_liveness(sent_at);
            }
        });
    }

    /// Records the server's error reply to a call in its health, and closes the connection if it is of no more use.
    pub(crate) fn report_error(&self, error: &Error) {
        if let Some(health) = &self.state.health {
            health.call_failed(error);
        }
        self.close_after(error);
    }

    /// Closes the connection after an error that later calls on it would get too.
    pub(crate) fn close_after(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly) {
            self.close(error.clone());
        }
    }

    fn close(&self, cause: Error) {
        self.state.cause.replace(Some(cause));
        self.state.lost.notify_one();
        self.state.is_closed.set(true);
        self.state.closed.notify_waiters();
        self.data.close();
    }
}

// The write probe: a decision on a key of the limiter's own.
//
// A replica and a server without memory reply to every read. Only a write shows that they accept no permits. The probe
// is the script call of a decision, so it needs no other commands, keys or permissions than calls do.

/// The result of a successful probe.
pub(crate) enum Written {
    /// The server accepts writes.
    Here,
    /// The server replied that another node owns the slot.
    Elsewhere,
}

/// The window of the probe's counter, after which the key expires. It is deleted at once, if the user may do that.
const WINDOW: Duration = Duration::from_millis(100);

impl ServerConnection {
    /// Takes a permit of a counter in one of these slots, and deletes the counter. A server without slots is probed by a
    /// read. `on_missing_scripts` runs before the scripts are loaded again: a server without them was restarted or
    /// replaced behind its connection.
    ///
    /// # Errors
    /// The server's error.
    pub(crate) async fn probe_write(
        &self,
        context: &ConnectionContext,
        slots: &[RangeInclusive<u16>],
        on_missing_scripts: impl Fn(),
    ) -> Result<Written, Error> {
        let Some([name, zset_name]) = context.naming.probe_keys(slots) else {
            return self.probe().await.map(|()| Written::Here);
        };
        let mut taken = self.take_probe(context, &name, Layout::Compact, &on_missing_scripts).await?;
        if matches!(&taken, Err(error) if error.is_key_refused()) {
            // A user with sorted sets alone may not write under the prefix. For others this is refused too.
            taken = self.take_probe(context, &zset_name, Layout::Zset, &on_missing_scripts).await?;
        }
        match taken {
            Ok(()) => Ok(Written::Here),
            Err(error) if context.naming.is_cluster() && error.redirect().is_some() => Ok(Written::Elsewhere),
            // The scripts are flushed again and again. The server replies properly.
            Err(error) if error.is_no_script() => Ok(Written::Here),
            Err(error) => match Error::from(error) {
                // Another program uses the key. That concerns no call.
                error if error.kind() == ErrorKind::Protocol => Ok(Written::Here),
                error => Err(error),
            },
        }
    }

    /// Takes a permit. The outer error is that of the connection, the inner one the reply of the server.
    async fn take_probe(
        &self,
        context: &ConnectionContext,
        name: &str,
        layout: Layout,
        on_missing_scripts: &impl Fn(),
    ) -> Result<Result<(), CommandError>, Error> {
        let command = probe_command(name, layout);
        let script_epoch = self.script_epoch();
        let mut sent = self.send_probe(context, &command, name).await;
        if matches!(&sent, Err(error) if error.is_no_script()) {
            on_missing_scripts();
            self.load_scripts(script_epoch, &context.scripts).await?;
            sent = self.send_probe(context, &command, name).await;
        }
        match sent.map(|reply| command.decode(&reply)) {
            Ok(Ok(_)) => Ok(Ok(())),
            Ok(Err(_)) => Err(self.close_out_of_step()),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn send_probe(
        &self,
        context: &ConnectionContext,
        command: &Command,
        name: &str,
    ) -> Result<Value, CommandError> {
        let call = command.with_digest(&self.digest(command.program()), &context.clock);
        let mut delete = redis::cmd("DEL");
        delete.arg(name);
        let sent_at = Instant::now();
        let reply = self.send_with_second(call, delete).await;
        self.record_reply_since(sent_at);
        reply
    }
}

/// The script call that takes a permit of a counter which is never used up.
fn probe_command(name: &str, layout: Layout) -> Command {
    let sliding = Limit::nearest(u32::MAX, WINDOW);
    let limit = sliding.with_layout(layout).unwrap_or(sliding);
    let key = Key::new("");
    // It is sent on one connection, which no slot selects.
    Command::decide(&Action::TAKE_NOW, &[Request::new(&key, limit, 1)], vec![RedisKey { slot: 0, name: name.into() }])
}

// The state that all connections of one worker share.

/// The settings and the local state of one worker, as its connections use them.
pub(crate) struct ConnectionContext {
    pub(crate) scripts: [String; PROGRAMS],
    pub(crate) clock: Clock,
    pub(crate) naming: Arc<Naming>,
    /// The limiter's own deadline. A server that comes back must reply within it.
    pub(crate) deadline: Duration,
    pub(crate) local: Arc<Local>,
    pub(crate) health: Rc<StoreHealth>,
    /// The keys with slots of this process.
    pub(crate) slots: Rc<KnownSlots>,
    /// Notified when a connection is lost or the map of slots is out of date.
    pub(crate) topology_changed: Notify,
}

impl ConnectionContext {
    pub(crate) fn new(
        clock: Clock,
        naming: Arc<Naming>,
        deadline: Duration,
        local: Arc<Local>,
        health: Rc<StoreHealth>,
        has_slot_notices: Arc<AtomicBool>,
    ) -> Self {
        let (scripts, topology_changed) = (sources(&clock), Notify::new());
        let slots = Rc::new(KnownSlots::new(has_slot_notices));
        Self { scripts, clock, naming, deadline, local, health, slots, topology_changed }
    }
}

#[cfg(test)]
mod tests;
