//! The serialised form of a rule: a map as in a file of rules.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{self, DeserializeSeed, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::{FieldValue, settings, write_fields};
use crate::rule::format::{
    FieldNames, MAX_OVERRIDES, both_limits_problem, both_matches_problem, empty_match_problem, equal_match_problem,
    field, no_limits_problem, no_match_problem, too_many_limits_problem, too_many_overrides_problem,
};
use crate::rule::message_text::cut;
use crate::rule::{KeyPattern, MAX_LIMITS};
use crate::serde::{FieldReader, FieldsOnce};
use crate::{Key, KeyMatch, Limit, Rule};

/// Writes the map that a rule is in the [file of rules](crate::Builder::rules_file), with the fields that are set.
/// Needs the feature `serde`.
///
/// Each rule that is written is read back as an equal one. So the error is that of a rule that
/// [`build`](crate::Builder::build) rejects, or of a deadline with a fraction of a millisecond.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.check("the rule").map_err(ser::Error::custom)?;
        check_overrides(&self.overrides).map_err(ser::Error::custom)?;
        let mut rules = self.overrides.iter().map(|(_, rule)| rule).chain([self]);
        rules.try_for_each(check_deadline).map_err(ser::Error::custom)?;
        let key = self.key.as_deref().map(|key| ("key", FieldValue::Text(key)));
        let plans = self.plans.as_deref().map(|plans| ("plans", FieldValue::Names(plans)));
        let mut fields: Vec<_> = key.into_iter().chain(plans).chain(settings(self)).collect();
        if !self.overrides.is_empty() {
            fields.push(("override", FieldValue::Overrides(&self.overrides)));
        }
        write_fields(serializer, &fields)
    }
}

/// Checks the number of overrides, and the keys that they match.
#[expect(clippy::mutable_key_type, reason = "the caches of a key are in no hash and no comparison")]
fn check_overrides(overrides: &[(KeyMatch, Rule)]) -> Result<(), String> {
    if overrides.len() > MAX_OVERRIDES {
        return Err(too_many_overrides_problem());
    }
    let mut seen = HashMap::new();
    for (number, (keys, _)) in (1..).zip(overrides) {
        check_parts(keys)?;
        if let Some(earlier) = seen.insert(keys, number) {
            return Err(equal_match_problem(format_args!("override {earlier}")));
        }
    }
    Ok(())
}

fn check_parts(keys: &KeyMatch) -> Result<(), String> {
    match &keys.pattern {
        KeyPattern::Parts(parts) if parts.is_empty() => Err(empty_match_problem()),
        KeyPattern::Parts(parts) => {
            let names = parts.iter().zip(parts.iter().skip(1)).find(|((name, _), (next, _))| name == next);
            names.map_or(Ok(()), |((name, _), _)| {
                Err(format!("`{}` must be set once in `match`, got two: remove one", cut(name)))
            })
        }
        KeyPattern::Key(_) => Ok(()),
    }
}

fn check_deadline(rule: &Rule) -> Result<(), String> {
    match rule.call.deadline {
        Some(deadline) if deadline.subsec_nanos() % 1_000_000 != 0 => Err(format!(
            "`deadline` must be whole milliseconds to be written, got {deadline:?}: write one such as \
             `Duration::from_millis(50)`"
        )),
        _ => Ok(()),
    }
}

// Rules that are read from a map.

/// Reads the map that a rule is in the [file of rules](crate::Builder::rules_file), from a format that describes itself,
/// such as TOML or JSON. Needs the feature `serde`.
///
/// The errors are those of the file: unknown fields, values out of their range, and settings that contradict each
/// other.
impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = Rule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule: a map of settings such as `limit` and `mode`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Rule, M::Error> {
        let mut fields = FieldsOnce::default();
        let mut rule = Rule::new();
        while let Some(field) = map.next_key::<String>()? {
            fields.begin(&field)?;
            match &*field {
                "key" => rule.key = Some(map.next_value()?),
                "plans" => rule.plans = Some(map.next_value()?),
                "override" => rule.overrides = map.next_value::<OverrideList>()?.0,
                name if read_setting(&mut rule, name, &mut map)? => {}
                name => return Err(de::Error::custom(FieldNames::of_rule().unknown_problem(name))),
            }
        }
        rule.check("the rule").map_err(de::Error::custom)?;
        Ok(rule)
    }
}

/// Reads the value of a setting that rules and overrides have. Returns whether it is one.
fn read_setting<'de, M: MapAccess<'de>>(rule: &mut Rule, name: &str, map: &mut M) -> Result<bool, M::Error> {
    match name {
        "limit" | "limits" if !rule.limits.is_empty() => return Err(de::Error::custom(both_limits_problem())),
        "limit" => rule.limits = vec![map.next_value()?],
        "limits" => rule.limits = map.next_value::<LimitList>()?.0,
        name => match field(name) {
            Some(field) => map.next_value_seed(FieldReader { rule, field })?,
            None => return Ok(false),
        },
    }
    Ok(true)
}

