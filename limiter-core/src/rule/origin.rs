//! The layers that settings come from.

use std::fmt;

/// The layer that a rule's limits come from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The attribute, or the limit of a layer or of a direct call.
    Attribute,
    /// [`Builder::rule`](crate::Builder::rule) or [`Builder::rules`](crate::Builder::rules).
    Builder,
    /// The file of rules.
    File,
    /// The [shared rules](crate::Builder::shared_rules), which all processes read from the store.
    Shared,
    /// [`Limiter::set_rules`](crate::Limiter::set_rules).
    Runtime,
}

impl Origin {
    /// The text for logs and metrics: `attribute`, `builder`, `file`, `shared` or `runtime`. It stays the same in later
    /// versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::Builder => "builder",
            Self::File => "file",
            Self::Shared => "shared",
            Self::Runtime => "runtime",
        }
    }
}

/// Writes [`as_str`](Origin::as_str).
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_has_a_stable_text() {
        let cases = [
            (Origin::Attribute, "attribute"),
            (Origin::Builder, "builder"),
            (Origin::File, "file"),
            (Origin::Shared, "shared"),
            (Origin::Runtime, "runtime"),
        ];
        for (origin, text) in cases {
            assert_eq!((origin.as_str(), origin.to_string()), (text, text.to_owned()));
        }
    }
}
