//! Why a run is at fault.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::Admission;

/// What cannot be under the limit, however the calls are placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// One call took more than all there is.
    Cost {
        /// The call.
        call: Admission,
        /// The limit.
        max: u32,
    },
    /// Too many permits were certainly taken within one window.
    Window {
        /// Where the window begins.
        start: Duration,
        /// How long it is.
        window: Duration,
        /// The permits of calls that began and ended within it.
        permits: u64,
        /// The limit.
        max: u32,
    },
    /// After all calls before it, even if each took its permits as early as it could, no room was left for this one.
    Late {
        /// The call. Of nested calls, its interval may be given wider than it was recorded.
        call: Admission,
        /// The first instant with room, which is after its end.
        earliest: Duration,
        /// The limit.
        max: u32,
    },
}

impl fmt::Display for Violation {
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

impl Error for Violation {}
