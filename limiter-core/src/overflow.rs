//! The report of a full memory store to observers and to the log.

use std::sync::Arc;
use std::time::Duration;

use crate::Source;
use crate::clock::{Clock, Moment};
use crate::metrics::KeyCount;
use crate::sync::{AtomicU64, Ordering};

/// A report that the process counts as many keys as it may, and that new keys share counters.
///
/// Keys that share a counter may be denied early, but none is admitted too much. Observers of
/// [`Builder::on_overflow`](crate::Builder::on_overflow) receive the report. Raise
/// [`max_keys`](crate::Builder::max_keys) or use shorter windows, and check whether a client invents keys.
#[derive(Clone, Debug)]
pub struct Overflow {
    source: Source,
    max_keys: usize,
    shared: u64,
}

impl Overflow {
    /// Returns the store that is full: [`Source::Store`] for a limiter in memory, or [`Source::Standby`] for the
    /// standby limiter, which counts the permits that this process is granted.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the number of keys that are counted exactly.
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Returns how often a shared counter decided since the last report. A call counts once for each of its limits,
    /// whether it was allowed or denied.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared
    }
}

/// The number of decisions by shared counters since the last report, and the times of the last reports.
///
/// [`count`](Self::count) may be called under a lock, and on threads that must run no code of the program.
/// [`take_due_report`](Self::take_due_report) is called where observers may run.
#[derive(Debug)]
pub(crate) struct Overflows {
    source: Source,
    max_keys: usize,
    clock: Clock,
    /// The decisions since the last report.
    shared: AtomicU64,
    /// The time of the last report, in microseconds of the clock, or [`NEVER`].
    reported_at: AtomicU64,
    /// The time of the last report to the log, as above.
    logged_at: AtomicU64,
    keys: KeyCount,
}

const NEVER: u64 = 0;
/// The shortest time between two reports to observers.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two reports to the log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A report that is due.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) overflow: Overflow,
    /// True if the log is due for a report too.
    pub(crate) to_log: bool,
}

impl Overflows {
    pub(crate) fn new(source: Source, max_keys: usize, clock: Clock) -> Arc<Self> {
        let (shared, reported_at, logged_at) = (AtomicU64::new(0), AtomicU64::new(NEVER), AtomicU64::new(NEVER));
        Arc::new(Self { source, max_keys, clock, shared, reported_at, logged_at, keys: KeyCount::new(source) })
    }

    /// The number of keys that have counters of their own, for the metric of it.
    pub(crate) fn keys(&self) -> &KeyCount {
        &self.keys
    }

    /// Sets the metric of the number of keys, if that is due.
    #[inline]
    pub(crate) fn report_keys(&self, time: Option<Moment>) {
        self.keys.report_if_due(time, &self.clock);
    }

    /// Adds decisions by shared counters.
    pub(crate) fn count(&self, shared: u64) {
        if shared > 0 {
            self.shared.fetch_add(shared, Ordering::Relaxed);
        }
    }

    /// Returns a report if one is due, to one of several concurrent callers.
    #[inline]
    pub(crate) fn take_due_report(&self) -> Option<Report> {
        if self.shared.load(Ordering::Relaxed) == 0 { None } else { self.take_report() }
    }

    #[cold]
    fn take_report(&self) -> Option<Report> {
        let now = self.clock.now().micros().max(NEVER + 1);
        if !restart_interval(&self.reported_at, now, REPORT_INTERVAL) {
            return None;
        }
        let shared = self.shared.swap(0, Ordering::Relaxed);
        let overflow = Overflow { source: self.source, max_keys: self.max_keys, shared };
        (shared > 0).then(|| Report { overflow, to_log: restart_interval(&self.logged_at, now, LOG_INTERVAL) })
    }
}

/// Returns true if `interval` has passed since `last`, and sets `last` to now. Of several concurrent callers, one gets
/// true.
fn restart_interval(last: &AtomicU64, now: u64, interval: Duration) -> bool {
    let seen = last.load(Ordering::Relaxed);
    let since = Duration::from_micros(now.abs_diff(seen));
    (seen == NEVER || since >= interval)
        && last.compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
