//! What is wrong with a store that answers, told to the log once and not by every call.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crate::{Error, ErrorKind, TARGET};

/// Which troubles of this kind have been told, until the store takes a permit again: then they are over.
#[derive(Debug, Default)]
pub(super) struct Notices(AtomicU8);

impl Notices {
    /// A call failed.
    pub(super) fn failed(&self, error: &Error) {
        let Some((trouble, message)) = trouble(error.kind()) else { return };
        if self.0.fetch_or(trouble, Ordering::Relaxed) & trouble == 0 {
            let error = error.clone();
            log(move || tracing::error!(target: TARGET, %error, "{message}"));
        }
    }

    /// The store has written something, which proves that it may and that there is room.
    pub(super) fn written(&self) {
        // Nothing is written to what all threads read, unless there is something to tell.
        if self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0 {
            log(|| tracing::info!(target: TARGET, "the rate limiter's store takes permits again"));
        }
    }
}

/// Logs on a thread of its own: what listens is the program's, and may block, panic, or be rate limited itself.
pub(super) fn log(message: impl FnOnce() + Send + 'static) {
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
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_else_tells_is_told() {
        let notices = Notices::default();
        for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::ReadOnly, ErrorKind::Protocol] {
            notices.failed(&Error::new(kind, "no"));
        }
        assert_eq!(notices.0.load(Ordering::Relaxed), 0);
    }
}
