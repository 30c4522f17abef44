//! A call of a protocol: the rule and its values, or a key with its limits.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use rate_limited::{Key, Limit};

use super::catalog::CatalogRule;

/// A call that a protocol has read.
#[derive(Clone, Debug)]
pub(crate) struct Call<'c> {
    pub(crate) target: Target<'c>,
    /// The rule, if the protocol has found it to read the values. Otherwise the service finds it by its name.
    pub(crate) found: Option<&'c CatalogRule>,
    /// The plan of the customer. Empty for none.
    pub(crate) plan: &'c str,
    /// The permits, slots or units of a charge.
    pub(crate) cost: u32,
    /// The longest wait for permits.
    pub(crate) max_wait: Duration,
    /// The answer to an admitted call has a receipt, also under a rule that is not settled afterwards.
    pub(crate) wants_receipt: bool,
    /// The longest time in which the caller needs the answer. A shorter deadline of the rule or the limiter applies.
    pub(crate) deadline: Option<Duration>,
}

impl<'c> Call<'c> {
    /// Creates a call that takes one permit, without a wait.
    pub(crate) fn new(target: Target<'c>) -> Self {
        Self { target, found: None, plan: "", cost: 1, max_wait: Duration::ZERO, wants_receipt: false, deadline: None }
    }
}

/// The counters of a call.
#[derive(Clone, Debug)]
pub(crate) enum Target<'c> {
    /// Those of a rule.
    Rule {
        /// The rule's name.
        name: Cow<'c, str>,
        /// The values of its key.
        values: Values<'c>,
    },
    /// Those of a key under limits of the caller's own.
    Limits {
        /// A text, a part, a text, and so on.
        key: Vec<Cow<'c, str>>,
        /// The limits, at least one.
        limits: Vec<Limit>,
    },
}

/// The values of the parts of a rule's key.
#[derive(Clone, Debug)]
pub(crate) enum Values<'c> {
    /// Pairs of a part and its value, in any order.
    Named(Vec<(Cow<'c, str>, Value<'c>)>),
    /// A value for each part, in the order of the template. A part that is twice in it has one value.
    InOrder(Vec<Value<'c>>),
}

/// The value of a part. It counts as the same text in a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'c> {
    /// A text.
    Text(Cow<'c, str>),
    /// A number without a sign.
    Unsigned(u64),
    /// A number below zero.
    Signed(i64),
    /// Another number.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
}

impl<'c> From<&'c str> for Value<'c> {
    fn from(text: &'c str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// A digest by no secret. Keys that continue it are under the digest of both, with an empty head.
///
/// The key of a rule is a sequence. A long one has a head of 135 bytes before its digest, a short one no digest. So no key of a
/// rule or of a program equals one of these, whatever its values.
const OWN_KEYS: &str = "+00000000000000000000000000000000";

/// Returns the key of a call with limits of its own. Texts and parts alternate.
pub(crate) fn key_of_limits(pieces: &[Cow<'_, str>]) -> Result<Key, rate_limited::Error> {
    let start = Key::from_encoded(OWN_KEYS)?.text("limits:");
    let pieces = pieces.iter().enumerate();
    // A part after a part is as one after an empty text.
    Ok(pieces.fold(start, |key, (index, piece)| if index % 2 == 0 { key.text(piece) } else { key.part(piece) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(pieces: &[&str]) -> String {
        let pieces: Vec<_> = pieces.iter().map(|piece| Cow::Borrowed(*piece)).collect();
        key_of_limits(&pieces).expect("a key").encoded()
    }

    #[test]
    fn no_key_of_a_rule_equals_one_of_a_calls_own_limits() {
        let long = "x".repeat(500);
        let own: [&[&str]; 7] =
            [&[""], &["user:"], &["user:", "42"], &["", "a", "", "b"], &[&long], &["a", &long], &["", ""]];
        for pieces in own {
            let encoded = encoded(pieces);
            // A digest of 64 digits without a head: a rule's key has a head, or no `+`, or is `+` alone.
            assert_eq!((encoded.len(), encoded.starts_with('+')), (65, true), "{pieces:?}: {encoded}");
        }
        for text in ["", "user:", "limits:", OWN_KEYS, &long] {
            for key in
                [Key::new(text), Key::new(text).part("42"), Key::new("").part(text), Key::new("").part(text).text("a")]
            {
                let key = key.encoded();
                let digest = key.strip_prefix('+').unwrap_or_default();
                assert_eq!(digest, "", "{key}");
            }
        }
    }

    #[test]
    fn each_list_of_pieces_is_a_key_of_its_own() {
        let lists: [&[&str]; 7] =
            [&["a"], &["a", "b"], &["a", "b", "c"], &["ab"], &["", "a", "b"], &["a", "b", "", "c"], &["a", "bc"]];
        for (index, pieces) in lists.iter().enumerate() {
            for other in &lists[index + 1..] {
                assert_ne!(encoded(pieces), encoded(other), "{pieces:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_value_is_the_text_that_a_program_has_for_it() {
        let cases: [(Value<'_>, &str); 6] = [
            (Value::from("a b"), "a b"),
            (Value::Unsigned(u64::MAX), "18446744073709551615"),
            (Value::Signed(-7), "-7"),
            (Value::Float(1.5), "1.5"),
            (Value::Float(42.0), "42"),
            (Value::Bool(true), "true"),
        ];
        for (value, text) in cases {
            assert_eq!(value.to_string(), text);
            assert_eq!(Key::new("").part(&value), Key::new("").part(text));
        }
    }
}
