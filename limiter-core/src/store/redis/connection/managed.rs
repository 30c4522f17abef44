//! The one connection to a server: kept up in the background, so that no caller ever waits for a reconnect.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::store::redis::connection::breaker::Breaker;
use crate::store::redis::connection::context::ConnectionContext;
use crate::store::redis::connection::server_connection::ServerConnection;
use crate::store::redis::notifier::notify;
use crate::store::redis::worker::batch_queue::BatchQueue;
use crate::store::redis::{ReadySignal, Server};
use crate::{Error, ErrorKind, TARGET};

/// Longest wait for a first connection that somebody asked for.
const FIRST_ATTEMPT: Duration = Duration::from_secs(4);
/// Longest wait for any later one.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The same where nobody but the server is asked, and it is to answer each call within a tenth of a second. With the pause after it
/// it is less than a second: an attempt may have begun just before the network was mended, and lead nowhere.
const SHORT_ATTEMPT: Duration = Duration::from_millis(500);
/// Deadlines that a server may take for all it is asked while connecting.
const STEPS: u32 = 5;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(450);

/// The state of the connection, and whoever waits for the first one.
pub(crate) struct ManagedConnection {
    server: Server,
    terms: Rc<ConnectionContext>,
    breaker: Arc<Breaker>,
    /// The slots that the server serves: what may be lost when it is.
    slots: RefCell<Vec<RangeInclusive<u16>>>,
    lane: BatchQueue,
    state: RefCell<ConnectionStatus>,
    changed: Notify,
}

enum ConnectionStatus {
    /// Never up so far, never failed.
    Connecting,
    Up(ServerConnection),
    /// Calls fail at once, by this.
    Down(Error),
}

impl ManagedConnection {
    pub(crate) fn new(server: Server, terms: Rc<ConnectionContext>, breaker: Arc<Breaker>) -> Self {
        let state = RefCell::new(ConnectionStatus::Connecting);
        // A single server is asked for slot 0 alone.
        let slots = RefCell::new(vec![0..=0]);
        Self { server, terms, breaker, slots, lane: BatchQueue::default(), state, changed: Notify::new() }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// What waits for it.
    pub(crate) fn lane(&self) -> &BatchQueue {
        &self.lane
    }

    /// Says that the server serves another slot, too.
    pub(crate) fn also_serves(&self, slot: u16) {
        let mut slots = self.slots.borrow_mut();
        if !slots.iter().any(|range| range.contains(&slot)) {
            slots.push(slot..=slot);
        }
    }

    /// Says which slots the server serves.
    pub(crate) fn serve(&self, slots: Vec<RangeInclusive<u16>>) {
        self.slots.replace(slots);
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), ConnectionStatus::Up(_))
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(*self.state.borrow(), ConnectionStatus::Down(_))
    }

    /// What callers look at before they ask.
    pub(crate) fn breaker(&self) -> Arc<Breaker> {
        Arc::clone(&self.breaker)
    }

    /// The connection, or why there is none. Waits while the very first attempt is under way, and never again.
    pub(crate) async fn wire(&self) -> Result<ServerConnection, Error> {
        loop {
            match &*self.state.borrow() {
                ConnectionStatus::Up(wire) => return Ok(wire.clone()),
                ConnectionStatus::Down(error) => return Err(error.clone()),
                ConnectionStatus::Connecting => {}
            }
            self.changed.notified().await;
        }
    }

    /// Connects, and connects again whenever the connection is lost. Ends only if the first attempt fails and
    /// somebody waits for it.
    pub(crate) async fn keep(self: Rc<Self>, mut first: Option<ReadySignal>) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let longest = if first.is_some() { FIRST_ATTEMPT } else { self.longest_attempt() };
            let attempt = timeout(longest, self.open(longest, first.is_some())).await.unwrap_or_else(|_| {
                let doubt = if self.server.is_tls() { "; does it speak TLS?" } else { "" };
                let silent = format!("{} did not answer within {longest:?}{doubt}", self.server);
                Err(Error::new(ErrorKind::Unavailable, silent))
            });
            match attempt {
                Ok(wire) => {
                    if let Some(first) = first.take() {
                        first.send(Ok(()));
                    }
                    let up = Instant::now();
                    self.hold(wire).await;
                    if up.elapsed() > LONGEST_PAUSE {
                        pause = SHORTEST_PAUSE;
                    }
                }
                Err(error) => {
                    if let Some(first) = first.take() {
                        return first.send(Err(error));
                    }
                    self.down(error);
                }
            }
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn longest_attempt(&self) -> Duration {
        let needed = self.terms.deadline * STEPS;
        if self.server.needs_discovery_or_credentials() { ATTEMPT } else { needed.clamp(SHORT_ATTEMPT, ATTEMPT) }
    }

    async fn open(&self, longest: Duration, is_first: bool) -> Result<ServerConnection, Error> {
        let lost = Arc::new(Notify::new());
        let connection = self.server.open(longest, Arc::clone(&lost)).await?;
        let wire = ServerConnection::new(connection, lost);
        wire.reload(0, &self.terms.scripts).await?;
        if !is_first {
            // A server that is too slow for a call is not back yet.
            timeout(self.terms.deadline, wire.probe()).await.unwrap_or_else(|_| {
                let slow = format!("{} does not answer within {:?}", self.server, self.terms.deadline);
                Err(Error::new(ErrorKind::Unavailable, slow))
            })?;
        }
        Ok(wire)
    }

    /// Serves calls over this connection until it is lost.
    async fn hold(&self, wire: ServerConnection) {
        if let ConnectionStatus::Down(_) = self.set(ConnectionStatus::Up(wire.clone())) {
            // What answers now may have lost what it knew.
            self.failed();
            let server = self.server.to_string();
            notify(move || tracing::info!(target: TARGET, server, "the rate limiter's store is back"));
        }
        self.breaker.close();
        let cause = wire.lost().await;
        let lost = || Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost", self.server));
        self.down(cause.unwrap_or_else(lost));
    }

    fn down(&self, error: Error) {
        self.failed();
        self.breaker.open(error.clone());
        if !matches!(self.set(ConnectionStatus::Down(error.clone())), ConnectionStatus::Down(_)) {
            let server = self.server.to_string();
            notify(move || tracing::warn!(target: TARGET, server, %error, "the rate limiter's store is away"));
        }
        self.terms.lost.notify_one();
    }

    /// The server may have lost what it knew.
    pub(crate) fn failed(&self) {
        self.terms.local.standby.server_failed(&self.slots.borrow());
    }

    fn set(&self, state: ConnectionStatus) -> ConnectionStatus {
        let before = self.state.replace(state);
        self.changed.notify_waiters();
        before
    }
}

/// Between half and all of it, so that the instances of a fleet do not come back as one.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    let share = u32::try_from(random).unwrap_or(u32::MAX);
    pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
