//! Failures of the limiter itself. A denial is not a failure but a value, [`Denied`](crate::Denied).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The reason why the limiter could not decide: its store failed, or it is misconfigured.
///
/// Cheap to clone. Its text and its `Debug` form may name the server's host and port. They never contain a user, a
/// password or the contents of a key.
#[derive(Clone)]
pub struct Error {
    inner: Arc<ErrorInner>,
}

struct ErrorInner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of a failure, for code that reacts to it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store sent no reply within the deadline. It may or may not have counted the call.
    Timeout,
    /// The store cannot be reached, or the connection broke. It may or may not have counted the call.
    Unavailable,
    /// The store is up but not ready: it is loading its data, or busy with a script.
    Loading,
    /// The store is up but rejects writes.
    ///
    /// The cluster is down or migrates the key, or the server cannot save its data or has too few replicas.
    NotServing,
    /// The store is a replica: it lost its role in a failover.
    ReadOnly,
    /// The store is at its memory limit and rejects writes.
    OutOfMemory,
    /// The limiter has [`Builder::max_in_flight`](crate::Builder::max_in_flight) calls in flight already, and sent
    /// nothing.
    ///
    /// Callers can cause this failure, so [`OnError::Open`](crate::OnError::Open) does not allow the call: it counts as
    /// [`Standby`](crate::OnError::Standby).
    Overloaded,
    /// The call was under way when the process forked, and this is the child: it belongs to the parent. So does a permit that
    /// the parent took in memory, for a refund. The child's own calls work.
    ///
    /// [`OnError::Standby`](crate::OnError::Standby) counts as [`Closed`](crate::OnError::Closed) for it.
    Forked,
    /// The store refused the user, the password, a permission or the client's certificate; or the store's own
    /// certificate is not trusted.
    Refused,
    /// The reply is not one that this limiter's scripts send.
    ///
    /// The key has another type or foreign bytes, the server does not speak the protocol, or a number in the reply is out of
    /// the range that the limit allows.
    Protocol,
    /// The limiter is misconfigured, or the server cannot be used.
    ///
    /// The set-up has an unknown URL scheme, a missing feature or an option out of its range. Or the server is of
    /// another kind than its URL, is too old, or lacks a command that the limiter needs.
    Config,
    /// The limit is out of its range: no permits, no window, or a window that is too long. Or a decision has more than 128
    /// limits, which is an error under every failure policy.
    InvalidLimit,
    /// The call was settled before, or its receipt was used: nothing changes. See
    /// [`Limiter::settle`](crate::Limiter::settle) and [`Limiter::settle_receipt`](crate::Limiter::settle_receipt).
    Settled,
    /// A change of the shared rules is based on an old version: another change came first. Nothing was changed.
    Conflict,
}

impl ErrorKind {
    /// The text for logs and metrics, such as `timeout` or `not_serving`: the name of the variant in snake case. It
    /// stays the same in later versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Loading => "loading",
            Self::NotServing => "not_serving",
            Self::ReadOnly => "read_only",
            Self::OutOfMemory => "out_of_memory",
            Self::Overloaded => "overloaded",
            Self::Forked => "forked",
            Self::Refused => "refused",
            Self::Protocol => "protocol",
            Self::Config => "config",
            Self::InvalidLimit => "invalid_limit",
            Self::Settled => "settled",
            Self::Conflict => "conflict",
        }
    }
}

/// Writes [`as_str`](ErrorKind::as_str).
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Arc::new(ErrorInner { kind, message: message.into(), source: None }) }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self { inner: Arc::new(ErrorInner { kind, message: message.into(), source: Some(Box::new(source)) }) }
    }

    /// The kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns whether the same call may succeed later without a change of the configuration or the data. This holds
    /// for failures of the network and of the server.
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
            | ErrorKind::InvalidLimit
            | ErrorKind::Settled
            | ErrorKind::Conflict => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

/// Writes the kind and the text as [`Display`](fmt::Display) has it, without escapes: `unwrap` and `main` print it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorInner { kind, message, source } = &*self.inner;
        write!(f, "Error({kind:?}): {message}")?;
        match source {
            Some(source) => write!(f, "; source: {source:?}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

// Values that have names: the same ones in the attribute, in a text of rules and in the formats of serde.

/// A type whose values have names.
pub(crate) trait NamedValue: Copy + 'static {
    /// The option that has a value of this type, for messages.
    const OPTION: &'static str;
    const VALUES: &'static [Self];

    fn name(self) -> &'static str;

    /// Returns the value of a name.
    fn named(name: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.name() == name)
    }

    fn names() -> Vec<&'static str> {
        Self::VALUES.iter().map(|value| value.name()).collect()
    }
}

// The failure policy of a call.

/// The policy for a call that the limiter itself fails to decide.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// Fail open: the call is allowed.
    ///
    /// Callers can cause [`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded), and a flood would then pass any
    /// limit. So [`Standby`](OnError::Standby) applies to that failure.
    Open,
    /// Fail closed: the call is denied.
    Closed,
    /// The standby limiter in this process decides, from the permits that this process granted within the window. A
    /// call of a parent of this process ([`ErrorKind::Forked`](crate::ErrorKind::Forked)) is denied.
    #[default]
    Standby,
    /// The call gets the error. An annotated function without an `on_error` of its own cannot return one: for it this
    /// policy counts as [`Closed`](OnError::Closed).
    Raise,
}

