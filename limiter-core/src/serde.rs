//! Serialised forms of the values in a configuration: rules as maps, limits as their text, policies and algorithms as
//! their names.
//!
//! Written by hand: a build then has `serde_core` alone of serde, and no derive macro.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde_core::ser::SerializeMap;
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::NamedValue;
use crate::rule::KeyPattern;
use crate::rule::format::{
    FIELDS, Field, FieldKind, FieldNames, Found, WrittenValue, field, limit_of_parts, parse_limit, parts_beside_text,
    whole_millis, written_limits,
};
use crate::rule::message_text::{cut, list, quoted, wrong_name_problem};
use crate::{Algorithm, KeyMatch, Layout, Limit, Mode, OnError, Origin, Receipt, Rule, RuleInForce};

mod rule;

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

// The serialised form of a limit: its text, or a map where the text would lose a part of it.

/// Writes the text, such as `5/10s`, for a sliding window of the compact layout. Otherwise it writes a map of `limit`,
/// the text, and those of `algorithm`, `burst` and `layout` that are not the default. Needs the feature `serde`.
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts: Vec<_> = parts_beside_text(*self).collect();
        if parts.is_empty() {
            return serializer.collect_str(self);
        }
        let text = self.to_string();
        let parts = parts.into_iter().map(|(name, value)| (name, FieldValue::One(value)));
        write_fields(serializer, &[("limit", FieldValue::Text(&text))].into_iter().chain(parts).collect::<Vec<_>>())
    }
}

/// Reads both forms: a text, or a map of `limit` with `algorithm`, `burst` and `layout`, from a format that describes
/// itself, such as TOML or JSON. Needs the feature `serde`.
impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit such as `5/10s`, or a map of `limit` with `algorithm`, `burst` and `layout`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
        parse_limit(text).map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Limit, M::Error> {
        let mut fields = FieldsOnce::default();
        let mut parts = Rule::new();
        while let Some(name) = map.next_key::<String>()? {
            fields.begin(&name)?;
            match (&*name, field(&name)) {
                ("limit", _) => parts.limits = vec![map.next_value::<LimitText>()?.0],
                (_, Some(field)) if field.is_of_limit() => {
                    map.next_value_seed(FieldReader { rule: &mut parts, field })?;
                }
                _ => return Err(de::Error::custom(FieldNames::of_limit().unknown_problem(&name))),
            }
        }
        limit_of_parts(&parts).map_err(|(_, problem)| de::Error::custom(problem))
    }
}

/// The permits and the window of a limit, as text.
struct LimitText(Limit);

impl<'de> Deserialize<'de> for LimitText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(LimitTextVisitor).map(Self)
    }
}

struct LimitTextVisitor;

impl Visitor<'_> for LimitTextVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for `limit` a text such as `5/10s`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
        parse_limit(text).map_err(E::custom)
    }
}

// The serialised form of a receipt: its text.

/// Writes the text of the receipt. Needs the feature `serde`.
impl Serialize for Receipt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text of a receipt, and checks its form. Needs the feature `serde`.
impl<'de> Deserialize<'de> for Receipt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ReceiptVisitor)
    }
}

struct ReceiptVisitor;

impl Visitor<'_> for ReceiptVisitor {
    type Value = Receipt;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a receipt")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Receipt, E> {
        text.parse().map_err(E::custom)
    }
}

/// Reads the value of a field into a rule.
struct FieldReader<'r> {
    rule: &'r mut Rule,
    field: &'static Field,
}

impl FieldReader<'_> {
    fn read<E: de::Error>(self, found: &Found<'_>) -> Result<(), E> {
        self.field.read(self.rule, found).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for FieldReader<'_> {
    type Value = ();

    /// Formats without types of their own, such as variables of the environment, convert a text to the type that is
    /// asked for.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.field.kind {
            FieldKind::Word(_) | FieldKind::Deadline | FieldKind::Block => deserializer.deserialize_str(self),
            FieldKind::Permits => deserializer.deserialize_u32(self),
            FieldKind::Buckets => deserializer.deserialize_u64(self),
            FieldKind::Flag => deserializer.deserialize_bool(self),
        }
    }
}

