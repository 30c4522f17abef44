//! Serialised forms of the values in a configuration: rules as maps, limits as their text, policies and algorithms as
//! their names.
//!
//! Written by hand: a build then has `serde_core` alone of serde, and no derive macro.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{self, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named_value::NamedValue;
use crate::rule::message_text::{cut, list, quoted, wrong_name_problem};
use crate::{Algorithm, Layout, Mode, OnError};

mod written_fields;
mod limit;
mod rule;
mod rule_in_force;

#[cfg(all(test, not(limiter_loom)))]
mod tests;

/// The fields of a map that were read. Formats may have a field twice.
#[derive(Default)]
struct FieldsOnce {
    seen: BTreeSet<String>,
}

impl FieldsOnce {
    /// Begins to read a field.
    fn begin<E: de::Error>(&mut self, field: &str) -> Result<(), E> {
        if self.seen.insert(field.to_owned()) {
            return Ok(());
        }
        Err(E::custom(format_args!("`{}` must be set once, got two: remove one", cut(field))))
    }
}

/// Reads a value by its name.
struct NameVisitor<T>(PhantomData<T>);

impl<T: NamedValue> Visitor<'_> for NameVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for `{}` one of {}", T::OPTION, list(&T::names()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::named(text).ok_or_else(|| E::custom(wrong_name_problem::<T>(&quoted(text), Some(text))))
    }
}

macro_rules! by_name {
    ($($named:ty),+) => {
        $(/// Writes the name in snake case. Needs the feature `serde`.
        impl Serialize for $named {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        /// Reads the name in snake case. Needs the feature `serde`.
        impl<'de> Deserialize<'de> for $named {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(NameVisitor(PhantomData))
            }
        })+
    };
}

by_name!(Algorithm, Layout, OnError, Mode);