impl OnError {
    /// The name of the policy, as in the attribute and in a file of rules: `open`, `closed`, `standby` or `raise`. It
    /// stays the same in later versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Standby => "standby",
            Self::Raise => "raise",
        }
    }

    /// Returns the policy that applies to this failure.
    pub(crate) fn for_error(self, error: &Error) -> Self {
        match (self, error.kind()) {
            (Self::Open, ErrorKind::Overloaded) => Self::Standby,
            (Self::Standby, ErrorKind::Forked) => Self::Closed,
            _ => self,
        }
    }
}

impl NamedValue for OnError {
    const OPTION: &'static str = "on_error";
    const VALUES: &'static [Self] = &[Self::Open, Self::Closed, Self::Standby, Self::Raise];

    fn name(self) -> &'static str {
        self.as_str()
    }
}

/// Writes [`as_str`](OnError::as_str).
impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// The origin of a decision.

/// The part of the limiter that made a decision.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Store,
    /// A lease: permits of the store that this process took ahead, with [`leases`](crate::Builder::leases).
    Lease,
    /// The denial cache of this process: the store denied the same call a short time ago, and that denial still holds.
    ///
    /// [`remember_denials`](crate::Builder::remember_denials) bounds the age of a cached denial, by default to 1 s.
    DeniedUntil,
    /// The standby limiter in this process, because the store failed now or less than a window ago.
    Standby,
    /// The failure policy, because the store failed. Nothing was counted, and only the limit itself is known.
    Policy,
    /// The [mode](crate::Mode) of a rule, `Off` or `Deny`, or a rule without a limit. Nothing was counted.
    Mode,
}

impl Source {
    /// The number of sources.
    pub(crate) const COUNT: usize = 6;

    /// Its place among all sources.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Store => 0,
            Self::Lease => 1,
            Self::DeniedUntil => 2,
            Self::Standby => 3,
            Self::Policy => 4,
            Self::Mode => 5,
        }
    }

    /// Returns whether the permits are those of the store, taken now or ahead.
    pub(crate) const fn is_of_store(self) -> bool {
        matches!(self, Self::Store | Self::Lease)
    }

    /// The text for logs and metrics: `store`, `lease`, `denied_until`, `standby`, `policy` or `mode`. It stays the
    /// same in later versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
            Self::DeniedUntil => "denied_until",
            Self::Standby => "standby",
            Self::Policy => "policy",
            Self::Mode => "mode",
        }
    }
}

/// Writes [`as_str`](Source::as_str).
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_has_the_text_without_escapes() {
        let text = "`mode` must be one of `off` and `deny`, got `\"Off\"`: write `\"off\"`";
        let error = Error::new(ErrorKind::Config, text);
        assert_eq!(format!("{error:?}"), format!("Error(Config): {text}"));
        assert_eq!(format!("{error:#?}"), format!("Error(Config): {text}"));
        let with_source = Error::with_source(ErrorKind::Protocol, "no", fmt::Error);
        assert_eq!(format!("{with_source:?}"), "Error(Protocol): no; source: Error");
    }

    #[test]
    fn each_kind_has_a_stable_text() {
        let cases = [
            (ErrorKind::Timeout, "timeout"),
            (ErrorKind::Unavailable, "unavailable"),
            (ErrorKind::Loading, "loading"),
            (ErrorKind::NotServing, "not_serving"),
            (ErrorKind::ReadOnly, "read_only"),
            (ErrorKind::OutOfMemory, "out_of_memory"),
            (ErrorKind::Overloaded, "overloaded"),
            (ErrorKind::Forked, "forked"),
            (ErrorKind::Refused, "refused"),
            (ErrorKind::Protocol, "protocol"),
            (ErrorKind::Config, "config"),
            (ErrorKind::InvalidLimit, "invalid_limit"),
            (ErrorKind::Settled, "settled"),
            (ErrorKind::Conflict, "conflict"),
        ];
        for (kind, text) in cases {
            assert_eq!((kind.as_str(), kind.to_string()), (text, text.to_owned()));
        }
    }
}

#[cfg(test)]
mod on_error_tests {
    use super::*;

    #[test]
    fn each_policy_has_the_name_of_the_attribute() {
        let cases = [
            (OnError::Open, "open"),
            (OnError::Closed, "closed"),
            (OnError::Standby, "standby"),
            (OnError::Raise, "raise"),
        ];
        for (policy, name) in cases {
            assert_eq!((policy.as_str(), policy.to_string()), (name, name.to_owned()));
            assert_eq!(OnError::named(name), Some(policy));
        }
        assert_eq!(format!("[{:>8}]", OnError::Open), "[    open]");
    }
}

#[cfg(test)]
mod source_tests {
    use super::*;

    #[test]
    fn each_source_has_a_stable_text() {
        let cases = [
            (Source::Store, "store"),
            (Source::Lease, "lease"),
            (Source::DeniedUntil, "denied_until"),
            (Source::Standby, "standby"),
            (Source::Policy, "policy"),
            (Source::Mode, "mode"),
        ];
        for (source, text) in cases {
            assert_eq!((source.as_str(), source.to_string()), (text, text.to_owned()));
        }
        assert_eq!(format!("[{:>8}]", Source::Store), "[   store]");
    }
}
