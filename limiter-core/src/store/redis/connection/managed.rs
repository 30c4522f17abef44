//! The connection to one server. A background task reconnects it, so no call waits for that.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::gate_table::ServerGate;
use super::round_trip::Length;
use super::server_connection::{ConnectionContext, ServerConnection, Written};
use crate::clock::Moment;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::endpoint::ReadySignal;
use crate::store::redis::health::ServerHealth;
use crate::store::redis::packed::DeclaredCounts;
use crate::store::redis::pipelined::{DirectReply, ReplyBound};
use crate::store::redis::script::command::{Command, ServerTimes};
use crate::store::redis::server::{DataConnection, Server};
use crate::{Error, ErrorKind};

/// The longest first attempt to connect that a caller waits for.
const MAX_FIRST_ATTEMPT: Duration = Duration::from_secs(4);
/// The longest later attempt.
const MAX_ATTEMPT: Duration = Duration::from_secs(1);
/// The longest later attempt at a server that is found without others and has a short deadline. With the pause after
/// it, it takes less than a second: an attempt may have begun just before the network came back, and be lost.
const MAX_SHORT_ATTEMPT: Duration = Duration::from_millis(500);
/// Round trips of an attempt, each of up to one deadline.
const ROUND_TRIPS: u32 = 5;
/// The longest wait for the write probe of the first connection that a caller waits for.
const MAX_FIRST_PROBE: Duration = Duration::from_secs(1);
/// The pause between two write probes of a server that is connected but not up. With the probe it takes less than a
/// second.
const PROBE_PAUSE: Duration = Duration::from_millis(900);
/// The shortest time after which a write probe of a connected server has failed.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(450);

/// A server with the state of its connection.
pub(crate) struct ManagedConnection {
    server: Server,
    context: Rc<ConnectionContext>,
    gate: Arc<ServerGate>,
    /// The slots of the server. Their counters may be lost when the connection is.
    slots: RefCell<Vec<RangeInclusive<u16>>>,
    status: RefCell<ConnectionStatus>,
    status_changed: Notify,
    health: Rc<ServerHealth>,
    /// The time of the first connection, or of the last report that its counters may be lost.
    known_since: Cell<Moment>,
}

enum ConnectionStatus {
    /// The first attempt is running.
    Connecting,
    Up(ServerConnection),
    /// Calls fail at once with this error.
    Down(Error),
}

impl ManagedConnection {
    pub(crate) fn new(server: Server, context: Rc<ConnectionContext>, gate: Arc<ServerGate>) -> Self {
        let status = RefCell::new(ConnectionStatus::Connecting);
        // All keys of a single server are in slot 0.
        let slots = RefCell::new(vec![0..=0]);
        let health = ServerHealth::new(&context.health, server.to_string());
        let known_since = Cell::new(context.clock.now());
        let status_changed = Notify::new();
        Self { server, context, gate, slots, status, status_changed, health, known_since }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Adds a slot to those of the server.
    pub(crate) fn add_slot(&self, slot: u16) {
        let mut slots = self.slots.borrow_mut();
        if !slots.iter().any(|range| range.contains(&slot)) {
            slots.push(slot..=slot);
        }
    }

    /// Replaces the slots of the server.
    pub(crate) fn set_slots(&self, slots: Vec<RangeInclusive<u16>>) {
        self.slots.replace(slots);
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.status.borrow(), ConnectionStatus::Up(_))
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(*self.status.borrow(), ConnectionStatus::Down(_))
    }

    /// Returns the connection, if it is up.
    pub(crate) fn current(&self) -> Option<ServerConnection> {
        match &*self.status.borrow() {
            ConnectionStatus::Up(connection) => Some(connection.clone()),
            ConnectionStatus::Connecting | ConnectionStatus::Down(_) => None,
        }
    }

    /// The shortest time of the latest replies. Zero if it is not connected.
    pub(crate) fn round_trip(&self) -> Duration {
        self.current().map_or(Duration::ZERO, |connection| connection.round_trip().shortest())
    }

