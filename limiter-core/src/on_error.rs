//! The failure policy of a call.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::named_value::NamedValue;

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

#[cfg(test)]
mod tests {
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
