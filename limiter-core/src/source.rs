//! The origin of a decision.

/// Who decided.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The store.
    Store,
    /// This process by itself: the store has denied the same less than a second ago, and said until when that holds. (How
    /// long at most: see [`remember_denials`](crate::Builder::remember_denials).)
    DeniedUntil,
    /// The in-process stand-in, because the store failed or did so less than a window ago.
    Standby,
    /// A policy, because the store failed: nothing was counted, and nothing is known beyond the limit itself.
    Policy,
}