    /// The length of the round trip to the server. Short if it is not connected.
    pub(crate) fn round_trip_length(&self) -> Length {
        self.current().map_or(Length::Short, |connection| connection.round_trip().length())
    }

    /// Returns whether it is the server of this gate.
    pub(crate) fn has_gate(&self, gate: &Arc<ServerGate>) -> bool {
        Arc::ptr_eq(&self.gate, gate)
    }

    /// The part of its state that callers use.
    pub(crate) fn gate(&self) -> Arc<ServerGate> {
        Arc::clone(&self.gate)
    }

    /// Probes the server, if it is connected: calls have waited for it in vain.
    pub(crate) fn probe(&self) {
        if let ConnectionStatus::Up(connection) = &*self.status.borrow() {
            connection.probe_within_deadline();
        }
    }

    /// Returns the connection. Waits only while the very first attempt is running.
    ///
    /// # Errors
    /// The reason why it is down.
    pub(crate) async fn connected(&self) -> Result<ServerConnection, Error> {
        loop {
            match &*self.status.borrow() {
                ConnectionStatus::Up(connection) => return Ok(connection.clone()),
                ConnectionStatus::Down(error) => return Err(error.clone()),
                ConnectionStatus::Connecting => {}
            }
            self.status_changed.notified().await;
        }
    }

    /// Calls a script and returns the server's reply. It loads the scripts if the server does not have them: NOSCRIPT proves
    /// that the script did not run. The caller enforces the deadline.
    ///
    /// # Errors
    /// The reason why the server is down, or the scripts cannot be loaded.
    pub(crate) async fn call(
        &self,
        command: &Command,
        attempt: &Attempt,
        is_asking: bool,
    ) -> Result<Result<Value, CommandError>, Error> {
        loop {
            let connection = self.connected().await?;
            let (script_epoch, sent_at) = (connection.script_epoch(), Instant::now());
            attempt.sent_on(&connection, sent_at);
            let digest = connection.digest(command.program());
            let known_for = if command.is_once() { self.known_for(command.slot()) } else { Duration::ZERO };
            let times = ServerTimes { known_for, clock_lead: self.gate.clock_lead() };
            let call = command.for_server(&digest, &self.context.clock, times, &attempt.declared);
            let result = match &connection.data {
                _ if is_asking => connection.send_asking(&call, ReplyBound::Script).await,
                // It ends by itself when it is closed.
                DataConnection::Own(own) => CommandError::check_reply(own.send(&call, ReplyBound::Script).await),
                DataConnection::OfClient(_) => connection.send(&call).await,
            };
            if !matches!(&result, Err(error) if error.is_connection_lost()) {
                let now = Instant::now();
                connection.state.last_reply_at.set(now);
                connection.state.round_trip.record(now - sent_at);
            }
            match result {
                Err(error) if error.is_no_script() => self.load_missing(&connection, script_epoch, attempt).await?,
                Err(error) if self.needs_other_arguments(&error, command, attempt) => {}
                result => return Ok(result),
            }
        }
    }

    /// Waits for the reply to a command that a caller has written to this connection, and goes on as
    /// [`call`](Self::call) does.
    ///
    /// # Errors
    /// As for [`call`](Self::call).
    pub(crate) async fn receive_direct(
        &self,
        connection: ServerConnection,
        reply: DirectReply,
        command: &Command,
        attempt: &Attempt,
    ) -> Result<Result<Value, CommandError>, Error> {
        let script_epoch = connection.script_epoch();
        match connection.receive_direct(reply).await {
            Err(error) if error.is_no_script() => {
                self.load_missing(&connection, script_epoch, attempt).await?;
                self.call(command, attempt, false).await
            }
            Err(error) if self.needs_other_arguments(&error, command, attempt) => {
                self.call(command, attempt, false).await
            }
            result => Ok(result),
        }
    }

