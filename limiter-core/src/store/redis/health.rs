//! The health of a store: the state of each server, the worst of them for callers, and their log lines.
//!
//! The worker's thread writes it. Only errors, probes and changes of a connection do, never a decision.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::health::{Health, HealthObservers, HealthState};
use crate::instances::Instances;
use crate::store::redis::notifier::{notify, notify_always};
use crate::sync::Mutex;
use crate::{Error, ErrorKind, TARGET};

/// The health of one worker's store, which callers read.
#[derive(Debug)]
pub(crate) struct HealthBoard {
    state: Mutex<BoardState>,
    /// The store owns the observers, so that none is dropped on the worker's thread.
    observers: Weak<HealthObservers>,
    /// The instances that share each limit during an outage.
    instances: Instances,
}

#[derive(Debug)]
struct BoardState {
    health: Health,
    /// Changes that the observers have not received yet, in order.
    unreported: VecDeque<Health>,
    /// True while a callback that reports them is queued or running.
    is_reporting: bool,
}

/// The changes that wait for observers that block. Older ones are dropped.
const MAX_UNREPORTED: usize = 64;

impl HealthBoard {
    /// Creates the health of a store that is about to connect to these servers.
    pub(crate) fn new(servers: String, observers: &Arc<HealthObservers>, instances: Instances) -> Self {
        let health = Health::new(HealthState::Connecting, SystemTime::now(), Some(servers));
        let state = BoardState { health, unreported: VecDeque::new(), is_reporting: false };
        Self { state: Mutex::new(state), observers: Arc::downgrade(observers), instances }
    }

    pub(crate) fn health(&self) -> Health {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }

    /// Sets the worst state of all servers. A change is reported to the observers, on the notifier thread.
    fn publish(self: &Arc<Self>, state: HealthState, server: &str) {
        let mut board = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if board.health.state == state {
            board.health.server = Some(server.to_owned());
            return;
        }
        board.health = Health::new(state, SystemTime::now(), Some(server.to_owned()));
        let Some(observers) = self.observers.upgrade().filter(|observers| !observers.is_empty()) else { return };
        let change = board.health.clone();
        board.unreported.push_back(change);
        if board.unreported.len() > MAX_UNREPORTED {
            board.unreported.pop_front();
        }
        if !std::mem::replace(&mut board.is_reporting, true) {
            let this = Arc::clone(self);
            notify_always(move || this.report(&observers));
        }
    }

    /// Reports all changes to the observers.
    fn report(&self, observers: &HealthObservers) {
        while let Some(change) = self.next_change() {
            observers.call(&change);
        }
    }

    fn next_change(&self) -> Option<Health> {
        let mut board = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let change = board.unreported.pop_front();
        board.is_reporting = change.is_some();
        change
    }
}

/// The states of all servers of a store, on the worker's thread.
pub(crate) struct StoreHealth {
    board: Arc<HealthBoard>,
    servers: RefCell<Vec<ServerState>>,
    next_id: Cell<u64>,
    /// True once a server was up, or the log has a line that none was.
    is_start_over: Cell<bool>,
}

struct ServerState {
    id: u64,
    state: HealthState,
    name: String,
}

impl StoreHealth {
    pub(crate) fn new(board: Arc<HealthBoard>) -> Rc<Self> {
        Rc::new(Self { board, servers: RefCell::default(), next_id: Cell::default(), is_start_over: Cell::default() })
    }

    /// Publishes the worst state of all servers. Of equal ones it is that of the first server.
    ///
    /// The first attempt to connect to a new server does not end the state `Up` of the others.
    fn update(&self) {
        let servers = self.servers.borrow();
        // `max_by_key` returns the last of equal ones.
        let worst = servers.iter().rev().max_by_key(|server| server.state.severity());
        if let Some(ServerState { state, name, .. }) = worst
            && (*state != HealthState::Connecting || self.board.health().state != HealthState::Up)
        {
            self.board.publish(*state, name);
        }
    }
}

/// The health of one server, or of the map of a cluster. It counts until it is dropped.
pub(crate) struct ServerHealth {
    store: Rc<StoreHealth>,
    id: u64,
    state: Cell<HealthState>,
    /// True while a call was refused and no probe has checked it yet.
    is_probe_needed: Cell<bool>,
    /// Notified when the state gets worse than `Up`, and when a probe is needed.
    trouble: Notify,
    log: RefCell<OutageLog>,
}

