//! The connection to one server. A background task reconnects it, so no call waits for that.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::Breaker;
use super::context::ConnectionContext;
use super::server_connection::ServerConnection;
use crate::store::redis::notifier::notify;
use crate::store::redis::ready_signal::ReadySignal;
use crate::store::redis::server::Server;
use crate::{Error, ErrorKind, TARGET};

/// The longest first attempt to connect that a caller waits for.
const MAX_FIRST_ATTEMPT: Duration = Duration::from_secs(4);
/// The longest later attempt.
const MAX_ATTEMPT: Duration = Duration::from_secs(1);
/// The longest later attempt at a server that is found without others and has a short deadline. With the pause after
/// it, it takes less than a second: an attempt may have begun just before the network came back, and be lost.
const MAX_SHORT_ATTEMPT: Duration = Duration::from_millis(500);
/// Round trips of an attempt, each of up to one deadline.
const ROUND_TRIPS: u32 = 5;
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(450);

/// A server with the state of its connection.
pub(crate) struct ManagedConnection {
    server: Server,
    context: Rc<ConnectionContext>,
    breaker: Arc<Breaker>,
    /// The slots of the server. Their counters may be lost when the connection is.
    slots: RefCell<Vec<RangeInclusive<u16>>>,
    status: RefCell<ConnectionStatus>,
    status_changed: Notify,
}

enum ConnectionStatus {
    /// The first attempt is running.
    Connecting,
    Up(ServerConnection),
    /// Calls fail at once with this error.
    Down(Error),
}

impl ManagedConnection {
    pub(crate) fn new(server: Server, context: Rc<ConnectionContext>, breaker: Arc<Breaker>) -> Self {
        let status = RefCell::new(ConnectionStatus::Connecting);
        // All keys of a single server are in slot 0.
        let slots = RefCell::new(vec![0..=0]);
        Self { server, context, breaker, slots, status, status_changed: Notify::new() }
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

    pub(crate) fn breaker(&self) -> Arc<Breaker> {
        Arc::clone(&self.breaker)
    }

    /// Probes the server, if it is connected: calls have waited for it in vain.
    pub(crate) fn probe(&self) {
        if let ConnectionStatus::Up(connection) = &*self.status.borrow() {
            connection.probe_within(self.context.deadline);
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
                Ok(connection) => {
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

    async fn open(&self, max_time: Duration, is_first: bool) -> Result<ServerConnection, Error> {
        let lost = Arc::new(Notify::new());
        let connection = self.server.open(max_time, Arc::clone(&lost)).await?;
        let connection = ServerConnection::new(connection, lost);
        connection.load_scripts(0, &self.context.scripts).await?;
        if !is_first {
            // A server that is too slow for a call is still down.
            timeout(self.context.deadline, connection.probe()).await.unwrap_or_else(|_| {
                let problem = format!("{} does not answer within {:?}", self.server, self.context.deadline);
                Err(Error::new(ErrorKind::Unavailable, problem))
            })?;
        }
        Ok(connection)
    }

    async fn serve_until_lost(&self, connection: ServerConnection) {
        if let ConnectionStatus::Down(_) = self.set_status(ConnectionStatus::Up(connection.clone())) {
            self.report_data_loss();
            let server = self.server.to_string();
            notify(move || tracing::info!(target: TARGET, server, "the rate limiter's store is back"));
        }
        self.breaker.close();
        let cause = connection.lost().await;
        let lost = || Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost", self.server));
        self.set_down(cause.unwrap_or_else(lost));
    }

    fn set_down(&self, error: Error) {
        self.report_data_loss();
        self.breaker.open(error.clone());
        if !matches!(self.set_status(ConnectionStatus::Down(error.clone())), ConnectionStatus::Down(_)) {
            let server = self.server.to_string();
            notify(move || tracing::warn!(target: TARGET, server, %error, "the rate limiter's store is away"));
        }
        self.context.topology_changed.notify_one();
    }

    /// Reports to the standby limiter that the server may have lost the counters of its slots.
    pub(crate) fn report_data_loss(&self) {
        self.context.local.standby.server_failed(&self.slots.borrow());
    }

    /// Sets the status and returns the one before.
    fn set_status(&self, status: ConnectionStatus) -> ConnectionStatus {
        let before = self.status.replace(status);
        self.status_changed.notify_waiters();
        before
    }
}

/// A random pause between half of this one and all of it, so that the instances of a fleet do not reconnect at once.
pub(crate) fn with_jitter(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    let share = u32::try_from(random).unwrap_or(u32::MAX);
    pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
