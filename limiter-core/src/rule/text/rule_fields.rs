//! The rules and the defaults in a text.

use toml::de::DeTable;

use super::mistake::{Mistake, config_error};
use super::override_fields::OverrideReader;
use super::rule_reader::RuleReader;
use super::value::{TextEntry, entries, table, text};
use crate::Rule;
use crate::rule::fields::{RULE_FIELD, RULE_FIELDS};

const DEFAULT_FIELDS: [&str; 4] = ["mode", "on_error", "deadline", "leases"];

/// Reads `[defaults]`.
pub(super) fn defaults(table: &DeTable<'_>) -> Result<Rule, Mistake> {
    let mut reader = RuleReader::default();
    for entry in entries(table) {
        if !DEFAULT_FIELDS.contains(&entry.name) {
            return Err(entry.unknown("a setting of the defaults", &DEFAULT_FIELDS));
        }
        reader.read(&entry)?;
    }
    reader.finish()
}

/// Reads `[rules.name]`.
pub(super) fn rule(rule: &TextEntry<'_>, overrides: &mut OverrideReader<'_>) -> Result<Rule, Mistake> {
    if rule.name.is_empty() {
        let problem = "`rules` must have a name for each rule, got an empty text: write the attribute's `name`, or its key \
                       as written there";
        return Err(config_error(problem, rule.name_at()));
    }
    let mut reader = RuleReader::default();
    for entry in entries(table(rule)?) {
        match entry.name {
            "key" => reader.rule.key = Some(text(&entry, "key = \"user:{user_id}\"")?.to_owned()),
            "override" => reader.rule.overrides = overrides.read(&entry)?,
            name if RULE_FIELDS.contains(&name) => reader.read(&entry)?,
            _ => return Err(entry.unknown(RULE_FIELD, &RULE_FIELDS)),
        }
    }
    let mut read = reader.finish()?;
    read.check("the rule").map_err(|error| Mistake::new(error.to_string(), rule.name_at()))?;
    read.place = overrides.lines().place(rule.name_at());
    Ok(read)
}