    /// Returns whether a call is to be sent once more, with other arguments. Its error proves that the script has changed
    /// nothing.
    fn needs_other_arguments(&self, error: &CommandError, command: &Command, attempt: &Attempt) -> bool {
        self.has_other_edges(error, attempt) || attempt.has_to_declare(error, command)
    }

    /// Returns whether a call needs the edges of a calendar around the time of the server.
    fn has_other_edges(&self, error: &CommandError, attempt: &Attempt) -> bool {
        let Some(server_millis) = error.needed_edges() else { return false };
        let lead = server_millis.saturating_mul(1000).cast_signed() - self.context.clock.wall_micros().cast_signed();
        self.gate.set_clock_lead(lead);
        !attempt.had_other_edges.replace(true)
    }

    /// Loads the scripts after NOSCRIPT. Many times in a row it pauses behind that.
    async fn load_missing(
        &self,
        connection: &ServerConnection,
        script_epoch: u64,
        attempt: &Attempt,
    ) -> Result<(), Error> {
        // A server that was restarted or replaced behind this connection has lost its scripts and its counters.
        self.report_data_loss();
        connection.load_scripts(script_epoch, &self.context.scripts).await?;
        let missing_scripts = attempt.missing_scripts.get() + 1;
        attempt.missing_scripts.set(missing_scripts);
        if let Some(pauses) = missing_scripts.checked_sub(MAX_IMMEDIATE_RETRIES + 1) {
            // There may be several servers behind one address.
            sleep(retry_pause(pauses + 1)).await;
        }
        Ok(())
    }

    /// Reports an error reply that is no redirect, and converts it.
    pub(crate) fn report_reply(&self, error: CommandError, attempt: &Attempt) -> Error {
        if error.is_loading() {
            self.report_data_loss();
        }
        let is_cluster_down = error.is_cluster_down();
        let error = Error::from(error);
        if is_cluster_down {
            // It may be the whole cluster, or this slot alone.
            self.health.request_probe();
            self.context.topology_changed.notify_one();
        } else {
            attempt.report_error(&error);
        }
        error
    }

