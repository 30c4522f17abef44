//! The overrides of a rule in a text.

use std::collections::HashMap;

use toml::de::DeValue;

use super::mistake::{Mistake, TextLines, config_error};
use super::rule_reader::RuleReader;
use super::value::{TextEntry, entries, list_tables};
use crate::rule::fields::{
    MAX_OVERRIDES, OVERRIDE_FIELD, OVERRIDE_FIELDS, both_matches_problem, empty_match_problem, equal_match_problem,
    no_match_problem, too_many_overrides_problem,
};
use crate::rule::message_text::cut;
use crate::{Key, KeyMatch, Rule};

/// Reads the overrides of a text, and counts them.
pub(super) struct OverrideReader<'l> {
    lines: &'l TextLines<'l>,
    count: usize,
}

impl<'l> OverrideReader<'l> {
    pub(super) fn new(lines: &'l TextLines<'l>) -> Self {
        Self { lines, count: 0 }
    }

    pub(super) fn lines(&self) -> &TextLines<'l> {
        self.lines
    }

    /// Reads `[[rules.name.override]]`, all of them.
    #[expect(clippy::mutable_key_type, reason = "the caches of a key are in no hash and no comparison")]
    pub(super) fn read(&mut self, entry: &TextEntry<'_>) -> Result<Vec<(KeyMatch, Rule)>, Mistake> {
        let mut overrides = Vec::new();
        let mut seen = HashMap::new();
        for (fields, at) in list_tables(entry)? {
            self.count += 1;
            if self.count > MAX_OVERRIDES {
                return Err(config_error(too_many_overrides_problem(), at));
            }
            let mut reader = RuleReader::default();
            let mut keys = None;
            for entry in entries(fields) {
                match entry.name {
                    "match" | "key" if keys.is_some() => {
                        return Err(config_error(both_matches_problem(), entry.name_at()));
                    }
                    "match" => keys = Some((matched_parts(&entry)?, entry.at())),
                    "key" => keys = Some((matched_key(&entry)?, entry.at())),
                    name if OVERRIDE_FIELDS.contains(&name) => reader.read(&entry)?,
                    _ => return Err(entry.unknown(OVERRIDE_FIELD, &OVERRIDE_FIELDS)),
                }
            }
            let Some((keys, keys_at)) = keys else { return Err(config_error(no_match_problem(), at)) };
            if let Some(earlier) = seen.insert(keys.clone(), keys_at) {
                let line = self.lines.place(earlier).line();
                return Err(config_error(equal_match_problem(format_args!("line {line}")), keys_at));
            }
            let mut rule = reader.finish()?;
            rule.place = self.lines.place(keys_at);
            overrides.push((keys, rule));
        }
        Ok(overrides)
    }
}

fn matched_parts(entry: &TextEntry<'_>) -> Result<KeyMatch, Mistake> {
    let table = entry.value().as_table();
    let table = table.ok_or_else(|| entry.wrong_key("a table", "one such as `match = { user_id = \"42\" }`"))?;
    let parts = entries(table).into_iter().map(|part| {
        let value = match part.value() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            _ => return Err(part.wrong_key("a text in quotes", &format!("one such as `{} = \"42\"`", cut(part.name)))),
        };
        Ok((part.name, value))
    });
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Err(config_error(empty_match_problem(), entry.at()));
    }
    Ok(KeyMatch::parts(parts))
}

fn matched_key(entry: &TextEntry<'_>) -> Result<KeyMatch, Mistake> {
    let encoded = entry.value().as_str();
    let encoded = encoded.ok_or_else(|| entry.wrong_key("a text in quotes", "one such as `key = \"user:@42\"`"))?;
    let key = Key::from_encoded(encoded).map_err(|error| Mistake::new(error.to_string(), entry.at()))?;
    Ok(KeyMatch::key(&key))
}