impl Visitor<'_> for FieldReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for `{}` {}", self.field.name, self.field.bound())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.read(&Found::Text(text))
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<(), E> {
        self.read(&Found::Flag(flag))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        self.read(&Found::Number(Cow::Owned(number.to_string()), u32::try_from(number).ok()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<(), E> {
        self.read(&Found::Number(Cow::Owned(number.to_string()), u32::try_from(number).ok()))
    }
}

// The fields of a rule, written.

/// A value in the map of a rule.
enum FieldValue<'r> {
    Text(&'r str),
    Texts(&'r [&'r str]),
    One(WrittenValue),
    Limit(Limit),
    Limits(&'r [Limit]),
    /// Names, each with its values.
    Parts(&'r [(String, Vec<String>)]),
    /// The values of a part: one, or a list.
    Values(&'r [String]),
    Names(&'r [String]),
    Overrides(&'r [(KeyMatch, Rule)]),
}

impl Serialize for FieldValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Texts(texts) => serializer.collect_seq(*texts),
            Self::One(WrittenValue::Word(word)) => serializer.serialize_str(word),
            Self::One(WrittenValue::Number(number)) => serializer.serialize_u64(*number),
            Self::One(WrittenValue::Flag(flag)) => serializer.serialize_bool(*flag),
            Self::One(WrittenValue::Block(block)) => serializer.collect_str(block),
            Self::One(WrittenValue::Time(time)) => serializer.collect_str(&format_args!("{}ms", whole_millis(*time))),
            Self::Limit(limit) => limit.serialize(serializer),
            Self::Limits(limits) => serializer.collect_seq(*limits),
            Self::Parts(parts) => {
                serializer.collect_map(parts.iter().map(|(name, values)| (name, FieldValue::Values(values))))
            }
            Self::Values([value]) => serializer.serialize_str(value),
            Self::Values(values) | Self::Names(values) => serializer.collect_seq(*values),
            Self::Overrides(overrides) => {
                serializer.collect_seq(overrides.iter().map(|(keys, rule)| WrittenOverride { keys, rule }))
            }
        }
    }
}

/// Writes the map of these fields.
fn write_fields<S: Serializer>(serializer: S, fields: &[(&'static str, FieldValue<'_>)]) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for (name, value) in fields {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Returns the settings of a rule or of an override that are set.
fn settings(rule: &Rule) -> impl Iterator<Item = (&'static str, FieldValue<'_>)> {
    let limits = written_limits(rule).map(|(name, limits)| match limits {
        [limit] => (name, FieldValue::Limit(*limit)),
        limits => (name, FieldValue::Limits(limits)),
    });
    let settings = FIELDS.iter().filter_map(|field| Some((field.name, FieldValue::One((field.written)(rule)?))));
    limits.into_iter().chain(settings)
}

/// The map of an override.
struct WrittenOverride<'r> {
    keys: &'r KeyMatch,
    rule: &'r Rule,
}

impl Serialize for WrittenOverride<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded;
        let keys = match &self.keys.pattern {
            KeyPattern::Parts(parts) => ("match", FieldValue::Parts(parts)),
            KeyPattern::Key(key) => {
                encoded = key.encoded();
                ("key", FieldValue::Text(&encoded))
            }
        };
        write_fields(serializer, &[keys].into_iter().chain(settings(self.rule)).collect::<Vec<_>>())
    }
}

// The serialised form of a rule in force, for pages and reports of operators.

/// Writes a map of `name`, `limits`, `attribute_limits`, `mode`, the settings of its calls, `origin`, `overrides`, their
/// number, and `plans`. Needs the feature `serde`.
///
/// The settings of calls are those of [`Rule`] that have no limits, such as `on_error`, if they are configured. A deadline
/// is a text of whole milliseconds such as `50ms`, rounded up.
impl Serialize for RuleInForce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let overrides = u64::try_from(self.overrides()).unwrap_or(u64::MAX);
        let call_settings = self.call_settings();
        let first = [
            ("name", FieldValue::Text(self.name())),
            ("limits", FieldValue::Limits(self.limits())),
            ("attribute_limits", FieldValue::Texts(self.attribute_limits())),
            ("mode", FieldValue::Text(self.mode().as_str())),
        ];
        let last = [
            ("origin", FieldValue::Text(self.origin().as_str())),
            ("overrides", FieldValue::One(WrittenValue::Number(overrides))),
            ("plans", FieldValue::Names(self.plans())),
        ];
        write_fields(serializer, &first.into_iter().chain(settings(&call_settings)).chain(last).collect::<Vec<_>>())
    }
}

/// Writes the text of the origin. Needs the feature `serde`.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
