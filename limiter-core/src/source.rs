//! The origin of a decision.

use std::fmt;

/// The part of the limiter that made a decision.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Store,
    /// A lease: permits of the store that this process took ahead, with [`leases`](crate::Builder::leases).
    Lease,
    /// The denial cache of this process: the store denied the same call a short time ago, and that denial still holds.
    ///
    /// [`remember_denials`](crate::Builder::remember_denials) bounds the age of a cached denial, by default to 1 s.
    DeniedUntil,
    /// The standby limiter in this process, because the store failed now or less than a window ago.
    Standby,
    /// The failure policy, because the store failed. Nothing was counted, and only the limit itself is known.
    Policy,
    /// The [mode](crate::Mode) of a rule, `Off` or `Deny`, or a rule without a limit. Nothing was counted.
    Mode,
}

impl Source {
    /// The text for logs and metrics: `store`, `lease`, `denied_until`, `standby`, `policy` or `mode`. It stays the
    /// same in later versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
            Self::DeniedUntil => "denied_until",
            Self::Standby => "standby",
            Self::Policy => "policy",
            Self::Mode => "mode",
        }
    }
}

/// Writes [`as_str`](Source::as_str).
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_a_stable_text() {
        let cases = [
            (Source::Store, "store"),
            (Source::Lease, "lease"),
            (Source::DeniedUntil, "denied_until"),
            (Source::Standby, "standby"),
            (Source::Policy, "policy"),
            (Source::Mode, "mode"),
        ];
        for (source, text) in cases {
            assert_eq!((source.as_str(), source.to_string()), (text, text.to_owned()));
        }
        assert_eq!(format!("[{:>8}]", Source::Store), "[   store]");
    }
}
