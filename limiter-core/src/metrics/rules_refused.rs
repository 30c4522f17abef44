//! The gauge of sets of rules that are refused at present.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::refused_sets;
use super::register_loads;
use crate::sync::process::PerProcess;

/// The last set of rules of one origin of a limiter. The gauge is the number of limiters whose last set was refused.
///
/// [`withdraw`](Self::withdraw) is called with the limiter, because a drop on the thread of a worker must not run the
/// recorder.
#[derive(Debug)]
pub(crate) struct RulesRefused {
    origin: &'static str,
    state: AtomicU8,
}

const IN_FORCE: u8 = 0;
const REFUSED: u8 = 1;
/// The limiter is dropped.
const WITHDRAWN: u8 = 2;

/// The number of limiters whose last set was refused, by origin.
fn limiters(origin: &str) -> &'static AtomicU32 {
    static FILE: PerProcess<AtomicU32> = PerProcess::new();
    static SHARED: PerProcess<AtomicU32> = PerProcess::new();
    static RUNTIME: PerProcess<AtomicU32> = PerProcess::new();
    match origin {
        "file" => FILE.here(),
        "shared" => SHARED.here(),
        _ => RUNTIME.here(),
    }
}

impl RulesRefused {
    pub(crate) const fn new(origin: &'static str) -> Self {
        Self { origin, state: AtomicU8::new(IN_FORCE) }
    }

    /// Registers the series of the origin, so that each begins at 0.
    pub(crate) fn register(&self) {
        register_loads(self.origin);
    }

    /// Records that a set is in force or was refused. Does nothing once the limiter is dropped.
    pub(crate) fn set(&self, is_refused: bool) {
        self.change(if is_refused { REFUSED } else { IN_FORCE });
    }

    /// Takes the limiter off the gauge for good.
    pub(crate) fn withdraw(&self) {
        self.change(WITHDRAWN);
    }

    fn change(&self, new: u8) {
        let change = |old| (old != WITHDRAWN && old != new).then_some(new);
        let Ok(old) = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) else { return };
        let limiters = limiters(self.origin);
        match (old == REFUSED, new == REFUSED) {
            (false, true) => drop(limiters.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(limiters.fetch_sub(1, Ordering::SeqCst)),
            _ => return,
        }
        show(self.origin);
    }
}

impl Drop for RulesRefused {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Sets the gauge, again if another thread has changed the number meanwhile.
fn show(origin: &'static str) {
    let limiters = || limiters(origin).load(Ordering::SeqCst);
    loop {
        let shown = limiters();
        refused_sets(origin, shown);
        if limiters() == shown {
            break;
        }
    }
}
