//! The limits of annotated functions: literals, numbers, or an expression that is a limit.

use std::time::Duration;

pub use crate::limit::LimitOrNearest;
use crate::{Algorithm, Limit};

/// Returns a limit of literals, which the attribute has checked.
///
/// # Panics
/// For a limit out of its range, at compile time. The attribute has checked the range before.
#[inline]
#[must_use]
pub const fn limit(max: u32, window_millis: u64) -> Limit {
    match Limit::checked(max, window_millis) {
        Some(limit) => limit,
        None => panic!("`max` must be at least 1, and `window` must be 1 ms to 366 days"),
    }
}

/// Returns a limit of expressions.
pub fn limit_of(max: u32, window: Duration) -> LimitOrNearest {
    Limit::new(max, window).map_err(|error| (error, Limit::nearest(max, window)))
}

/// Returns the limit with another algorithm, and with a burst if one is given.
pub fn counted_by(limit: LimitOrNearest, algorithm: Algorithm, burst: Option<u32>) -> LimitOrNearest {
    let limit = limit?.with_algorithm(algorithm);
    match burst {
        None => Ok(limit),
        Some(burst) => limit.with_burst(burst).map_err(|error| (error, limit)),
    }
}

/// Returns the limit of an expression that is one.
pub fn limit_from<L: LimitRef + ?Sized>(limit: &L) -> LimitOrNearest {
    Ok(limit.to_limit())
}

/// A value of `limit = <expression>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit",
    label = "expected a `Limit`, or a reference to one",
    note = "write a literal such as `\"5/10s\"`, or build one: `Limit::new(5, Duration::from_secs(10))?`"
)]
pub trait LimitRef {
    fn to_limit(&self) -> Limit;
}

impl LimitRef for Limit {
    fn to_limit(&self) -> Limit {
        *self
    }
}

impl<L: LimitRef + ?Sized> LimitRef for &L {
    fn to_limit(&self) -> Limit {
        (**self).to_limit()
    }
}
