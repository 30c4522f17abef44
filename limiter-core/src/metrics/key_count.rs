//! The number of keys that a limiter counts exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::{IS_ON, key_count};
use crate::Source;
use crate::clock::{Clock, Moment};
use crate::sync::process::PerProcess;

/// The number of keys of a limiter's map in this process. The gauge is the sum over all limiters.
///
/// [`change`](Self::change) runs under a lock and calls no recorder. [`report_if_due`](Self::report_if_due) is called
/// where observers may run.
#[derive(Clone, Debug)]
pub(crate) struct KeyCount(Arc<CountedKeys>);

#[derive(Debug)]
struct CountedKeys {
    source: Source,
    keys: AtomicUsize,
    /// True if the number has changed since the last report.
    is_changed: AtomicBool,
    /// The time from which the next report is due, in microseconds of the clock.
    due_at: AtomicU64,
    /// The part of the gauge that is this limiter's.
    reported: AtomicI64,
}

/// The shortest time between two reports, in microseconds.
const REPORT_INTERVAL: u64 = 1_000_000;

/// The values of both gauges.
static STORE_KEYS: PerProcess<AtomicI64> = PerProcess::new();
static STANDBY_KEYS: PerProcess<AtomicI64> = PerProcess::new();

impl KeyCount {
    pub(crate) fn new(source: Source) -> Self {
        Self(Arc::new(CountedKeys {
            source,
            keys: AtomicUsize::new(0),
            is_changed: AtomicBool::new(false),
            due_at: AtomicU64::new(0),
            reported: AtomicI64::new(0),
        }))
    }

    /// Changes the number by the difference of two sizes of a shard.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if IS_ON && before != after {
            self.0.keys.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            self.0.is_changed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the limiter's keys off the gauge, when the limiter is dropped.
    pub(crate) fn withdraw(&self) {
        if self.0.reported.load(Ordering::Relaxed) != 0 {
            self.0.report(0);
        }
    }

    /// Sets the gauge if the number has changed, at most once a second. It reads the clock if the time is unknown.
    #[inline]
    pub(crate) fn report_if_due(&self, time: Option<Moment>, clock: &Clock) {
        if IS_ON && self.0.is_changed.load(Ordering::Relaxed) {
            let (now, due_at) = (time.unwrap_or_else(|| clock.now()), self.0.due_at.load(Ordering::Relaxed));
            if now.micros() >= due_at {
                self.report(now, due_at);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn report(&self, now: Moment, due_at: u64) {
        let next = now.micros().saturating_add(REPORT_INTERVAL);
        if self.0.due_at.compare_exchange(due_at, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        self.0.is_changed.store(false, Ordering::Relaxed);
        let keys = self.0.keys.load(Ordering::Relaxed);
        self.0.report(i64::try_from(keys).unwrap_or(i64::MAX));
    }
}

impl CountedKeys {
    fn report(&self, keys: i64) {
        let total = if self.source == Source::Standby { STANDBY_KEYS.here() } else { STORE_KEYS.here() };
        total.fetch_add(keys - self.reported.swap(keys, Ordering::Relaxed), Ordering::Relaxed);
        key_count(self.source, u32::try_from(total.load(Ordering::Relaxed).max(0)).unwrap_or(u32::MAX));
    }
}
