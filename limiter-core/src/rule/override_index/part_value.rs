//! The value of an override's part: an exact text, a network, or the beginning of a text.

use std::borrow::Borrow;

use super::nested_sets::Nested;
use super::networks::Network;
use super::outline_parts::part_outline;
use crate::rule::message_text::cut;
use crate::rule::{KeyMatch, KeyPattern};

/// A value of a part in an override.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum PartValue {
    Exact(String),
    Network(Network),
    Beginning(Beginning),
}

/// The precedence of a matching value: of exact texts, then of networks by their bits, then of beginnings by their bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u16);

impl Rank {
    pub(super) const EXACT: Self = Self(u16::MAX);

    pub(super) fn of_network(network: Network) -> Self {
        Self(0x100 + u16::from(network.prefix()))
    }

    pub(super) fn of_beginning(beginning: &Beginning) -> Self {
        let escapes = beginning.0.iter().filter(|byte| **byte == b'%').count();
        Self(u16::try_from(beginning.0.len().saturating_sub(2 * escapes)).unwrap_or(u16::MAX))
    }
}

/// The beginning of a part's text, encoded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Beginning(Box<[u8]>);

impl Borrow<[u8]> for Beginning {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Nested for [u8] {
    fn contains(&self, inner: &Self) -> bool {
        inner.starts_with(self)
    }

    /// The first eight bytes of an encoding, which is ASCII.
    fn lead(&self) -> u64 {
        let mut lead = [0; 8];
        lead.iter_mut().zip(self).for_each(|(place, byte)| *place = *byte);
        u64::from_be_bytes(lead)
    }
}

/// The longest encoded beginning: an outline has that much of each part.
const MAX_BEGINNING_BYTES: usize = 200;

impl PartValue {
    /// Parses the text of a value of a part with this name. A `*` at its end stands for any text. `\*` is the character,
    /// and `\\` a backslash.
    ///
    /// # Errors
    /// The message about a text that is none. It does not have the text, which may be personal data.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut literal = String::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            let escaped = rest.as_str().chars().next().filter(|next| character == '\\' && ['*', '\\'].contains(next));
            match escaped {
                Some(_) => literal.extend(rest.next()),
                None if character != '*' => literal.push(character),
                None if rest.as_str().is_empty() => return Beginning::new(name, &literal).map(Self::Beginning),
                None => {
                    let name = cut(name);
                    return Err(format!(
                        "`{name}` must have a `*` only as its last character, got one before others: remove it, or write \
                         `\\*` for the character itself"
                    ));
                }
            }
        }
        Ok(Network::of_override(&literal).map_or(Self::Exact(literal), Self::Network))
    }

    /// The text, if it is an exact one.
    pub(super) fn exact(&self) -> Option<&str> {
        match self {
            Self::Exact(text) => Some(text),
            _ => None,
        }
    }
}

impl Beginning {
    fn new(name: &str, literal: &str) -> Result<Self, String> {
        let mut encoded = Vec::new();
        for character in literal.chars() {
            encoded.extend(part_outline(character.encode_utf8(&mut [0; 4])));
        }
        match encoded.len() {
            0..=MAX_BEGINNING_BYTES => Ok(Self(encoded.into())),
            len => {
                let name = cut(name);
                Err(format!(
                    "`{name}` must have at most {MAX_BEGINNING_BYTES} bytes before its `*`, of which all but letters, \
                     digits, `-`, `_` and `.` count three times, got {len}: write a shorter text"
                ))
            }
        }
    }
}

impl KeyMatch {
    /// Returns the message about a part without values, or a value that matches no key of any rule.
    pub(crate) fn problem(&self) -> Option<String> {
        let KeyPattern::Parts(parts) = &self.pattern else { return None };
        parts.iter().find_map(|(name, values)| values_problem(name, values))
    }

    /// Returns this message with the number of the override and the rule in front.
    pub(crate) fn problem_of_override(&self, number: usize, rule: &str) -> Option<String> {
        self.problem().map(|problem| format!("override {number} of {rule}: {problem}"))
    }
}

/// Returns the message about the values of a part, if there are none or one matches no key of any rule.
pub(crate) fn values_problem(name: &str, values: &[String]) -> Option<String> {
    if values.is_empty() {
        let name = cut(name);
        return Some(format!(
            "`{name}` must have at least one value, got an empty list: write one such as `{name} = [\"42\"]`, or remove it"
        ));
    }
    values.iter().find_map(|value| value_problem(name, value))
}

/// Returns the message about a text that is no value of a part with this name.
pub(crate) fn value_problem(name: &str, text: &str) -> Option<String> {
    if text.contains('*') { PartValue::parse(name, text).err() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_stands_for_any_text() {
        let exact = |text: &str| Some(PartValue::Exact(text.to_owned()));
        let beginning = |text: &str| Some(PartValue::Beginning(Beginning(text.as_bytes().into())));
        let cases = [
            ("", exact("")),
            ("*", beginning("")),
            ("test-*", beginning("test-")),
            ("/api/*", beginning("%2Fapi%2F")),
            ("é*", beginning("%C3%A9")),
            ("10.1.*", beginning("10.1.")),
            (r"\*", exact("*")),
            (r"\**", beginning("%2A")),
            (r"a\*b", exact("a*b")),
            (r"\\*", beginning("%5C")),
            (r"\\\*", exact(r"\*")),
            (r"a\b\\c\", exact(r"a\b\c\")),
            ("**", None),
            ("*a", None),
            ("/api/*/x", None),
        ];
        for (text, expected) in cases {
            assert!(PartValue::parse("path", text).ok() == expected, "{text}");
        }
        assert!(matches!(PartValue::parse("ip", "10.0.0.0/8"), Ok(PartValue::Network(_))));
    }

    #[test]
    fn texts_that_are_no_values_are_rejected_without_them() {
        let long = |text: &str, count| text.repeat(count) + "*";
        assert!(PartValue::parse("path", &long("x", 200)).is_ok());
        let cases = [
            ("secret*x".to_owned(), "`path` must have a `*` only as its last character, got one before others: "),
            (long("secret", 34), "got 204: write a shorter text"),
            (long("é", 34), "got 204: write a shorter text"),
        ];
        for (text, message) in cases {
            let found = PartValue::parse("path", &text).err().expect("no value");
            assert!(found.contains(message) && !found.contains("secret"), "{found}");
        }
    }
}