/// The limits of `limits`, at least one.
struct LimitList(Vec<Limit>);

impl<'de> Deserialize<'de> for LimitList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = ListVisitor {
            expected: "for `limits` a list of limits such as `[\"5/s\", \"100/min\"]`",
            max_len: usize::MAX,
            element: PhantomData,
        };
        let limits = deserializer.deserialize_seq(visitor)?;
        match limits.len() {
            0 => Err(de::Error::custom(no_limits_problem())),
            1..=MAX_LIMITS => Ok(Self(limits)),
            count => Err(de::Error::custom(too_many_limits_problem(count))),
        }
    }
}

/// Reads a list. The only list with a bound is that of overrides.
struct ListVisitor<T> {
    /// The list that is expected, for messages.
    expected: &'static str,
    max_len: usize,
    element: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<Vec<T>, S::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            if elements.len() == self.max_len {
                return Err(de::Error::custom(too_many_overrides_problem()));
            }
            elements.push(element);
        }
        Ok(elements)
    }
}

/// The overrides of a rule.
struct OverrideList(Vec<(KeyMatch, Rule)>);

impl<'de> Deserialize<'de> for OverrideList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = ListVisitor {
            expected: "for `override` a list of maps",
            max_len: MAX_OVERRIDES,
            element: PhantomData::<OverrideOfKeys>,
        };
        let overrides = deserializer.deserialize_seq(visitor)?;
        let overrides = overrides.into_iter().map(|OverrideOfKeys(keys, rule)| (keys, rule)).collect::<Vec<_>>();
        check_overrides(&overrides).map_err(de::Error::custom)?;
        Ok(Self(overrides))
    }
}

/// An override: its keys and its settings.
struct OverrideOfKeys(KeyMatch, Rule);

impl<'de> Deserialize<'de> for OverrideOfKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OverrideVisitor)
    }
}

struct OverrideVisitor;

impl<'de> Visitor<'de> for OverrideVisitor {
    type Value = OverrideOfKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an override: a map of `match` or `key` with settings such as `limit`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<OverrideOfKeys, M::Error> {
        let mut fields = FieldsOnce::default();
        let (mut keys, mut rule) = (None, Rule::new());
        while let Some(field) = map.next_key::<String>()? {
            fields.begin(&field)?;
            match &*field {
                "match" | "key" if keys.is_some() => return Err(de::Error::custom(both_matches_problem())),
                "match" => keys = Some(map.next_value::<MatchedParts>()?.0),
                "key" => keys = Some(matched_key(&map.next_value::<String>()?)?),
                name if read_setting(&mut rule, name, &mut map)? => {}
                name => return Err(de::Error::custom(FieldNames::of_override().unknown_problem(name))),
            }
        }
        let keys = keys.ok_or_else(|| de::Error::custom(no_match_problem()))?;
        Ok(OverrideOfKeys(keys, rule))
    }
}

fn matched_key<E: de::Error>(encoded: &str) -> Result<KeyMatch, E> {
    Key::from_encoded(encoded).map(|key| KeyMatch::key(&key)).map_err(E::custom)
}

/// The keys of a `match`.
struct MatchedParts(KeyMatch);

impl<'de> Deserialize<'de> for MatchedParts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PartsVisitor)
    }
}

struct PartsVisitor;

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = MatchedParts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for `match` a map of parts such as `{ user_id = \"42\" }`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<MatchedParts, M::Error> {
        let mut parts = Vec::new();
        while let Some((name, PartTexts(values))) = map.next_entry::<String, _>()? {
            parts.push((name, values));
        }
        let keys = KeyMatch::any_of(parts);
        keys.problem().map_or(Ok(MatchedParts(keys)), |problem| Err(de::Error::custom(problem)))
    }
}

/// The values of a part: one, or a list. A whole number stands for its digits.
struct PartTexts(Vec<String>);

impl<'de> Deserialize<'de> for PartTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor { is_in_list: false })
    }
}

struct PartVisitor {
    is_in_list: bool,
}

impl<'de> DeserializeSeed<'de> for PartVisitor {
    type Value = PartTexts;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PartTexts, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartVisitor {
    type Value = PartTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("for a part of `match` a text or a whole number")?;
        if self.is_in_list { Ok(()) } else { f.write_str(", or a list of them") }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PartTexts, E> {
        Ok(PartTexts(vec![text.to_owned()]))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<PartTexts, E> {
        Ok(PartTexts(vec![number.to_string()]))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<PartTexts, E> {
        Ok(PartTexts(vec![number.to_string()]))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<PartTexts, S::Error> {
        if self.is_in_list {
            return Err(de::Error::invalid_type(Unexpected::Seq, &self));
        }
        let mut values = Vec::new();
        while let Some(PartTexts(value)) = sequence.next_element_seed(Self { is_in_list: true })? {
            values.extend(value);
        }
        Ok(PartTexts(values))
    }
}
