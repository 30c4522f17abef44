//! Failures of the limiter itself. A denial is not one of them: that is a value, [`Denied`](crate::Denied).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why the limiter could not decide: its store failed, or it was set up wrongly.
///
/// Cheap to clone. Its text and its `Debug` form may name the server's host and port; they never contain a user, a
/// password or the contents of a key.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What went wrong, for code that reacts to it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No answer within the deadline. The store may or may not have counted the call.
    Timeout,
    /// The store cannot be reached, or the connection broke. It may or may not have counted the call.
    Unavailable,
    /// The store is up but not ready: it is loading its data, or busy with somebody's script.
    Loading,
    /// The store is up but takes no permits now: the cluster is down or moving the key, or the server cannot save its
    /// data or misses its replicas.
    NotServing,
    /// The store is a replica: it lost its role in a failover.
    ReadOnly,
    /// The store is at its memory limit and takes no writes.
    OutOfMemory,
    /// [`Builder::max_in_flight`](crate::Builder::max_in_flight) calls of this limiter wait for the store already. Nothing was
    /// sent. Callers can cause this, so [`OnError::Open`](crate::OnError::Open) admits nobody for it: it counts as
    /// [`Standby`](crate::OnError::Standby).
    Overloaded,
    /// The process was forked, and the limiter cannot be used in this child: another thread of its parent was inside it at
    /// that moment, or its threads cannot be started here. [`OnError::Standby`](crate::OnError::Standby) counts as
    /// [`Closed`](crate::OnError::Closed) then. A limiter that is built in the child works.
    Forked,
    /// The store refused the user, the password, a permission or the client's certificate; or its own certificate
    /// proves nothing.
    Refused,
    /// The store answered something else than this limiter writes: a key of another type, foreign bytes under its
    /// name, or a server that does not speak the protocol.
    Protocol,
    /// The limiter was set up wrongly: an unknown URL scheme, a missing feature, a bad prefix; or a server of another
    /// kind than its URL says, too old, or without a command that the limiter needs.
    Config,
    /// A limit that cannot be: no permits, no window, or a window that is too long.
    InvalidLimit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: None }) }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: Some(Box::new(source)) }) }
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the same call may succeed later without anybody changing anything: a failure of the network or the
    /// server, as opposed to one of the set-up or of the data.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.inner.kind {
            ErrorKind::Timeout
            | ErrorKind::Unavailable
            | ErrorKind::Loading
            | ErrorKind::NotServing
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfMemory
            | ErrorKind::Overloaded => true,
            ErrorKind::Forked
            | ErrorKind::Refused
            | ErrorKind::Protocol
            | ErrorKind::Config
            | ErrorKind::InvalidLimit => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, source } = &*self.inner;
        let mut debug = f.debug_struct("Error");
        debug.field("kind", kind).field("message", message);
        if let Some(source) = source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}
