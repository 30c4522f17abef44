//! The errors of outgoing calls.

use std::error::Error as StdError;
use std::fmt::{self, Debug, Display};

use limiter_core::{Denied, Error};

/// The reason why an outgoing call has no response.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum OutgoingError<E> {
    /// The call was not sent: there was no permit within the wait, or the peer has demanded a pause that is longer. With
    /// a pause [`retry_after`](Denied::retry_after) is its end, and [`source`](Denied::source) is
    /// [`DeniedUntil`](limiter_core::Source::DeniedUntil).
    Denied(Denied),
    /// The call was not sent: the limiter failed, and its policy is [`Raise`](limiter_core::OnError::Raise).
    Failed(Error),
    /// The error of the client itself. The call has taken its permit.
    Inner(E),
}

impl<E> OutgoingError<E> {
    /// Returns the denial of a call that was not sent.
    #[must_use]
    pub fn denied(&self) -> Option<&Denied> {
        if let Self::Denied(denied) = self { Some(denied) } else { None }
    }
}

impl<E: Display> Display for OutgoingError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denied) => Display::fmt(denied, f),
            Self::Failed(error) => Display::fmt(error, f),
            Self::Inner(error) => Display::fmt(error, f),
        }
    }
}

impl<E: StdError + 'static> StdError for OutgoingError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Denied(_) => None,
            Self::Failed(error) => error.source(),
            Self::Inner(error) => error.source(),
        }
    }
}

/// The status of a call that has no response: of a denial as a server denies, and else that of tonic for the error of the
/// client. So [`Outgoing`](crate::Outgoing) around a channel is a client of gRPC: `outgoing.map_err(Status::from)`.
///
/// With the feature `tonic`, of tonic 0.14.
#[cfg(feature = "tonic")]
impl<E: Into<Box<dyn StdError + Send + Sync>>> From<OutgoingError<E>> for tonic::Status {
    fn from(error: OutgoingError<E>) -> Self {
        match error {
            OutgoingError::Denied(denied) => denied.into(),
            OutgoingError::Failed(error) => error.into(),
            OutgoingError::Inner(error) => Self::from_error(error.into()),
        }
    }
}
