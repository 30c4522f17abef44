//! When the places for keys in this process are all taken, whoever runs the program is told.

use std::sync::Arc;
use std::time::Duration;

use crate::Source;
use crate::clock::Clock;
use crate::sync::{AtomicU64, Ordering};

/// Every place for keys in this process is taken, and new keys share counts: they may be denied early, and nobody is
/// admitted too much.
///
/// Given to observers by [`Builder::on_overflow`](crate::Builder::on_overflow). More
/// [`max_keys`](crate::Builder::max_keys) help, or shorter windows; or somebody makes up keys.
#[derive(Clone, Debug)]
pub struct Overflow {
    source: Source,
    max_keys: usize,
    shared: u64,
}

impl Overflow {
    /// Whose places: [`Source::Store`] of a limiter in memory, [`Source::Standby`] of the stand-in for a store, which
    /// keeps count of what this process admits.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// How many keys are kept apart.
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// How often a key had to share since observers were told last: once for each limit that a call asked for, whether
    /// it was allowed or denied.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared
    }
}

/// Counts how often keys had to share, and knows when that is to be told.
///
/// Those who count may hold locks, or be a thread that runs no code of the program's. Those who tell do neither.
#[derive(Debug)]
pub(crate) struct Overflows {
    source: Source,
    max_keys: usize,
    clock: Clock,
    /// Since it was told last.
    shared: AtomicU64,
    /// In microseconds of the clock; [`NEVER`] if it was not.
    told_at: AtomicU64,
    logged_at: AtomicU64,
}

const NEVER: u64 = 0;
/// Observers are told no more often.
const PAUSE: Duration = Duration::from_secs(1);
/// The log is told no more often.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// What is to be told now.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) overflow: Overflow,
    pub(crate) to_log: bool,
}

impl Overflows {
    pub(crate) fn new(source: Source, max_keys: usize, clock: Clock) -> Arc<Self> {
        let (shared, told_at, logged_at) = (AtomicU64::new(0), AtomicU64::new(NEVER), AtomicU64::new(NEVER));
        Arc::new(Self { source, max_keys, clock, shared, told_at, logged_at })
    }

    /// Keys had to share so often.
    pub(crate) fn count(&self, shared: u64) {
        if shared > 0 {
            self.shared.fetch_add(shared, Ordering::Relaxed);
        }
    }

    /// What there is to tell, to one of those who ask at once.
    #[inline]
    pub(crate) fn due(&self) -> Option<Report> {
        if self.shared.load(Ordering::Relaxed) == 0 { None } else { self.due_now() }
    }

    #[cold]
    fn due_now(&self) -> Option<Report> {
        let now = self.clock.now().micros().max(NEVER + 1);
        if !passed(&self.told_at, now, PAUSE) {
            return None;
        }
        let shared = self.shared.swap(0, Ordering::Relaxed);
        let overflow = Overflow { source: self.source, max_keys: self.max_keys, shared };
        (shared > 0).then(|| Report { overflow, to_log: passed(&self.logged_at, now, LOG_PAUSE) })
    }
}

/// Whether so long has passed since `last`; if so, that is now, and nobody else is told so.
fn passed(last: &AtomicU64, now: u64, pause: Duration) -> bool {
    let seen = last.load(Ordering::Relaxed);
    let since = Duration::from_micros(now.abs_diff(seen));
    (seen == NEVER || since >= pause) && last.compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
