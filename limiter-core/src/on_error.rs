//! The failure policy of a call.

use crate::error::{Error, ErrorKind};

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
    /// The standby limiter in this process decides, from the permits that this process granted within the window. If it
    /// cannot be used either ([`ErrorKind::Forked`](crate::ErrorKind::Forked)), the call is denied.
    #[default]
    Standby,
    /// The call gets the error. An annotated function without an `on_error` of its own cannot return one: for it this
    /// policy counts as [`Closed`](OnError::Closed).
    Raise,
}

impl OnError {
    /// Returns the policy that applies to this failure.
    pub(crate) fn for_error(self, error: &Error) -> Self {
        match (self, error.kind()) {
            (Self::Open, ErrorKind::Overloaded) => Self::Standby,
            (Self::Standby, ErrorKind::Forked) => Self::Closed,
            _ => self,
        }
    }
}
