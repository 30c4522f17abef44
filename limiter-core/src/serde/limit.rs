//! The serialised form of a limit: its text, or a map where the text would lose a part of it.

use std::fmt;

use serde_core::de::{self, MapAccess, Visitor};
use serde_core::ser::SerializeMap;
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rule::fields::{LIMIT_FIELD, LIMIT_FIELDS, LimitParts, parse_limit, permits_problem, unknown_field_problem};
use crate::serde::FieldsOnce;
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
        parse_limit(text).map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Limit, M::Error> {
        let mut fields = FieldsOnce::default();
        let mut parts = LimitParts::default();
        while let Some(field) = map.next_key::<String>()? {
            fields.begin(&field)?;
            match &*field {
                "limit" => parts.limit = Some(map.next_value::<LimitText>()?.0),
                "algorithm" => parts.algorithm = Some(map.next_value()?),
                "burst" => parts.burst = Some(map.next_value::<Burst>()?.0),
                "layout" => parts.layout = Some(map.next_value()?),
                _ => return Err(de::Error::custom(unknown_field_problem(&field, LIMIT_FIELD, &LIMIT_FIELDS))),
            }
        }
        parts.build().map_err(|(_, problem)| de::Error::custom(problem))
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
        parse_limit(text).map_err(E::custom)
    }
}

/// The permits of a `burst`.
pub(super) struct Burst(pub(super) u32);

impl<'de> Deserialize<'de> for Burst {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u32(BurstVisitor)
    }
}

struct BurstVisitor;

impl Visitor<'_> for BurstVisitor {
    type Value = Burst;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for `burst` a whole number from 1 to 4294967295")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Burst, E> {
        let permits = u32::try_from(number).ok().filter(|permits| *permits > 0);
        permits.map(Burst).ok_or_else(|| E::custom(permits_problem("burst", &format!("`{number}`"))))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Burst, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(permits_problem("burst", &format!("`{number}`")))),
        }
    }
}