    /// Connects, and connects again whenever the connection is lost.
    ///
    /// `ready` gets the result of the first attempt. With it the loop ends if that attempt fails.
    pub(crate) async fn reconnect_loop(self: Rc<Self>, mut ready: Option<ReadySignal>) {
        let mut pause = MIN_PAUSE;
        loop {
            let max_time = if ready.is_some() { MAX_FIRST_ATTEMPT } else { self.max_attempt() };
            let attempt = timeout(max_time, self.open(max_time, ready.is_some())).await.unwrap_or_else(|_| {
                let hint = if self.server.is_tls() { "; does it speak TLS?" } else { "" };
                let problem = format!("{} did not answer within {max_time:?}{hint}", self.server);
                Err(Error::new(ErrorKind::Unavailable, problem))
            });
            match attempt {
                Ok((connection, problem)) => {
                    self.set_connected(&connection, problem.as_ref());
                    if let Some(ready) = ready.take() {
                        ready.send(Ok(()));
                    }
                    let up_since = Instant::now();
                    self.serve_until_lost(connection).await;
                    if up_since.elapsed() > MAX_PAUSE {
                        pause = MIN_PAUSE;
                    }
                }
                Err(error) => {
                    if let Some(ready) = ready.take() {
                        return ready.send(Err(error));
                    }
                    self.set_down(error);
                }
            }
            sleep(with_jitter(pause)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    fn max_attempt(&self) -> Duration {
        let needed = self.context.deadline * ROUND_TRIPS;
        if self.server.needs_discovery_or_credentials() {
            MAX_ATTEMPT
        } else {
            needed.clamp(MAX_SHORT_ATTEMPT, MAX_ATTEMPT)
        }
    }

    /// Opens a connection, and probes it by a write. Returns an error of the probe that does not prevent the use of the
    /// connection: some calls succeed all the same, and the failure policy decides about the others.
    async fn open(&self, max_time: Duration, is_first: bool) -> Result<(ServerConnection, Option<Error>), Error> {
        let lost = Arc::new(Notify::new());
        let connection = self.server.open(max_time, Arc::clone(&lost)).await?;
        let server = (Rc::clone(&self.health), &*self.gate);
        let connection = ServerConnection::new(connection, lost, self.context.deadline, Some(server));
        connection.load_scripts(0, &self.context.scripts).await?;
        let max_probe = if is_first { MAX_FIRST_PROBE } else { self.context.deadline };
        let probed = timeout(max_probe, self.probe_write(&connection)).await;
        match probed.unwrap_or_else(|_| Err(self.no_answer(max_probe))) {
            Ok(()) => Ok((connection, None)),
            Err(problem) => match problem.kind() {
                ErrorKind::OutOfMemory | ErrorKind::NotServing | ErrorKind::Refused | ErrorKind::Config => {
                    Ok((connection, Some(problem)))
                }
                // A caller that waits for the first connection gets it. The first call fails.
                _ if is_first => Ok((connection, Some(problem))),
                // A server that is too slow for a call is still down, and so is a replica.
                _ => Err(problem),
            },
        }
    }

    /// Probes the server by a write.
    ///
    /// # Errors
    /// The server's error.
    async fn probe_write(&self, connection: &ServerConnection) -> Result<(), Error> {
        let slots = self.slots.borrow().clone();
        let written = connection.probe_write(&self.context, &slots, || self.report_data_loss()).await?;
        if let Written::Elsewhere = written {
            self.context.topology_changed.notify_one();
        }
        Ok(())
    }

    fn no_answer(&self, max_wait: Duration) -> Error {
        Error::new(ErrorKind::Unavailable, format!("{} does not answer within {max_wait:?}", self.server))
    }

    fn set_connected(&self, connection: &ServerConnection, problem: Option<&Error>) {
        match self.set_status(ConnectionStatus::Up(connection.clone())) {
            ConnectionStatus::Connecting => self.known_since.set(self.context.clock.now()),
            ConnectionStatus::Down(_) => self.report_data_loss(),
            ConnectionStatus::Up(_) => {}
        }
        // Before observers learn of it: their calls must not meet an open breaker.
        self.gate.breaker.close();
        match problem {
            None => self.health.set_up(),
            Some(problem) => self.health.set_failed(problem),
        }
    }

    async fn serve_until_lost(&self, connection: ServerConnection) {
        let (mut lost, mut watch) = (pin!(connection.lost()), pin!(self.watch_health(&connection)));
        let cause = poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Pending => watch.as_mut().poll(context).map(|never| match never {}),
            cause => cause,
        })
        .await;
        let lost = || Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost", self.server));
        self.set_down(cause.unwrap_or_else(lost));
    }

    /// Probes the server by writes while it is connected but not up. So it recovers in a process without calls.
    async fn watch_health(&self, connection: &ServerConnection) -> Infallible {
        loop {
            let is_urgent = self.health.trouble().await;
            if !is_urgent {
                sleep(PROBE_PAUSE).await;
            }
            let (sent_at, max_wait) = (Instant::now(), self.context.deadline.max(MIN_PROBE_TIMEOUT));
            match timeout(max_wait, self.probe_write(connection)).await {
                Ok(Ok(())) => self.health.set_up(),
                Ok(Err(error)) => {
                    self.health.set_failed(&error);
                    connection.close_after(&error);
                }
                Err(_) => {
                    self.health.set_failed(&self.no_answer(max_wait));
                    connection.check_liveness(sent_at);
                }
            }
            if is_urgent {
                // Many calls may be refused, and each of them requests a probe.
                sleep(PROBE_PAUSE).await;
            }
        }
    }

    fn set_down(&self, error: Error) {
        self.report_data_loss();
        self.health.set_failed(&error);
        self.gate.breaker.open(error.clone());
        self.set_status(ConnectionStatus::Down(error));
        self.context.topology_changed.notify_one();
    }

    /// Reports to the local state that the server may have lost the counters of its slots.
    pub(crate) fn report_data_loss(&self) {
        // So no caller sends a call without knowledge of it.
        if let ConnectionStatus::Up(connection) = &*self.status.borrow()
            && let Some(loan) = connection.write_loan()
        {
            loan.take_back();
        }
        self.known_since.set(self.context.clock.now());
        self.context.local.server_failed(&self.slots.borrow());
        self.context.slots.server_failed(&self.slots.borrow());
    }

    /// The time for which this process would know if the server had lost the counters of a slot: since the first connection
    /// and the last failure of the server or of an owner of the slot before.
    fn known_for(&self, slot: u16) -> Duration {
        let now = self.context.clock.now();
        let of_server = self.known_since.get().until(now);
        self.context.local.time_since_server_failure(slot, now).map_or(of_server, |of_slot| of_slot.min(of_server))
    }

    /// Sets the status and returns the one before.
    fn set_status(&self, status: ConnectionStatus) -> ConnectionStatus {
        let before = self.status.replace(status);
        self.status_changed.notify_waiters();
        before
    }
}

/// Times that a call is sent again without a pause.
pub(crate) const MAX_IMMEDIATE_RETRIES: u32 = 2;

/// The pause before a call is sent again: 2 ms after the first refusal, doubled up to 8 ms. Nodes seldom disagree for
/// longer about a slot that moves, and a call waits for all of the last pause.
pub(crate) fn retry_pause(refusals: u32) -> Duration {
    Duration::from_millis(1 << refusals.min(3))
}

// The connection that a script call waits on.

/// The latest attempt of one script call: its connection, and the time at which it was sent.
///
/// Calls report here that their deadlines have passed. So they need not know the script call.
#[derive(Default)]
pub(crate) struct Attempt {
    latest: RefCell<Option<(ServerConnection, Instant)>>,
    /// Times that a server had no scripts for it.
    missing_scripts: Cell<u32>,
    /// It was sent with the edges of a calendar around another time.
    had_other_edges: Cell<bool>,
    /// The packed counts whose own keys it declares.
    pub(crate) declared: DeclaredCounts,
}

impl Attempt {
    /// Returns whether a call needs the own keys of packed counts.
    fn has_to_declare(&self, error: &CommandError, command: &Command) -> bool {
        let Some(moved_out) = error.moved_out() else { return false };
        command.remember_moved_out(&moved_out);
        self.declared.add(&moved_out)
    }

