//! Values that have names: the same ones in the attribute, in a text of rules and in the formats of serde.

/// A type whose values have names.
pub(crate) trait NamedValue: Copy + 'static {
    /// The option that has a value of this type, for messages.
    const OPTION: &'static str;
    const VALUES: &'static [Self];

    fn name(self) -> &'static str;

    /// Returns the value of a name.
    fn named(name: &str) -> Option<Self> {
        Self::VALUES.iter().copied().find(|value| value.name() == name)
    }

    fn names() -> Vec<&'static str> {
        Self::VALUES.iter().map(|value| value.name()).collect()
    }
}
