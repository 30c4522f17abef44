//! The one connection: kept up in the background, so that no caller ever waits for a reconnect.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::failure::Refusal;
use super::{Connected, Server};
use crate::standby::Standby;
use crate::{Error, ErrorKind, TARGET};

/// Longest wait for a first connection that somebody asked for.
const FIRST_ATTEMPT: Duration = Duration::from_secs(4);
/// Longest wait for any later one.
const ATTEMPT: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(450);

/// The state of the connection, and whoever waits for the first one.
pub(super) struct Link {
    server: Server,
    script: String,
    standby: Arc<Standby>,
    state: RefCell<State>,
    changed: Notify,
}

enum State {
    /// Never up so far, never failed.
    Connecting,
    Up(Wire),
    /// Calls fail at once, by this.
    Down(Error),
}

/// A connection that is, or was, up. Clones are the same one.
#[derive(Clone)]
pub(super) struct Wire {
    connection: MultiplexedConnection,
    shared: Rc<Shared>,
}

struct Shared {
    /// The connection is of no use any more.
    lost: Arc<Notify>,
    /// Why, where it was given up before it broke.
    cause: RefCell<Option<Error>>,
    /// When the server last said anything.
    heard: Cell<Instant>,
    sha: RefCell<String>,
    /// How often the script was loaded, so that of many calls that miss it one loads it.
    loads: Cell<u64>,
    loading: Mutex<()>,
}

impl Link {
    pub(super) fn new(server: Server, script: &str, standby: Arc<Standby>) -> Self {
        let state = RefCell::new(State::Connecting);
        Self { server, script: script.to_owned(), standby, state, changed: Notify::new() }
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
            let longest = if first.is_some() { FIRST_ATTEMPT } else { ATTEMPT };
            let attempt = timeout(longest, self.open(longest)).await.unwrap_or_else(|_| {
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

    async fn open(&self, longest: Duration) -> Result<Wire, Error> {
        let lost = Arc::new(Notify::new());
        let connection = self.server.open(longest, Arc::clone(&lost)).await?;
        let shared = Shared {
            lost,
            cause: RefCell::default(),
            heard: Cell::new(Instant::now()),
            sha: RefCell::default(),
            loads: Cell::new(0),
            loading: Mutex::new(()),
        };
        let wire = Wire { connection, shared: Rc::new(shared) };
        wire.reload(0, &self.script).await?;
        Ok(wire)
    }

    /// Serves calls over this connection until it is lost.
    async fn hold(&self, wire: Wire) {
        let shared = Rc::clone(&wire.shared);
        if let State::Down(_) = self.set(State::Up(wire)) {
            // What answers now may have lost what it knew.
            self.standby.store_failed();
            let server = self.server.to_string();
            log(move || tracing::info!(target: TARGET, server, "the rate limiter's store is back"));
        }
        shared.lost.notified().await;
        let lost = || Error::new(ErrorKind::Unavailable, format!("the connection to {} was lost", self.server));
        self.down(shared.cause.take().unwrap_or_else(lost));
    }

    fn down(&self, error: Error) {
        self.standby.store_failed();
        if !matches!(self.set(State::Down(error.clone())), State::Down(_)) {
            let server = self.server.to_string();
            log(move || tracing::warn!(target: TARGET, server, %error, "the rate limiter's store is away"));
        }
    }

    fn set(&self, state: State) -> State {
        let before = self.state.replace(state);
        self.changed.notify_waiters();
        before
    }
}

impl Wire {
    pub(super) async fn send(&self, command: Cmd) -> Result<Value, Refusal> {
        let result = self.connection.clone().send_packed_command(&command).await;
        let result = result.and_then(Value::extract_error).map_err(Refusal::from);
        if !matches!(&result, Err(refusal) if refusal.is_broken()) {
            self.shared.heard.set(Instant::now());
        }
        result
    }

    pub(super) fn sha(&self) -> String {
        self.shared.sha.borrow().clone()
    }

    pub(super) fn loads(&self) -> u64 {
        self.shared.loads.get()
    }

    /// Loads the script, unless somebody has since it was loaded `seen` times.
    pub(super) async fn reload(&self, seen: u64, script: &str) -> Result<(), Error> {
        let _loading = self.shared.loading.lock().await;
        if self.shared.loads.get() == seen {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script);
            let sha = self.send(load).await?;
            let sha = redis::from_redis_value(sha)
                .map_err(|error| Error::with_source(ErrorKind::Protocol, "SCRIPT LOAD gave no digest", error))?;
            self.shared.sha.replace(sha);
            self.shared.loads.set(seen + 1);
        }
        Ok(())
    }

    /// A call was not answered in time. If nothing else was either, the server is gone, however open the connection.
    pub(super) fn unanswered_since(&self, asked: Instant) {
        if self.shared.heard.get() <= asked {
            self.give_up(Error::new(ErrorKind::Unavailable, "Redis has stopped answering"));
        }
    }

    /// Gives the connection up for errors that no later call on it would be spared.
    pub(super) fn failed(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ReadOnly) {
            self.give_up(error.clone());
        }
    }

    fn give_up(&self, cause: Error) {
        self.shared.cause.replace(Some(cause));
        self.shared.lost.notify_one();
    }
}

/// Logs on another thread: what listens is the program's own, and may block, panic, or be rate limited itself.
fn log(message: impl FnOnce() + Send + 'static) {
    drop(spawn_blocking(message));
}

/// Between half and all of it, so that the instances of a fleet do not come back as one.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    let share = u32::try_from(random).unwrap_or(u32::MAX);
    pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
