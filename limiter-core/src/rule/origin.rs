//! The layers that settings come from.

/// The layer that a rule's limits come from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The attribute, or the limit of a direct call.
    Attribute,
    /// [`Builder::rule`](crate::Builder::rule) or [`Builder::rules`](crate::Builder::rules).
    Builder,
    /// The file of rules.
    File,
    /// [`Limiter::set_rules`](crate::Limiter::set_rules).
    Runtime,
}