    /// Records that the call is sent on this connection, at this time.
    pub(crate) fn sent_on(&self, connection: &ServerConnection, sent_at: Instant) {
        self.latest.replace(Some((connection.clone(), sent_at)));
    }

    /// The time at which the call was sent last.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.latest.borrow().as_ref().map(|(_, sent_at)| *sent_at)
    }

    /// The time of the latest reply on its connection.
    pub(crate) fn replied_at(&self) -> Option<Instant> {
        self.latest.borrow().as_ref().map(|(connection, _)| connection.last_reply_at())
    }

    /// Reports that there was no reply within a call's deadline.
    pub(crate) fn report_timeout(&self) {
        if let Some((connection, sent_at)) = &*self.latest.borrow() {
            connection.report_timeout(*sent_at);
        }
    }

    /// Reports that the reply was an error.
    pub(crate) fn report_error(&self, error: &Error) {
        if let Some((connection, _)) = &*self.latest.borrow() {
            connection.report_error(error);
        }
    }
}

// Pauses of a random length.

/// A random pause between half of this one and all of it, so that the instances of a fleet do not reconnect at once.
pub(crate) fn with_jitter(pause: Duration) -> Duration {
    random_between(pause / 2, pause)
}

/// Returns a random time from `min` to `max`.
pub(crate) fn random_between(min: Duration, max: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    let share = u32::try_from(random).unwrap_or(u32::MAX);
    min + (max - min).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
