//! The keys that an override applies to.

use std::fmt::{self, Display};

use crate::Key;

/// The keys that an override of a rule applies to: one key, or all keys with some parts.
///
/// The parts are those of the attribute's key, by the text between its braces. Parts that are omitted match anything.
///
/// `Debug` does not show the contents.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Key, KeyMatch};
///
/// // For the attribute `key = "{tenant}/{user_id}"`: all users of a tenant, one user of any tenant, and one key.
/// let tenant = KeyMatch::parts([("tenant", "acme")]);
/// let user = KeyMatch::parts([("user_id", 42)]);
/// let both = KeyMatch::key(&Key::new("").part("acme").text("/").part(42));
/// ```
#[must_use = "a match has no effect until it is added to a rule"]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyMatch {
    pub(crate) pattern: KeyPattern,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum KeyPattern {
    /// Names, each with the values of which a key has one, by name.
    Parts(Vec<(String, Vec<String>)>),
    Key(Key),
}

impl KeyMatch {
    /// Matches the keys whose parts of these names have these values, whatever the other parts are.
    ///
    /// A value is compared as text with the part's text in the key. For `{id:08}` that is `00000042`. A value that is a
    /// network, such as `203.0.113.0/24`, also matches parts that are addresses or smaller networks in it. One that ends in
    /// `*`, such as `/api/*`, matches parts with this beginning; `\*` is the character itself, and `\\` a backslash. So a
    /// value that end users choose belongs into a [`key`](Self::key). The name is the text between the braces. It may omit
    /// the format spec, if no other part then has the same name.
    pub fn parts<N, V>(parts: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Display,
    {
        Self::any_of(parts.into_iter().map(|(name, value)| (name, [value])))
    }

    /// Matches the keys whose parts of these names have one of several values each: see [`parts`](Self::parts).
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::KeyMatch;
    ///
    /// let networks = KeyMatch::any_of([("ip", ["203.0.113.0/24", "2001:db8::/48"])]);
    /// ```
    pub fn any_of<N, L, V>(parts: impl IntoIterator<Item = (N, L)>) -> Self
    where
        N: Into<String>,
        L: IntoIterator<Item = V>,
        V: Display,
    {
        let values = |list: L| {
            let mut values: Vec<_> = list.into_iter().map(|value| value.to_string()).collect();
            values.sort();
            values.dedup();
            values
        };
        let mut parts: Vec<_> = parts.into_iter().map(|(name, list)| (name.into(), values(list))).collect();
        // Their order makes no difference to the keys that match.
        parts.sort();
        Self { pattern: KeyPattern::Parts(parts) }
    }

    /// Matches one key.
    pub fn key(key: &Key) -> Self {
        Self { pattern: KeyPattern::Key(key.clone()) }
    }
}

impl fmt::Debug for KeyMatch {
    /// Formats the kind of the match alone: its values may be personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.pattern {
            KeyPattern::Parts(_) => "parts",
            KeyPattern::Key(_) => "key",
        };
        f.debug_struct("KeyMatch").field("kind", &kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_parts_makes_no_difference() {
        assert_eq!(KeyMatch::parts([("a", 1), ("b", 2)]), KeyMatch::parts([("b", 2), ("a", 1)]));
        assert_ne!(KeyMatch::parts([("a", 1), ("b", 2)]), KeyMatch::parts([("a", 2), ("b", 1)]));
    }

    #[test]
    fn debug_shows_no_contents() {
        for key_match in [KeyMatch::parts([("user", "secret")]), KeyMatch::key(&Key::new("secret"))] {
            assert!(!format!("{key_match:?}").contains("secret"), "{key_match:?}");
        }
    }
}
