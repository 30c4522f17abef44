//! What an annotated function's key may be: a template, a `Key`, or a value counted under the rule's name.

use std::fmt::{self, Arguments, Display};

use crate::Key;

/// An expression that is a key, or a value counted under the rule's name.
pub fn key<K: ToKey + ?Sized>(name: &'static str, value: &K) -> Key {
    value.to_key(name)
}

/// What `key = <expression>` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key",
    label = "neither a `Key` nor something with a `Display` form",
    note = "build one: `Key::new(\"user:\").part(value)`"
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

/// The text of the one value in a template whose other values are empty: what is left between the static texts.
#[must_use]
pub fn only(arguments: Arguments<'_>, prefix: usize, suffix: usize) -> String {
    let mut text = fmt::format(arguments);
    text.truncate(text.len().saturating_sub(suffix));
    text.drain(..prefix.min(text.len()));
    text
}
