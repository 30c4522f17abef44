//! The fields of a rule, written.

use std::time::Duration;

use serde_core::ser::SerializeMap;
use serde_core::{Serialize, Serializer};

use crate::named_value::NamedValue;
use crate::rule::key_match::KeyPattern;
use crate::{KeyMatch, Limit, Rule};

/// A value in the map of a rule.
pub(super) enum FieldValue<'r> {
    Text(&'r str),
    Texts(&'r [&'r str]),
    Number(u64),
    Flag(bool),
    Limit(Limit),
    Limits(&'r [Limit]),
    Deadline(Duration),
    /// Names and values.
    Parts(&'r [(String, String)]),
    Overrides(&'r [(KeyMatch, Rule)]),
}

impl Serialize for FieldValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Texts(texts) => serializer.collect_seq(*texts),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Limit(limit) => limit.serialize(serializer),
            Self::Limits(limits) => serializer.collect_seq(*limits),
            Self::Deadline(deadline) => {
                serializer.collect_str(&format_args!("{}ms", deadline.as_nanos().div_ceil(1_000_000)))
            }
            Self::Parts(parts) => serializer.collect_map(parts.iter().map(|(name, value)| (name, value))),
            Self::Overrides(overrides) => {
                serializer.collect_seq(overrides.iter().map(|(keys, rule)| WrittenOverride { keys, rule }))
            }
        }
    }
}

/// Writes the map of these fields.
pub(super) fn write_fields<S: Serializer>(
    serializer: S,
    fields: &[(&'static str, FieldValue<'_>)],
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    for (name, value) in fields {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Returns the settings of a rule or of an override that are set.
pub(super) fn settings(rule: &Rule) -> impl Iterator<Item = (&'static str, FieldValue<'_>)> {
    let Rule { limits, algorithm, burst, layout, mode, on_error, deadline, leases, overrides: _, key: _, place: _ } =
        rule;
    let limits = match limits[..] {
        [] => None,
        [limit] => Some(("limit", FieldValue::Limit(limit))),
        _ => Some(("limits", FieldValue::Limits(limits))),
    };
    let settings = [
        limits,
        algorithm.map(|algorithm| ("algorithm", FieldValue::Text(algorithm.name()))),
        burst.map(|burst| ("burst", FieldValue::Number(burst.into()))),
        layout.map(|layout| ("layout", FieldValue::Text(layout.name()))),
        mode.map(|mode| ("mode", FieldValue::Text(mode.name()))),
        on_error.map(|policy| ("on_error", FieldValue::Text(policy.name()))),
        deadline.map(|deadline| ("deadline", FieldValue::Deadline(deadline))),
        leases.map(|leases| ("leases", FieldValue::Flag(leases))),
    ];
    settings.into_iter().flatten()
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
