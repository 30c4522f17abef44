//! The one connection to a server: kept up in the background, so that no caller ever waits for a reconnect.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::Breaker;
use super::lane::Lane;
use super::notices::log;
use super::wire::Wire;
use super::{Connected, Server};
use crate::guard::Local;
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
pub(super) struct Link {
    server: Server,
    terms: Rc<Terms>,
    breaker: Arc<Breaker>,
    /// The slots that the server serves: what may be lost when it is.
    slots: RefCell<Vec<RangeInclusive<u16>>>,
    lane: Lane,
    state: RefCell<State>,
    changed: Notify,
}

/// What all connections of a limiter have in common.
pub(super) struct Terms {
    pub(super) scripts: [String; 2],
    /// A server that has been away has to answer within it.
    pub(super) deadline: Duration,
    pub(super) local: Local,
    /// Told when a server is lost.
    pub(super) lost: Notify,
}

enum State {
    /// Never up so far, never failed.
    Connecting,
    Up(Wire),
    /// Calls fail at once, by this.
    Down(Error),
}

impl Terms {
    pub(super) fn new(scripts: [String; 2], deadline: Duration, local: Local) -> Self {
        Self { scripts, deadline, local, lost: Notify::new() }
    }
}

impl Link {
    pub(super) fn new(server: Server, terms: Rc<Terms>, breaker: Arc<Breaker>) -> Self {
        let state = RefCell::new(State::Connecting);
        // A single server is asked for slot 0 alone.
        let slots = RefCell::new(vec![0..=0]);
        Self { server, terms, breaker, slots, lane: Lane::default(), state, changed: Notify::new() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// What waits for it.
    pub(super) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Says that the server serves another slot, too.
    pub(super) fn also_serves(&self, slot: u16) {
        let mut slots = self.slots.borrow_mut();
        if !slots.iter().any(|range| range.contains(&slot)) {
            slots.push(slot..=slot);
        }
    }

    /// Says which slots the server serves.
    pub(super) fn serve(&self, slots: Vec<RangeInclusive<u16>>) {
        self.slots.replace(slots);
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Up(_))
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(*self.state.borrow(), State::Down(_))
    }

    /// What callers look at before they ask.
    pub(super) fn breaker(&self) -> Arc<Breaker> {
        Arc::clone(&self.breaker)
    }

    /// The connection, or why there is none. Waits while the very first attempt is under way, and never again.
    pub(super) async fn wire(&self) -> Result<Wire, Error> {
        loop {
            match &*self.state.borrow() {
                State::Up(wire) => return Ok(wire.clone()),
                State::Down(error) => return Err(error.clone()),
                State::Connecting => {}
            }
            self.changed.notified().await;
        }
    }

    /// Connects, and connects again whenever the connection is lost. Ends only if the first attempt fails and
    /// somebody waits for it.
    pub(super) async fn keep(self: Rc<Self>, mut first: Option<Connected>) {
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
                        first.tell(Ok(()));
                    }
                    let up = Instant::now();
                    self.hold(wire).await;
                    if up.elapsed() > LONGEST_PAUSE {
                        pause = SHORTEST_PAUSE;
                    }
                }
                Err(error) => {
                    if let Some(first) = first.take() {
                        return first.tell(Err(error));
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
        if self.server.asks_others() { ATTEMPT } else { needed.clamp(SHORT_ATTEMPT, ATTEMPT) }
    }

    async fn open(&self, longest: Duration, is_first: bool) -> Result<Wire, Error> {
        let lost = Arc::new(Notify::new());
        let connection = self.server.open(longest, Arc::clone(&lost)).await?;
        let wire = Wire::new(connection, lost);
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
    async fn hold(&self, wire: Wire) {
        if let State::Down(_) = self.set(State::Up(wire.clone())) {
            // What answers now may have lost what it knew.
            self.failed();
            let server = self.server.to_string();
            log(move || tracing::info!(target: TARGET, server, "the rate limiter's store is back"));
        }
        self.breaker.close();
        let cause = wire.lost().await;
        let lost = || Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost", self.server));
        self.down(cause.unwrap_or_else(lost));
    }

    fn down(&self, error: Error) {
        self.failed();
        self.breaker.open(error.clone());
        if !matches!(self.set(State::Down(error.clone())), State::Down(_)) {
            let server = self.server.to_string();
            log(move || tracing::warn!(target: TARGET, server, %error, "the rate limiter's store is away"));
        }
        self.terms.lost.notify_one();
    }

    /// The server may have lost what it knew.
    pub(super) fn failed(&self) {
        self.terms.local.standby.server_failed(&self.slots.borrow());
    }

    fn set(&self, state: State) -> State {
        let before = self.state.replace(state);
        self.changed.notify_waiters();
        before
    }
}

/// Between half and all of it, so that the instances of a fleet do not come back as one.
pub(super) fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    let share = u32::try_from(random).unwrap_or(u32::MAX);
    pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
