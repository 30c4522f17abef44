//! The serialised form of a limit: its text, or a map where the text would lose a part of it.

use std::fmt;

use serde_core::de::{self, IgnoredAny, MapAccess, Visitor};
use serde_core::ser::SerializeMap;
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named_value::NamedValue;
use crate::{Algorithm, Layout, Limit};

/// Writes the text, such as `5/10s`, for a sliding window of the compact layout. Otherwise it writes a map of `limit`,
/// the text, and those of `algorithm`, `burst` and `layout` that are not the default. Needs the feature `serde`.
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let algorithm = Some(self.algorithm()).filter(|algorithm| *algorithm != Algorithm::default());
        let layout = Some(self.layout()).filter(|layout| *layout != Layout::default());
        let burst = self.own_burst();
        let extras = usize::from(algorithm.is_some()) + usize::from(layout.is_some()) + usize::from(burst.is_some());
        if extras == 0 {
            return serializer.collect_str(self);
        }
        let mut map = serializer.serialize_map(Some(1 + extras))?;
        map.serialize_entry("limit", &LimitText(*self))?;
        if let Some(algorithm) = algorithm {
            map.serialize_entry("algorithm", &algorithm)?;
        }
        if let Some(burst) = burst {
            map.serialize_entry("burst", &burst)?;
        }
        if let Some(layout) = layout {
            map.serialize_entry("layout", &layout)?;
        }
        map.end()
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
        text.parse().map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Limit, M::Error> {
        let (mut limit, mut algorithm, mut burst, mut layout) = (None, None, None, None);
        while let Some(field) = map.next_key()? {
            match field {
                Field::Limit => read(&mut map, "limit", &mut limit)?,
                Field::Algorithm => read(&mut map, "algorithm", &mut algorithm)?,
                Field::Burst => read(&mut map, "burst", &mut burst)?,
                Field::Layout => read(&mut map, "layout", &mut layout)?,
            }
        }
        let Some(LimitText(limit)) = limit else {
            return Err(de::Error::custom("`limit` must be set, got a map without it: write one such as `5/10s`"));
        };
        build(limit, algorithm.unwrap_or_default(), burst, layout.unwrap_or_default()).map_err(de::Error::custom)
    }
}

/// Reads the value of a field that was not set before.
fn read<'de, M: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut M,
    field: &str,
    value: &mut Option<T>,
) -> Result<(), M::Error> {
    if value.is_some() {
        map.next_value::<IgnoredAny>()?;
        return Err(de::Error::custom(format_args!("`{field}` must be set once, got two: remove one")));
    }
    *value = Some(map.next_value()?);
    Ok(())
}

/// Returns the limit with its parts, or the problem in the words of a configuration.
fn build(limit: Limit, algorithm: Algorithm, burst: Option<Burst>, layout: Layout) -> Result<Limit, String> {
    let limit = limit.with_algorithm(algorithm);
    let name = algorithm.name();
    let limit = match burst {
        None => limit,
        Some(Burst(burst)) => limit.with_burst(burst).map_err(|_| match burst {
            0 => "`burst` must be at least 1, got 0: leave it out for the default, the permits of `limit`".to_owned(),
            _ => format!(
                "`burst` must be left out for `{name}`, got {burst}: set `algorithm` to `token_bucket` or \
                 `leaky_bucket`, or remove it"
            ),
        })?,
    };
    limit.with_layout(layout).map_err(|_| {
        format!(
            "`layout` must be `compact` for `{name}`, got `zset`: set `algorithm` to `sliding_window`, or remove it"
        )
    })
}

enum Field {
    Limit,
    Algorithm,
    Burst,
    Layout,
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(FieldVisitor)
    }
}

struct FieldVisitor;

impl Visitor<'_> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one of `limit`, `algorithm`, `burst` and `layout`")
    }

    fn visit_str<E: de::Error>(self, field: &str) -> Result<Field, E> {
        match field {
            "limit" => Ok(Field::Limit),
            "algorithm" => Ok(Field::Algorithm),
            "burst" => Ok(Field::Burst),
            "layout" => Ok(Field::Layout),
            _ => Err(E::custom(format_args!(
                "a field of a limit must be one of `limit`, `algorithm`, `burst` and `layout`, got `{field}`: remove it"
            ))),
        }
    }
}

/// The permits and the window of a limit, as text.
struct LimitText(Limit);

impl Serialize for LimitText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

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
        text.parse().map_err(E::custom)
    }
}

/// The permits of a `burst`.
#[derive(Clone, Copy)]
struct Burst(u32);

impl<'de> Deserialize<'de> for Burst {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u32(BurstVisitor).map(Self)
    }
}

struct BurstVisitor;

impl Visitor<'_> for BurstVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for `burst` a whole number between 1 and 4294967295")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}