impl ServerHealth {
    /// Adds a server, whose first attempt to connect is running.
    pub(crate) fn new(store: &Rc<StoreHealth>, name: String) -> Rc<Self> {
        let id = store.next_id.replace(store.next_id.get() + 1);
        store.servers.borrow_mut().push(ServerState { id, state: HealthState::Connecting, name });
        let (state, is_probe_needed) = (Cell::new(HealthState::Connecting), Cell::default());
        let (trouble, log) = (Notify::new(), RefCell::default());
        Rc::new(Self { store: Rc::clone(store), id, state, is_probe_needed, trouble, log })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state.get() == HealthState::Up
    }

    /// Sets the state to `Up`: the server has accepted a write.
    pub(crate) fn set_up(&self) {
        self.set(HealthState::Up);
        self.store.is_start_over.set(true);
        let line = self.log.borrow_mut().up(Instant::now());
        self.log(line, None);
    }

    /// Sets the state that follows from a failed probe or attempt to connect.
    pub(crate) fn set_failed(&self, error: &Error) {
        self.set_failed_as(HealthState::after(error), error);
    }

    pub(crate) fn set_failed_as(&self, state: HealthState, error: &Error) {
        self.set(state);
        let line = self.log.borrow_mut().failed(Instant::now());
        let is_absent = line == Some(LogLine::Away) && !self.store.is_start_over.replace(true);
        self.log(if is_absent { Some(LogLine::Absent) } else { line }, Some(error));
        self.trouble.notify_one();
    }

    /// Records the server's error reply to a call. The state changes at once if the error concerns all calls. Other
    /// errors may be those of one call, so a probe decides.
    pub(crate) fn call_failed(&self, error: &Error) {
        match error.kind() {
            ErrorKind::ReadOnly | ErrorKind::OutOfMemory | ErrorKind::Loading | ErrorKind::NotServing => {
                self.set_failed(error);
            }
            ErrorKind::Refused => self.request_probe(),
            _ => {}
        }
    }

    /// Requests a probe, which decides about the state.
    pub(crate) fn request_probe(&self) {
        self.is_probe_needed.set(true);
        self.trouble.notify_one();
    }

    /// Waits until the server is not up, or a probe is needed. Returns true if a probe is needed at once.
    pub(crate) async fn trouble(&self) -> bool {
        loop {
            if self.is_probe_needed.take() {
                return true;
            }
            if !self.is_up() {
                return false;
            }
            self.trouble.notified().await;
        }
    }

    fn set(&self, state: HealthState) {
        if self.state.replace(state) != state {
            if let Some(server) = self.store.servers.borrow_mut().iter_mut().find(|server| server.id == self.id) {
                server.state = state;
            }
            self.store.update();
        }
    }

    fn log(&self, line: Option<LogLine>, error: Option<&Error>) {
        let Some(line) = line else { return };
        let (state, error) = (self.state.get(), error.cloned());
        let servers = self.store.servers.borrow();
        let server = servers.iter().find(|server| server.id == self.id).map(|server| server.name.clone());
        let instances = self.store.board.instances.described();
        notify(move || line.write(&server.unwrap_or_default(), state, error.as_ref(), &instances));
    }
}

impl Drop for ServerHealth {
    fn drop(&mut self) {
        self.store.servers.borrow_mut().retain(|server| server.id != self.id);
        self.store.update();
    }
}

// The log lines about one server: its first connection, and the beginning and the end of each outage.

/// Decides which lines are logged. An outage is any time in which the server is not up.
///
/// The line of an outage is repeated each minute. A server that comes and goes has at most three outages logged in a
/// minute; a longer one is logged all the same when it has lasted for a minute.
#[derive(Debug, Default)]
struct OutageLog {
    was_connected: bool,
    outage: Option<Outage>,
    interval_start: Option<Instant>,
    outages_in_interval: u32,
}

#[derive(Debug)]
struct Outage {
    began: Instant,
    /// The time of its last line, or of its beginning.
    last_line: Instant,
    is_logged: bool,
}

/// A line of the log, with the time for which the server has been away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogLine {
    Connected,
    /// The store was never there. Each store has this line at most once.
    Absent,
    Away,
    StillAway(Duration),
    Back(Duration),
}

