//! The overrides of a rule in a text.

use std::collections::HashMap;

use toml::de::DeValue;

use super::mistake::{Mistake, TextLines, config_error};
use super::rule_reader::RuleReader;
use super::value::{TextEntry, entries, list_tables, table, text};
use crate::rule::message_text::cut;
use crate::{Key, KeyMatch, Rule};

const OVERRIDE_FIELDS: [&str; 10] =
    ["match", "key", "limit", "limits", "algorithm", "burst", "layout", "mode", "on_error", "deadline"];

/// The most overrides of a text.
const MAX_OVERRIDES: usize = 100_000;

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
    pub(super) fn read(&mut self, entry: &TextEntry<'_>) -> Result<Vec<(KeyMatch, Rule)>, Mistake> {
        let mut overrides = Vec::new();
        let mut seen = HashMap::new();
        for (fields, at) in list_tables(entry)? {
            self.count += 1;
            if self.count > MAX_OVERRIDES {
                let problem = format!(
                    "`override` must be used at most {MAX_OVERRIDES} times, got more: use parts of keys, or remove some"
                );
                return Err(config_error(problem, at));
            }
            let mut reader = RuleReader::default();
            let mut keys = None;
            for entry in entries(fields) {
                match entry.name {
                    "match" | "key" if keys.is_some() => {
                        let problem = "`key` must be left out with `match`, got both: remove one of them";
                        return Err(config_error(problem, entry.name_at()));
                    }
                    "match" => keys = Some((matched_parts(&entry)?, entry.at())),
                    "key" => keys = Some((matched_key(&entry)?, entry.at())),
                    name if OVERRIDE_FIELDS.contains(&name) => reader.read(&entry)?,
                    _ => return Err(entry.unknown("a setting of an override", &OVERRIDE_FIELDS)),
                }
            }
            let Some(((key_match, keys), keys_at)) = keys else {
                let problem = "`match` must be set in an override, got none: write one such as `match = { user_id = \"42\" }`, \
                               or `key = \"user:@42\"`";
                return Err(config_error(problem, at));
            };
            if let Some(earlier) = seen.insert(keys, keys_at) {
                let line = self.lines.place(earlier).line();
                let problem = format!(
                    "`match` must differ from that of other overrides, got the one of line {line}: remove one of them"
                );
                return Err(config_error(problem, keys_at));
            }
            let mut rule = reader.finish()?;
            rule.place = self.lines.place(keys_at);
            overrides.push((key_match, rule));
        }
        Ok(overrides)
    }
}

/// The keys of an override as written: two of them are equal if they match the same keys.
#[derive(PartialEq, Eq, Hash)]
enum WrittenMatch<'t> {
    /// Names and values, by name.
    Parts(Vec<(&'t str, String)>),
    Key(&'t str),
}

fn matched_parts<'t>(entry: &TextEntry<'t>) -> Result<(KeyMatch, WrittenMatch<'t>), Mistake> {
    let parts = entries(table(entry)?).into_iter().map(|part| {
        let value = match part.value() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            _ => return Err(part.wrong("a text in quotes", &format!("one such as `{} = \"42\"`", cut(part.name)))),
        };
        Ok((part.name, value))
    });
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        let problem = "`match` must name at least one part of the key, got none: write one such as \
                       `match = { user_id = \"42\" }`, or set the rule itself";
        return Err(config_error(problem, entry.at()));
    }
    let key_match = KeyMatch::parts(parts.iter().map(|(name, value)| (*name, value)));
    parts.sort();
    Ok((key_match, WrittenMatch::Parts(parts)))
}

fn matched_key<'t>(entry: &TextEntry<'t>) -> Result<(KeyMatch, WrittenMatch<'t>), Mistake> {
    let encoded = text(entry, "key = \"user:@42\"")?;
    let key = Key::from_encoded(encoded).map_err(|error| Mistake::new(error.to_string(), entry.at()))?;
    Ok((KeyMatch::key(&key), WrittenMatch::Key(encoded)))
}
