//! Requests that lack their key.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::HeaderName;

use crate::piece_name::without_kind;

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

/// The reason why a request lacks a piece of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    NoPeer,
    /// The peer is that of a Unix socket.
    PeerWithoutAddress,
    TooFewEntries {
        header: HeaderName,
        found: usize,
        needed: usize,
    },
    /// The counted entry of a header's list, or its only one, is no address.
    NoAddress(HeaderName),
    /// The header is absent or empty.
    NoHeader(HeaderName),
    SeveralLines(HeaderName),
    /// The header is no UTF-8.
    NoText(HeaderName),
    /// No earlier layer, route or function has given a value.
    NoValue,
}

const REASONS: usize = 8;

impl Lack {
    /// The number of its reason.
    fn index(&self) -> usize {
        match self {
            Self::NoPeer => 0,
            Self::PeerWithoutAddress => 1,
            Self::TooFewEntries { .. } => 2,
            Self::NoAddress(_) => 3,
            Self::NoHeader(_) => 4,
            Self::SeveralLines(_) => 5,
            Self::NoText(_) => 6,
            Self::NoValue => 7,
        }
    }
}

impl fmt::Display for Lack {
    /// Writes the reason and the advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer => f.write_str(
                "the server names no peer: serve with `into_make_service_with_connect_info`, or put a `Peer` into the \
                 extensions",
            ),
            Self::PeerWithoutAddress => f.write_str(
                "the peer of a Unix socket has no address: count by the header in which the proxy writes the client's",
            ),
            Self::TooFewEntries { header, found, needed } => {
                let entries = if *found == 1 { "entry" } else { "entries" };
                write!(
                    f,
                    "the list of addresses in `{header}` has {found} {entries}, needs {needed}: give the number of \
                     proxies that append to it"
                )
            }
            Self::NoAddress(header) => {
                write!(f, "the counted entry of `{header}` is no address: the proxy must write one")
            }
            Self::NoHeader(header) => write!(
                f,
                "the header `{header}` is absent or empty: the client, a proxy or an earlier layer must send it"
            ),
            Self::SeveralLines(header) => {
                write!(f, "the header `{header}` has several lines: a proxy must replace what the client sends")
            }
            Self::NoText(header) => {
                write!(f, "the header `{header}` is no UTF-8: the client, a proxy or an earlier layer must send text")
            }
            Self::NoValue => {
                f.write_str("there is no value: an earlier layer, the route or the key's function must give one")
            }
        }
    }
}

/// Counts requests without their key, for one log line a minute of each reason.
#[derive(Debug)]
pub(crate) struct MissingLog {
    /// The names of the pieces of the key.
    pieces: String,
    start: Instant,
    reasons: [Unlogged; REASONS],
}

/// Requests that lack their key for one reason.
#[derive(Debug, Default)]
struct Unlogged {
    /// The requests that no line has counted yet.
    requests: AtomicU64,
    /// Seconds from the start to the next line.
    next_line: AtomicU64,
}

const PAUSE: Duration = Duration::from_secs(60);

impl MissingLog {
    /// Creates the log of a layer whose keys have these forms.
    pub(crate) fn new(forms: &[Vec<String>]) -> Self {
        let names =
            |pieces: &Vec<String>| pieces.iter().map(|piece| without_kind(piece)).collect::<Vec<_>>().join(", ");
        let forms: Vec<_> = forms.iter().map(names).collect();
        Self { pieces: forms.join(" or "), start: Instant::now(), reasons: Default::default() }
    }

    /// Counts a request. Logs a line unless the last one of this reason is less than a minute ago.
    pub(crate) fn count(&self, rule: &str, lack: &Lack) {
        let Some(requests) = self.reasons[lack.index()].take_due(self.start.elapsed()) else { return };
        let pieces = &self.pieces;
        tracing::warn!(
            target: "rate_limited",
            rule,
            requests,
            pieces,
            "requests lack a piece of the key of their rate limit: {lack}"
        );
    }
}

impl Unlogged {
    /// Counts a request. Returns the number since the last line, if a line is due.
    fn take_due(&self, now: Duration) -> Option<u64> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let due = self.next_line.load(Ordering::Relaxed);
        let next = (now + PAUSE).as_secs();
        (now.as_secs() >= due
            && self.next_line.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok())
        .then(|| self.requests.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_a_minute() {
        let unlogged = Unlogged::default();
        let due = |seconds| unlogged.take_due(Duration::from_secs(seconds));
        assert_eq!([0, 0, 59, 60, 61, 130].map(due), [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[test]
    fn each_reason_has_lines_of_its_own() {
        let (log, now) = (MissingLog::new(&[]), Duration::ZERO);
        let due = |lack: Lack| log.reasons[lack.index()].take_due(now);
        let header = HeaderName::from_static("x-forwarded-for");
        let too_few = |found| Lack::TooFewEntries { header: header.clone(), found, needed: 2 };
        assert_eq!([too_few(1), Lack::NoPeer, too_few(0), Lack::NoPeer].map(due), [Some(1), Some(1), None, None]);
        assert!(too_few(1).to_string().contains("`x-forwarded-for` has 1 entry, needs 2"), "{}", too_few(1));
        assert!(too_few(0).to_string().contains("`x-forwarded-for` has 0 entries, needs 2"), "{}", too_few(0));
    }
}