const INTERVAL: Duration = Duration::from_secs(60);
const MAX_OUTAGES_PER_INTERVAL: u32 = 3;

impl OutageLog {
    /// Records that the server is up.
    fn up(&mut self, now: Instant) -> Option<LogLine> {
        let was_connected = std::mem::replace(&mut self.was_connected, true);
        match self.outage.take() {
            Some(outage) => outage.is_logged.then(|| LogLine::Back(now.saturating_duration_since(outage.began))),
            None => (!was_connected).then_some(LogLine::Connected),
        }
    }

    /// Records that the server is not up, or still not up.
    fn failed(&mut self, now: Instant) -> Option<LogLine> {
        if let Some(outage) = &mut self.outage {
            if now.saturating_duration_since(outage.last_line) < INTERVAL {
                return None;
            }
            (outage.last_line, outage.is_logged) = (now, true);
            return Some(LogLine::StillAway(now.saturating_duration_since(outage.began)));
        }
        if self.interval_start.is_none_or(|start| now.saturating_duration_since(start) >= INTERVAL) {
            (self.interval_start, self.outages_in_interval) = (Some(now), 0);
        }
        let is_logged = self.outages_in_interval < MAX_OUTAGES_PER_INTERVAL;
        self.outages_in_interval += u32::from(is_logged);
        self.outage = Some(Outage { began: now, last_line: now, is_logged });
        is_logged.then_some(LogLine::Away)
    }
}

impl LogLine {
    /// Writes the line. It must not run on the worker's thread.
    fn write(self, server: &str, state: HealthState, error: Option<&Error>, instances: &str) {
        let error = error.map(tracing::field::display);
        match self {
            Self::Connected => {
                tracing::info!(target: TARGET, server, "the rate limiter is connected to its store");
            }
            Self::Absent => {
                tracing::error!(
                    target: TARGET,
                    server,
                    %state,
                    error,
                    instances,
                    "the rate limiter's store is away at the start: `on_error` decides until it is there"
                );
            }
            Self::Away => {
                tracing::warn!(target: TARGET, server, %state, error, instances, "the rate limiter's store is away");
            }
            Self::StillAway(away_for) => {
                let away_for = rounded(away_for);
                tracing::warn!(target: TARGET, server, %state, ?away_for, error, "the rate limiter's store is still away");
            }
            Self::Back(away_for) => {
                let away_for = rounded(away_for);
                tracing::info!(target: TARGET, server, ?away_for, "the rate limiter's store is back");
            }
        }
    }
}

/// A duration in whole milliseconds.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_outage_is_logged_at_its_beginning_each_minute_and_at_its_end() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        assert_eq!(log.up(start), Some(LogLine::Connected));
        assert_eq!(log.up(start), None);
        let began = start + SECOND;
        let lines: Vec<_> =
            (0..150).filter_map(|second| log.failed(began + second * SECOND).map(|line| (second, line))).collect();
        let still = |seconds: u32| (seconds, LogLine::StillAway(seconds * SECOND));
        assert_eq!(lines, [(0, LogLine::Away), still(60), still(120)]);
        assert_eq!(log.up(began + 150 * SECOND), Some(LogLine::Back(150 * SECOND)));
        assert_eq!(log.up(began + 151 * SECOND), None);
    }

    #[test]
    fn a_first_connection_after_an_outage_is_logged_as_its_end() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        assert_eq!(log.failed(start), Some(LogLine::Away));
        assert_eq!(log.up(start + SECOND), Some(LogLine::Back(SECOND)));
    }

    #[test]
    fn a_server_that_comes_and_goes_is_logged_3_times_a_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut lines = Vec::new();
        for second in 0..59 {
            let now = start + second * SECOND;
            lines.extend(log.failed(now));
            lines.extend(log.up(now + SECOND / 2));
        }
        assert_eq!(lines, [LogLine::Away, LogLine::Back(SECOND / 2)].repeat(3));
        // An outage that lasts is logged after all.
        let began = start + 59 * SECOND;
        assert_eq!(log.failed(began), None);
        assert_eq!(log.failed(began + INTERVAL), Some(LogLine::StillAway(INTERVAL)));
        assert_eq!(log.up(began + INTERVAL), Some(LogLine::Back(INTERVAL)));
    }
}
