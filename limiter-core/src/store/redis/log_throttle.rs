//! Log lines about errors of a store: one for each kind of error, instead of one for each failed call.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::redis::notifier::notify;
use crate::{Error, ErrorKind, TARGET};

/// Logs each kind of error once until the store grants a permit again, which ends the errors of all kinds.
///
/// Errors that concern only some calls alternate with successes. At most three recoveries a minute are logged, and
/// after them no further error until the minute ends.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    /// The servers, for the log lines.
    servers: String,
    /// One bit for each kind of error that has been logged.
    logged: AtomicU8,
    recoveries: Mutex<Recoveries>,
}

/// The number of recoveries that were logged in the current interval.
#[derive(Debug, Default)]
struct Recoveries {
    interval_start: Option<Instant>,
    count: u32,
}

const INTERVAL: Duration = Duration::from_secs(60);
const MAX_RECOVERIES_PER_INTERVAL: u32 = 3;

impl LogThrottle {
    pub(crate) fn new(servers: String) -> Self {
        Self { servers, logged: AtomicU8::new(0), recoveries: Mutex::default() }
    }

    pub(crate) fn on_failure(&self, error: &Error) {
        let Some((bit, message)) = classify(error.kind()) else { return };
        if self.logged.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (error, servers) = (error.clone(), self.servers.clone());
            notify(move || tracing::error!(target: TARGET, %error, servers, "{message}"));
        }
    }

    /// Records that the store granted a permit. That proves write access and free memory.
    pub(crate) fn on_success(&self) {
        // All threads read `logged`, so it is written only if an error was logged.
        if self.logged.load(Ordering::Relaxed) != 0 && self.record_recovery(Instant::now()) {
            let servers = self.servers.clone();
            notify(move || tracing::info!(target: TARGET, servers, "Redis grants permits again"));
        }
    }

    /// Returns true if the recovery must be logged, resets the logged errors and counts it. Returns false, and changes
    /// neither, if no error was logged or the interval has its recoveries.
    fn record_recovery(&self, now: Instant) -> bool {
        let mut recoveries = self.recoveries.lock().unwrap_or_else(PoisonError::into_inner);
        if recoveries.interval_start.is_none_or(|start| now.saturating_duration_since(start) >= INTERVAL) {
            *recoveries = Recoveries { interval_start: Some(now), count: 0 };
        }
        if recoveries.count == MAX_RECOVERIES_PER_INTERVAL || self.logged.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        recoveries.count += 1;
        true
    }
}

/// Returns the bit and the message of an error. Returns `None` if a lost connection is logged for it, or if it concerns
/// a single key.
fn classify(kind: ErrorKind) -> Option<(u8, &'static str)> {
    match kind {
        ErrorKind::OutOfMemory => Some((1, "Redis is out of memory; falling back to `on_error`")),
        ErrorKind::Refused => Some((2, "Redis refuses access; falling back to `on_error`")),
        ErrorKind::NotServing => Some((4, "Redis rejects writes; falling back to `on_error`")),
        ErrorKind::Loading => Some((8, "Redis is loading or busy; falling back to `on_error`")),
        ErrorKind::Overloaded => {
            Some((16, "`max_in_flight` calls are waiting for Redis; further calls fall back to `on_error`"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_only_errors_no_other_message_covers() {
        let throttle = LogThrottle::new(String::new());
        for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::ReadOnly, ErrorKind::Protocol] {
            throttle.on_failure(&Error::new(kind, "no"));
        }
        assert_eq!(throttle.logged.load(Ordering::Relaxed), 0);
    }

    /// Such errors occur if a permission is missing that only some calls need.
    #[test]
    fn flapping_errors_are_logged_at_most_3_times_a_minute() {
        let (throttle, start) = (LogThrottle::new(String::new()), Instant::now());
        let logged_recoveries = |seconds: std::ops::Range<u64>| {
            let logged = seconds.filter(|second| {
                throttle.on_failure(&Error::new(ErrorKind::Refused, "no"));
                throttle.record_recovery(start + Duration::from_secs(*second))
            });
            logged.collect::<Vec<_>>()
        };
        assert_eq!(logged_recoveries(0..60), [0, 1, 2]);
        assert_eq!(logged_recoveries(60..100), [60, 61, 62]);
    }
}
