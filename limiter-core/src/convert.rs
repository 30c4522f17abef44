//! Conversion of a denial or an error into the return type of an annotated function.

use crate::{Denied, Error};

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic")]
mod tonic;

/// A return type that can be made from a denial. An annotated function without a `fallback` needs one.
///
/// It is implemented for every `Result<_, E>` with `E: From<Denied>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a denial",
    label = "a denied call has nothing to return here",
    note = "either set what a denied call returns: `fallback = …`",
    note = "or return a `Result<_, E>` with `E: From<rate_limited::Denied>`"
)]
pub trait FromDenied: Sized {
    /// Returns the function's value for a denied call.
    fn from_denied(denied: Denied) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Denied>> FromDenied for Result<T, E> {
    fn from_denied(denied: Denied) -> Self {
        Err(denied.into())
    }
}

/// A return type that can be made from a failure of the limiter. `on_error = raise` needs one.
///
/// It is implemented for every `Result<_, E>` with `E: From<Error>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a failure of the limiter",
    label = "`on_error = raise` has nothing to return here",
    note = "either choose another policy: `on_error = open`, `closed`, `standby`, or a function called with the error",
    note = "or return a `Result<_, E>` with `E: From<rate_limited::Error>`"
)]
pub trait FromFailure: Sized {
    /// Returns the function's value for a call that could not be decided.
    fn from_failure(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> FromFailure for Result<T, E> {
    fn from_failure(error: Error) -> Self {
        Err(error.into())
    }
}
