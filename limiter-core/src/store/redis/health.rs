//! The health of a store: the state of each server, the worst of them for callers, and their log lines.
//!
//! The worker's thread writes it. Only errors, probes and changes of a connection do, never a decision.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use tokio::sync::Notify;

use crate::health::{Health, HealthObservers, HealthState};
use crate::store::redis::notifier::{notify, notify_always};
use crate::sync::Mutex;
use crate::{Error, ErrorKind, TARGET};

mod outage_log;

use outage_log::{LogLine, OutageLog};

/// The health of one worker's store, which callers read.
#[derive(Debug)]
pub(crate) struct HealthBoard {
    state: Mutex<BoardState>,
    /// The store owns the observers, so that none is dropped on the worker's thread.
    observers: Weak<HealthObservers>,
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
    pub(crate) fn new(servers: String, observers: &Arc<HealthObservers>) -> Self {
        let health = Health::new(HealthState::Connecting, SystemTime::now(), Some(servers));
        let state = BoardState { health, unreported: VecDeque::new(), is_reporting: false };
        Self { state: Mutex::new(state), observers: Arc::downgrade(observers) }
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
        notify(move || line.write(&server.unwrap_or_default(), state, error.as_ref()));
    }
}

impl Drop for ServerHealth {
    fn drop(&mut self) {
        self.store.servers.borrow_mut().retain(|server| server.id != self.id);
        self.store.update();
    }
}
