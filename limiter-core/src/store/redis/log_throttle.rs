//! What is wrong with a store that answers, told to the log once and not by every call.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, ErrorKind, TARGET};

/// Which troubles of this kind have been told, until the store takes a permit again: then they are over. Trouble that
/// concerns some calls and not others comes and goes with each of them, which is told a few times a minute.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    told: AtomicU8,
    ends: Mutex<Ends>,
}

/// How often trouble was over, since when.
#[derive(Debug, Default)]
struct Ends {
    since: Option<Instant>,
    many: u32,
}

const MINUTE: Duration = Duration::from_secs(60);
const A_FEW: u32 = 3;

impl LogThrottle {
    /// A call failed.
    pub(crate) fn failed(&self, error: &Error) {
        let Some((trouble, message)) = trouble(error.kind()) else { return };
        if self.told.fetch_or(trouble, Ordering::Relaxed) & trouble == 0 {
            let error = error.clone();
            log(move || tracing::error!(target: TARGET, %error, "{message}"));
        }
    }

    /// The store has written something, which proves that it may and that there is room.
    pub(crate) fn written(&self) {
        // Nothing is written to what all threads read, unless there is something to tell.
        if self.told.load(Ordering::Relaxed) != 0 && self.is_over(Instant::now()) {
            log(|| tracing::info!(target: TARGET, "the rate limiter's store takes permits again"));
        }
    }

    /// Whether that is to be told now.
    fn is_over(&self, now: Instant) -> bool {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.since.is_none_or(|since| now.saturating_duration_since(since) >= MINUTE) {
            *ends = Ends { since: Some(now), many: 0 };
        }
        if ends.many == A_FEW || self.told.swap(0, Ordering::Relaxed) == 0 {
            return false;
        }
        ends.many += 1;
        true
    }
}

/// Logs on a thread of its own: what listens is the program's, and may block, panic, or be rate limited itself.
pub(crate) fn log(message: impl FnOnce() + Send + 'static) {
    drop(thread::Builder::new().name("rate-limited-log".to_owned()).spawn(message));
}

/// What no lost connection tells of, and is no trouble of one key alone.
fn trouble(kind: ErrorKind) -> Option<(u8, &'static str)> {
    match kind {
        ErrorKind::OutOfMemory => Some((1, "the rate limiter's store has no room: its policies decide instead")),
        ErrorKind::Refused => Some((2, "the rate limiter's store refuses it: its policies decide instead")),
        ErrorKind::NotServing => {
            Some((4, "the rate limiter's store is up and serves nothing: its policies decide instead"))
        }
        ErrorKind::Loading => Some((8, "the rate limiter's store is not ready: its policies decide instead")),
        ErrorKind::Overloaded => Some((
            16,
            "the rate limiter has `max_in_flight` calls waiting for its store: its policies decide the others",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_else_tells_is_told() {
        let notices = LogThrottle::default();
        for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::ReadOnly, ErrorKind::Protocol] {
            notices.failed(&Error::new(kind, "no"));
        }
        assert_eq!(notices.told.load(Ordering::Relaxed), 0);
    }

    /// As where a permission is missing that not every call needs.
    #[test]
    fn what_comes_and_goes_is_told_a_few_times_a_minute() {
        let (notices, begun) = (LogThrottle::default(), Instant::now());
        let ends = |seconds: std::ops::Range<u64>| {
            let ends = seconds.filter(|second| {
                notices.failed(&Error::new(ErrorKind::Refused, "no"));
                notices.is_over(begun + Duration::from_secs(*second))
            });
            ends.collect::<Vec<_>>()
        };
        assert_eq!(ends(0..60), [0, 1, 2]);
        assert_eq!(ends(60..100), [60, 61, 62]);
    }
}
