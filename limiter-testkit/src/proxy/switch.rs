//! The proxy's mode, which decides about connections and bytes in one place, under one lock.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::link::Link;

/// The mode of the proxy.
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

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Command,
    Reply,
}

/// The form in which bytes are forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarding {
    Intact,
    Inverted,
    FirstHalf,
    Discarded,
}

#[derive(Debug)]
pub(super) struct Switch {
    state: Mutex<SwitchState>,
    mode_changed: Condvar,
}

#[derive(Debug)]
struct SwitchState {
    mode: Mode,
    links: Vec<Weak<Link>>,
    connections: u64,
    max_concurrent_attempts: usize,
}

impl Switch {
    pub(super) fn new() -> Self {
        let state = SwitchState { mode: Mode::Pass, links: Vec::new(), connections: 0, max_concurrent_attempts: 0 };
        Self { state: Mutex::new(state), mode_changed: Condvar::new() }
    }

    pub(super) fn mode(&self) -> Mode {
        self.lock().mode
    }

    /// Sets the mode, and closes the connections that cannot continue in it.
    pub(super) fn set_mode(&self, mode: Mode) {
        let mut state = self.lock();
        if state.mode == mode {
            return;
        }
        state.mode = mode;
        for link in state.open_links() {
            if matches!(mode, Mode::Cut | Mode::Ended) || (link.has_lost_bytes() && !link.is_half_open()) {
                link.close();
            } else if mode == Mode::HalfOpen {
                link.mark_half_open();
            }
        }
        self.mode_changed.notify_all();
    }

    /// Registers a new connection, and closes it if the mode is `Cut` or `Ended`.
    pub(super) fn register(&self, link: &Arc<Link>) {
        let mut state = self.lock();
        state.links.push(Arc::downgrade(link));
        match state.mode {
            Mode::Cut | Mode::Ended => link.close(),
            Mode::HalfOpen => link.mark_half_open(),
            _ => {}
        }
    }

    /// Returns how these bytes are forwarded. If they are not forwarded intact, the connection is marked as lossy.
    pub(super) fn forwarding(&self, direction: Direction, link: &Link) -> Forwarding {
        let state = self.lock();
        let forwarding = match (state.mode, direction) {
            _ if link.is_half_open() => Forwarding::Discarded,
            (Mode::Pass | Mode::Delay(_), _) if link.has_lost_bytes() => Forwarding::Discarded,
            (Mode::Pass | Mode::Delay(_), _) => Forwarding::Intact,
            (Mode::LoseReplies | Mode::Garble | Mode::CutReplies, Direction::Command) => Forwarding::Intact,
            (Mode::Garble, Direction::Reply) => Forwarding::Inverted,
            (Mode::CutReplies, Direction::Reply) => Forwarding::FirstHalf,
            (Mode::LoseReplies | Mode::Stall | Mode::HalfOpen | Mode::Cut | Mode::Ended, _) => Forwarding::Discarded,
        };
        if forwarding != Forwarding::Intact {
            link.mark_lossy();
        }
        forwarding
    }

    /// Returns the time at which a reply that arrived now is forwarded.
    pub(super) fn deliver_at(&self) -> Instant {
        let now = Instant::now();
        match self.mode() {
            Mode::Delay(by) => now + by,
            _ => now,
        }
    }

    /// Waits until `deliver_at`, or until replies are no longer delayed.
    pub(super) fn wait_until(&self, deliver_at: Instant) {
        let mut state = self.lock();
        while let (Mode::Delay(_), Some(left)) = (state.mode, deliver_at.checked_duration_since(Instant::now())) {
            if left.is_zero() {
                return;
            }
            let waited = self.mode_changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts a new connection, and updates the greatest number of concurrent attempts.
    pub(super) fn count_connection(&self) {
        let mut open = self.lock().open_links();
        open.retain(|link| !link.has_replied());
        // Each check takes a millisecond, so they run concurrently and without the lock.
        let attempts = thread::scope(|scope| {
            let checks: Vec<_> = open.iter().map(|link| scope.spawn(|| link.is_attempt())).collect();
            1 + checks.into_iter().filter_map(|check| check.join().ok()).filter(|is_attempt| *is_attempt).count()
        });
        let mut state = self.lock();
        state.connections += 1;
        state.max_concurrent_attempts = state.max_concurrent_attempts.max(attempts);
    }

    pub(super) fn connections(&self) -> u64 {
        self.lock().connections
    }

    pub(super) fn max_concurrent_attempts(&self) -> usize {
        self.lock().max_concurrent_attempts
    }

    pub(super) fn reset_counts(&self) {
        let mut state = self.lock();
        (state.connections, state.max_concurrent_attempts) = (0, 0);
    }

    fn lock(&self) -> MutexGuard<'_, SwitchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SwitchState {
    fn open_links(&mut self) -> Vec<Arc<Link>> {
        self.links.retain(|link| link.strong_count() > 0);
        self.links.iter().filter_map(Weak::upgrade).collect()
    }
}
