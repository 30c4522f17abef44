//! What happens to connections and to bytes: decided in one place, under one lock.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::link::Link;

/// Where the switch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Pass,
    Delay(Duration),
    Stall,
    LoseReplies,
    Garble,
    CutReplies,
    HalfOpen,
    Cut,
    Ended,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Command,
    Reply,
}

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    Garbled,
    Half,
    Lost,
}

#[derive(Debug)]
pub(super) struct Switch {
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    links: Vec<Weak<Link>>,
    connections: u64,
    most_attempts: usize,
}

impl Switch {
    pub(super) fn new() -> Self {
        let state = State { mode: Mode::Pass, links: Vec::new(), connections: 0, most_attempts: 0 };
        Self { state: Mutex::new(state), turned: Condvar::new() }
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
        for link in state.open_links() {
            if matches!(mode, Mode::Cut | Mode::Ended) || (link.has_lost() && !link.is_orphaned()) {
                link.close();
            } else if mode == Mode::HalfOpen {
                link.orphan();
            }
        }
        self.turned.notify_all();
    }

    /// Takes a new connection in, or closes it if the mode is against it.
    pub(super) fn admit(&self, link: &Arc<Link>) {
        let mut state = self.lock();
        state.links.push(Arc::downgrade(link));
        match state.mode {
            Mode::Cut | Mode::Ended => link.close(),
            Mode::HalfOpen => link.orphan(),
            _ => {}
        }
    }

    /// What becomes of bytes that are there now. If they do not go on as they are, the connection has lost them.
    pub(super) fn fate(&self, way: Way, link: &Link) -> Fate {
        let state = self.lock();
        let fate = match (state.mode, way) {
            _ if link.is_orphaned() => Fate::Lost,
            (Mode::Pass | Mode::Delay(_), _) if link.has_lost() => Fate::Lost,
            (Mode::Pass | Mode::Delay(_), _) => Fate::Whole,
            (Mode::LoseReplies | Mode::Garble | Mode::CutReplies, Way::Command) => Fate::Whole,
            (Mode::Garble, Way::Reply) => Fate::Garbled,
            (Mode::CutReplies, Way::Reply) => Fate::Half,
            (Mode::LoseReplies | Mode::Stall | Mode::HalfOpen | Mode::Cut | Mode::Ended, _) => Fate::Lost,
        };
        if fate != Fate::Whole {
            link.lose();
        }
        fate
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

    /// Counts a connection that has just been made, and those that still wait for their first answer beside it.
    pub(super) fn count_connection(&self) {
        let mut open = self.lock().open_links();
        open.retain(|link| !link.is_answered());
        // Not under the lock, and all at once: each takes a moment.
        let attempts = thread::scope(|scope| {
            let asked: Vec<_> = open.iter().map(|link| scope.spawn(|| link.is_attempt())).collect();
            1 + asked.into_iter().filter_map(|asked| asked.join().ok()).filter(|is_attempt| *is_attempt).count()
        });
        let mut state = self.lock();
        state.connections += 1;
        state.most_attempts = state.most_attempts.max(attempts);
    }

    pub(super) fn connections(&self) -> u64 {
        self.lock().connections
    }

    pub(super) fn most_attempts(&self) -> usize {
        self.lock().most_attempts
    }

    pub(super) fn forget_counts(&self) {
        let mut state = self.lock();
        (state.connections, state.most_attempts) = (0, 0);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open_links(&mut self) -> Vec<Arc<Link>> {
        self.links.retain(|link| link.strong_count() > 0);
        self.links.iter().filter_map(Weak::upgrade).collect()
    }
}
