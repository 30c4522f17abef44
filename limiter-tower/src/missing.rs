//! Requests that lack their key.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::request::Parts;

use crate::peer::Peer;
use crate::piece_name::without_prefixes;

/// The treatment of requests that lack a piece of their key, such as a header or the address of their client.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The answer is 400, or `INVALID_ARGUMENT` of gRPC.
    #[default]
    Deny,
    /// The request is not limited.
    Allow,
    /// All such requests share one quota.
    Shared,
}

/// Counts requests without their key, for one log line a minute.
#[derive(Debug)]
pub(crate) struct MissingLog {
    /// The names of the pieces of the key.
    pieces: String,
    start: Instant,
    /// The requests that no line has counted yet.
    unlogged: AtomicU64,
    /// Seconds from the start to the next line.
    next_line: AtomicU64,
}

const PAUSE: Duration = Duration::from_secs(60);

impl MissingLog {
    /// Creates the log of a layer whose keys have these forms.
    pub(crate) fn new(forms: &[Vec<String>]) -> Self {
        let names =
            |pieces: &Vec<String>| pieces.iter().map(|piece| without_prefixes(piece)).collect::<Vec<_>>().join(", ");
        let forms: Vec<_> = forms.iter().map(names).collect();
        Self {
            pieces: forms.join(" or "),
            start: Instant::now(),
            unlogged: AtomicU64::new(0),
            next_line: AtomicU64::new(0),
        }
    }

    /// Counts a request. Logs a line unless the last one is less than a minute ago.
    pub(crate) fn count(&self, rule: &str, parts: &Parts) {
        let Some(requests) = self.take_due(self.start.elapsed()) else { return };
        let pieces = &self.pieces;
        if Peer::of(parts).is_none() {
            tracing::warn!(
                target: "rate_limited",
                rule,
                requests,
                pieces,
                "requests lack a piece of the key of their rate limit, and the server names no peer: serve with \
                 `into_make_service_with_connect_info`, or put a `Peer` into the extensions"
            );
        } else {
            tracing::warn!(
                target: "rate_limited",
                rule,
                requests,
                pieces,
                "requests lack a piece of the key of their rate limit: the client, a proxy or an earlier layer must send it"
            );
        }
    }

    /// Returns the number of requests since the last line, if a line is due.
    fn take_due(&self, now: Duration) -> Option<u64> {
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        let due = self.next_line.load(Ordering::Relaxed);
        let next = (now + PAUSE).as_secs();
        (now.as_secs() >= due
            && self.next_line.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        .then(|| self.unlogged.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_a_minute() {
        let log = MissingLog::new(&[]);
        let due = |seconds| log.take_due(Duration::from_secs(seconds));
        assert_eq!([0, 0, 59, 60, 61, 130].map(due), [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
