//! The key of a rule, as written in the source.

/// The key of a rule as its function has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyText {
    /// A text or a template, as written.
    Template(&'static str),
    /// The template of some of its keys. Overrides may match others.
    Form(&'static str),
    Expression,
    /// A direct call, whose key may be any.
    Unknown,
}
