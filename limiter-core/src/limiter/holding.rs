//! The refusal of limits that a call must hold, where it ends at its decision.

use crate::{Error, ErrorKind, Limit};

/// The error of a method that ends at its decision, so that it cannot hold a slot.
#[cold]
pub(crate) fn enter_instead() -> Error {
    let problem = "`limit` must have a window where a call ends at its decision, got calls at once: call `enter` or `enter_wait`, \
                   or annotate the function";
    Error::new(ErrorKind::Config, problem)
}

/// Checks that a call need not hold anything until it ends.
///
/// # Errors
/// [`ErrorKind::Config`] for a limit of concurrent calls.
#[inline]
pub(super) fn check_holds_nothing(limits: impl IntoIterator<Item = Limit>) -> Result<(), Error> {
    if limits.into_iter().any(|limit| limit.is_concurrent()) { Err(enter_instead()) } else { Ok(()) }
}
