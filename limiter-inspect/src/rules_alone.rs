//! The rules of a text, for a reader that is no service.

use std::collections::BTreeMap;

use rate_limited::{Error, RuleSet};
use toml_edit::{Document, DocumentMut, Item, TableLike, Value};

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

fn remove_policies(settings: &mut dyn TableLike) {
    for setting in ["on_error", "deadline", "leases"] {
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
