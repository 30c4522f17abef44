//! What happens to connections and to bytes: decided in one place, under one lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::link::Link;

/// Where the switch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Pass,
    Delay(Duration),
    Stall,
    LoseReplies,
    Cut,
    Ended,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Command,
    Reply,
}

#[derive(Debug)]
pub(super) struct Switch {
    state: Mutex<State>,
    turned: Condvar,
    connections: AtomicU64,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    links: Vec<Weak<Link>>,
}

impl Switch {
    pub(super) fn new() -> Self {
        let state = Mutex::new(State { mode: Mode::Pass, links: Vec::new() });
        Self { state, turned: Condvar::new(), connections: AtomicU64::new(0) }
    }

    pub(super) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// From here on. Closes the connections that cannot go on under the new mode.
    pub(super) fn turn(&self, mode: Mode) {
        let mut state = self.lock();
        if state.mode == mode {
            return;
        }
        state.mode = mode;
        state.links.retain(|link| link.strong_count() > 0);
        for link in state.links.iter().filter_map(Weak::upgrade) {
            if matches!(mode, Mode::Cut | Mode::Ended) || link.has_lost() {
                link.close();
            }
        }
        self.turned.notify_all();
    }

    /// Takes a new connection in, or closes it if the mode is against it.
    pub(super) fn admit(&self, link: &Arc<Link>) {
        let mut state = self.lock();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(link));
        if matches!(state.mode, Mode::Cut | Mode::Ended) {
            link.close();
        }
    }

    /// Whether bytes may go on; if not, the connection has lost them.
    pub(super) fn lets_through(&self, way: Way, link: &Link) -> bool {
        let state = self.lock();
        let through = match state.mode {
            Mode::Pass | Mode::Delay(_) => !link.has_lost(),
            Mode::LoseReplies => way == Way::Command,
            Mode::Stall | Mode::Cut | Mode::Ended => false,
        };
        if !through {
            link.lose();
        }
        through
    }

    /// When a reply that came just now is due.
    pub(super) fn due(&self) -> Instant {
        let now = Instant::now();
        match self.mode() {
            Mode::Delay(by) => now + by,
            _ => now,
        }
    }

    /// Returns at `due`, or as soon as replies are not delayed any more.
    pub(super) fn wait_until(&self, due: Instant) {
        let mut state = self.lock();
        while let (Mode::Delay(_), Some(left)) = (state.mode, due.checked_duration_since(Instant::now())) {
            if left.is_zero() {
                return;
            }
            let waited = self.turned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
