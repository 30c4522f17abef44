//! The rules of a text, for a reader that is no service.

use std::collections::BTreeMap;

use rate_limited::{Error, RuleSet};
use toml_edit::{Document, DocumentMut, Item, Key, TableLike, Value};

use crate::rule_settings::{limits, overrides};

/// Reads a text of rules, without the settings that are for programs: failures of the store are errors for a reader.
///
/// # Errors
/// The mistake of the text.
pub fn rules_alone(text: &str) -> Result<RuleSet, Error> {
    // Mistakes have the lines of the text as it is.
    let rules: RuleSet = text.parse()?;
    let Ok(mut document) = text.parse::<DocumentMut>() else { return Ok(rules) };
    for setting in ["strict", "shared"] {
        document.remove(setting);
    }
    if let Some(defaults) = document.get_mut("defaults").and_then(Item::as_table_like_mut) {
        remove_policies(defaults);
    }
    let plans = document.get_mut("plans").and_then(Item::as_table_like_mut);
    for plan in plans.into_iter().flat_map(|plans| plans.iter_mut()).filter_map(|(_, plan)| plan.as_table_like_mut()) {
        remove_policies(plan);
        if plan.is_empty() {
            // A plan has a setting. A reader has no leases in any case.
            plan.insert("leases", toml_edit::value(false));
        }
    }
    let rules = document.get_mut("rules").and_then(Item::as_table_like_mut);
    // A rule has any name, such as that of a setting.
    for rule in rules.into_iter().flat_map(|rules| rules.iter_mut()).filter_map(|(_, rule)| rule.as_table_like_mut()) {
        remove_policies(rule);
        match rule.get_mut("override") {
            Some(Item::ArrayOfTables(tables)) => tables.iter_mut().for_each(|table| remove_policies(table)),
            Some(Item::Value(Value::Array(values))) => {
                values.iter_mut().filter_map(Value::as_inline_table_mut).for_each(|table| remove_policies(table));
            }
            _ => {}
        }
    }
    document.to_string().parse()
}

/// The settings that are for programs.
pub(crate) const POLICIES: [&str; 3] = ["on_error", "deadline", "leases"];

fn remove_policies(settings: &mut dyn TableLike) {
    for setting in POLICIES {
        settings.remove(setting);
    }
}

/// Returns the rules of a text by their names, each with the `key` that it states.
#[must_use]
pub fn stated_keys(toml: &str) -> BTreeMap<String, Option<String>> {
    let Ok(document) = Document::parse(toml) else { return BTreeMap::new() };
    let rules = document.get("rules").and_then(Item::as_table_like);
    let key = |rule: &Item| Some(rule.as_table_like()?.get("key")?.as_str()?.to_owned());
    rules.into_iter().flat_map(TableLike::iter).map(|(name, rule)| (name.to_owned(), key(rule))).collect()
}

/// A rule of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOutline {
    /// Its line, from 1.
    pub line: usize,
    /// The number of its overrides.
    pub overrides: usize,
    /// The mode, if the text sets one.
    pub mode: Option<String>,
    /// The limits that the text sets.
    pub limits: Vec<String>,
}

/// Returns the rules of a text by their names.
#[must_use]
pub fn outline(toml: &str) -> BTreeMap<String, RuleOutline> {
    let Ok(document) = Document::parse(toml) else { return BTreeMap::new() };
    let Some(rules) = document.get("rules").and_then(Item::as_table_like) else { return BTreeMap::new() };
    let line_ends: Vec<usize> = toml.match_indices('\n').map(|(at, _)| at).collect();
    let outline = |(name, rule): (&str, &Item)| {
        let settings = rule.as_table_like()?;
        let start = rules.key(name).and_then(Key::span).map_or(0, |span| span.start);
        let line = line_ends.partition_point(|end| *end < start) + 1;
        let mode = settings.get("mode").and_then(Item::as_str).map(str::to_owned);
        let limits = limits(settings).iter().map(|limit| limit.limit.to_owned()).collect();
        Some((name.to_owned(), RuleOutline { line, overrides: overrides(settings).len(), mode, limits }))
    };
    rules.iter().filter_map(outline).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn an_outline_has_each_rule_with_its_line() {
        let toml = "# Quotas.\n[rules.a]\nlimit = '5/s'\n[[rules.a.override]]\nkey = 'a'\nmode = 'off'\n\n[rules.\"b c\"]\nmode = 'deny'\n";
        let found = outline(toml);
        let shown = |name: &str| {
            let RuleOutline { line, overrides, mode, limits } = &found[name];
            format!("{line} {overrides} {mode:?} {limits:?}")
        };
        assert_eq!(shown("a"), "2 1 None [\"5/s\"]");
        assert_eq!(shown("b c"), "8 0 Some(\"deny\") []");
        assert!(outline("[").is_empty() && outline("rules = 1").is_empty());
    }

    /// The time grew with the square of the rules: 23 s for 10 000 of them.
    #[test]
    fn the_outline_of_many_rules_takes_a_time_in_proportion() {
        let toml: String = (0..30_000).map(|number| format!("[rules.rule-{number}]\nlimit = '5/s'\n")).collect();
        let began = Instant::now();
        assert_eq!(outline(&toml)["rule-29999"].line, 59_999);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
