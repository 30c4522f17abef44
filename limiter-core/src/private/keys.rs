//! The keys of annotated functions: a template, a `Key`, or a value counted under the rule's name.

use std::fmt::{self, Arguments, Display};

pub use crate::key::StaticKey;

use crate::Key;

/// Returns the key of an expression that is a key, or a value counted under the rule's name.
pub fn key<K: ToKey + ?Sized>(name: &'static str, value: &K) -> Key {
    value.to_key(name)
}

/// A value of `key = <expression>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "neither a `Key` nor something with a `Display` form",
    note = "build one: `Key::new(\"user:\").part(value)`",
    note = "an `Option` needs a value for `None`, as in `id.unwrap_or_default()`"
)]
pub trait ToKey {
    fn to_key(&self, name: &'static str) -> Key;
}

impl ToKey for Key {
    fn to_key(&self, _name: &'static str) -> Key {
        self.clone()
    }
}

impl ToKey for &Key {
    fn to_key(&self, _name: &'static str) -> Key {
        Key::clone(self)
    }
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> ToKey for T {
    fn to_key(&self, name: &'static str) -> Key {
        Key::new(name).part(self)
    }
}

/// Formats a template of which all values but one are empty, and returns the text of that value. `prefix` and `suffix`
/// are the lengths of the static text around it, in bytes.
#[must_use]
pub fn captured_value(arguments: Arguments<'_>, prefix: usize, suffix: usize) -> String {
    let mut text = fmt::format(arguments);
    text.truncate(text.len().saturating_sub(suffix));
    text.drain(..prefix.min(text.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts include some that need escapes, are empty, or are too long to be their own encoding.
    #[test]
    fn a_static_key_equals_the_key_of_its_text() {
        const LONG: &str = match std::str::from_utf8(&[b'a'; 201]) {
            Ok(text) => text,
            Err(_) => "",
        };
        let (longest, _) = LONG.split_at(200);
        for text in ["getId", "a:b/c-d_e.f", "", "+", "a b", "user@", "{x}", "é", longest, LONG] {
            let static_key: &'static StaticKey = Box::leak(Box::new(StaticKey::new(text)));
            let key = static_key.key().clone();
            assert_eq!(key, Key::new(text), "{text}");
            assert_eq!(key.subject().to_string(), Key::new(text).subject().to_string(), "{text}");
            assert_eq!(key.part(7), Key::new(text).part(7), "{text}");
        }
    }
}
