//! The origin of a decision.

/// The part of the limiter that made a decision.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Store,
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
