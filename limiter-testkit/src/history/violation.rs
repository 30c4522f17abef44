//! The proof that a run exceeded its limit.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::Admission;

/// A proof that no placement of the calls satisfies the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitViolation {
    /// One call took more permits than the limit.
    Cost {
        /// The call.
        call: Admission,
        /// The limit.
        max: u32,
    },
    /// Too many permits were certainly taken within one window.
    Window {
        /// The start of the window.
        start: Duration,
        /// The length of the window.
        window: Duration,
        /// The permits of calls that began and ended within it.
        permits: u64,
        /// The limit.
        max: u32,
    },
    /// No room was left for this call, even if each call before it took its permits as early as possible.
    Late {
        /// The call. Its interval may be wider than recorded if calls are nested.
        call: Admission,
        /// The first instant with room, which is after its end.
        earliest: Duration,
        /// The limit.
        max: u32,
    },
}

impl fmt::Display for LimitViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { start, window, permits, max } => {
                write!(f, "{permits} permits, {max} allowed, within the {window:?} from {start:?} on")
            }
            Self::Cost { call: Admission { start, end, cost }, max } => {
                write!(f, "{cost} permits, {max} allowed, in the one call between {start:?} and {end:?}")
            }
            Self::Late { call: Admission { start, end, cost }, earliest, max } => write!(
                f,
                "a call of cost {cost} was admitted between {start:?} and {end:?}, \
                 but with {max} allowed there was no room before {earliest:?}"
            ),
        }
    }
}

impl Error for LimitViolation {}
