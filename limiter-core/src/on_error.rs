//! The failure policy of a call.

use crate::error::{Error, ErrorKind};

/// What a call gets when the limiter itself fails.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// It is allowed; but [`Standby`](OnError::Standby) decides where callers can cause the failure
    /// ([`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded)), or a flood would pass any limit.
    Open,
    /// It is denied.
    Closed,
    /// An in-process stand-in decides, from what this process admitted within the window. Where it cannot be used either
    /// ([`ErrorKind::Forked`](crate::ErrorKind::Forked)), the call is denied.
    #[default]
    Standby,
    /// It gets the error. An annotated function whose own attribute says nothing of errors has no way to raise one:
    /// for it this is [`Closed`](OnError::Closed).
    Raise,
}

impl OnError {
    /// The policy for a failure of this kind.
    pub(crate) fn for_error(self, error: &Error) -> Self {
        match (self, error.kind()) {
            (Self::Open, ErrorKind::Overloaded) => Self::Standby,
            (Self::Standby, ErrorKind::Forked) => Self::Closed,
            _ => self,
        }
    }
}
