//! The failure policy: the decision about a call that the limiter has failed.

use crate::decision::Resolution;
use crate::error::{Error, OnError};
use crate::observer::Observers;
use crate::request::CountedReply;

/// Applies the failure policy to a call, and calls the observers of failures.
///
/// `count` gets the policy for this error, and counts the call in this process as the policy demands. Under
/// [`OnError::Standby`] it returns the reply of the standby limiter, or `None` for a call without one, which is denied.
///
/// # Errors
/// The error of the call, under [`OnError::Raise`].
pub(crate) fn apply_policy(
    observers: &Observers,
    error: Error,
    on_error: OnError,
    count: impl FnOnce(OnError) -> Option<CountedReply>,
) -> Result<Resolution, Error> {
    observers.failed(&error);
    let on_error = on_error.for_error(&error);
    let counted = count(on_error);
    match on_error {
        OnError::Open => Ok(Resolution::FailedOpen),
        OnError::Closed => Ok(Resolution::FailedClosed),
        OnError::Standby => Ok(counted.map_or(Resolution::FailedClosed, Resolution::Counted)),
        OnError::Raise => Err(error),
    }
}
