//! The limits and the overrides of a rule in a text.

use rate_limited::Limit;
use toml_edit::{Item, Table, TableLike, Value};

/// The overrides in a rule.
pub const OVERRIDE: &str = "override";

/// A limit of a text, with the settings of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitText<'t> {
    /// Permits and window.
    pub limit: &'t str,
    /// The algorithm, if it is not that of the rule.
    pub algorithm: Option<&'t str>,
    /// The layout, if it is not that of the rule.
    pub layout: Option<&'t str>,
}

/// Returns the limits of a rule or an override.
#[must_use]
pub fn limits(settings: &dyn TableLike) -> Vec<LimitText<'_>> {
    let single = settings.get("limit").and_then(of_item);
    let several = match settings.get("limits") {
        Some(Item::Value(Value::Array(values))) => values.iter().filter_map(LimitText::of_value).collect(),
        Some(Item::ArrayOfTables(tables)) => tables.iter().filter_map(|table| LimitText::of_table(table)).collect(),
        _ => Vec::new(),
    };
    single.into_iter().chain(several).collect()
}

/// Returns two limits of a rule or an override that have one count, since window and algorithm are the same.
#[must_use]
pub fn shared_count(settings: &dyn TableLike) -> Option<(Limit, Limit)> {
    let counter = |text: &LimitText<'_>| Some((text.limit.parse::<Limit>().ok()?, text.algorithm.map(str::to_owned)));
    let counters: Vec<_> = limits(settings).iter().filter_map(counter).collect();
    let has_algorithm = settings.contains_key("algorithm");
    counters.iter().enumerate().find_map(|(index, (limit, algorithm))| {
        let is_same = |(other, other_algorithm): &&(Limit, Option<String>)| {
            other.window() == limit.window() && (has_algorithm || algorithm == other_algorithm)
        };
        let (earlier, _) = counters[..index].iter().find(is_same)?;
        Some((*earlier, *limit))
    })
}

fn of_item(item: &Item) -> Option<LimitText<'_>> {
    item.as_value().and_then(LimitText::of_value).or_else(|| LimitText::of_table(item.as_table()?))
}

impl<'t> LimitText<'t> {
    /// Reads a limit as a text or an inline table.
    #[must_use]
    pub fn of_value(value: &'t Value) -> Option<Self> {
        match value {
            Value::InlineTable(table) => Self::of_table(table),
            value => Some(Self { limit: value.as_str()?, algorithm: None, layout: None }),
        }
    }

    /// Reads a limit as a table.
    #[must_use]
    pub fn of_table(table: &'t dyn TableLike) -> Option<Self> {
        let field = |name: &str| table.get(name).and_then(Item::as_str);
        Some(Self { limit: field("limit")?, algorithm: field("algorithm"), layout: field("layout") })
    }
}

/// Returns the overrides of a rule.
#[must_use]
pub fn overrides(settings: &dyn TableLike) -> Vec<&dyn TableLike> {
    match settings.get(OVERRIDE) {
        Some(Item::ArrayOfTables(tables)) => tables.iter().map(|table| table as _).collect(),
        Some(Item::Value(Value::Array(tables))) => {
            tables.iter().filter_map(Value::as_inline_table).map(|table| table as _).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the settings that apply to some keys or calls of a rule before its own: its overrides, and the plans that it names.
pub(crate) fn settings_of_some<'t>(document: &'t Table, name: &str) -> Vec<&'t dyn TableLike> {
    let table = |kind: &str, name: &str| document.get(kind)?.as_table_like()?.get(name)?.as_table_like();
    let Some(rule) = table("rules", name) else { return Vec::new() };
    let plans = rule.get("plans").and_then(Item::as_array).into_iter().flatten();
    overrides(rule).into_iter().chain(plans.filter_map(|plan| table("plans", plan.as_str()?))).collect()
}

/// The keys that an override applies to, for comparisons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OverrideKeys {
    /// A whole key.
    Key(String),
    /// Names, each with the values of which a key has one, by name.
    Parts(Vec<(String, Vec<String>)>),
}

impl OverrideKeys {
    /// Creates those of parts, each with its values.
    #[must_use]
    pub fn parts(parts: impl Iterator<Item = (String, Vec<String>)>) -> Self {
        let mut parts: Vec<_> = parts.collect();
        parts.iter_mut().for_each(|(_, values)| {
            values.sort();
            values.dedup();
        });
        parts.sort();
        Self::Parts(parts)
    }

    /// Reads the keys of an override. `None` for an override without any.
    #[must_use]
    pub fn of(table: &dyn TableLike) -> Option<Self> {
        if let Some(key) = table.get("key") {
            return Some(Self::Key(key.as_str()?.to_owned()));
        }
        let parts = table.get("match")?.as_table_like()?.iter().map(|(name, value)| {
            let text = |value: &Value| {
                let text = value.as_str().map(str::to_owned).or_else(|| Some(value.as_integer()?.to_string()));
                text.unwrap_or_default()
            };
            let values = match value.as_value() {
                Some(Value::Array(list)) => list.iter().map(text).collect(),
                value => value.into_iter().map(text).collect(),
            };
            (name.to_owned(), values)
        });
        Some(Self::parts(parts))
    }
}

/// Returns the names of all settings of a rule, as the message about an unknown one lists them.
#[cfg(test)]
pub(crate) fn settings_of_rules() -> Vec<String> {
    let error = "[rules.a]\nunknown_setting_of_no_version = 1\n".parse::<rate_limited::RuleSet>().expect_err("unknown");
    let message = error.to_string();
    let (_, list) = message.split_once("got an unknown name: write ").expect("a list");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use toml_edit::DocumentMut;

    use super::*;
    use crate::new_counts::new_counts;
    use crate::rule_words::{Settings, other_changes};

    /// Each setting in two forms, and whether a change of it starts new counts. A new setting fails here.
    const SETTINGS: [(&str, &str, &str, bool); 15] = [
        ("limit", "limit = '5/s'", "limit = '5/h'", true),
        ("limits", "limits = ['5/s']", "limits = ['5/s', '5/h']", true),
        ("algorithm", "algorithm = 'fixed_window'", "algorithm = 'token_bucket'", true),
        ("burst", "burst = 7", "burst = 8", false),
        ("layout", "layout = 'compact'", "layout = 'zset'", true),
        ("packed", "packed = 16384", "packed = 32768", true),
        ("mode", "mode = 'enforce'", "mode = 'shadow'", false),
        ("on_error", "on_error = 'open'", "on_error = 'closed'", false),
        ("deadline", "deadline = '1s'", "deadline = '2s'", false),
        ("leases", "leases = true", "leases = false", false),
        ("postpaid", "postpaid = true", "postpaid = false", false),
        ("block", "block = '1h'", "block = '2h'", false),
        ("key", "key = 'a'", "key = 'b'", false),
        ("plans", "plans = ['free']", "plans = ['free', 'pro']", false),
        ("override", "override = []", "override = [{ key = 'a', mode = 'off' }]", false),
    ];

    #[test]
    fn a_change_of_each_setting_is_seen() {
        assert_eq!(SETTINGS.map(|(name, ..)| name.to_owned()).to_vec(), settings_of_rules());
        for (name, old, new, starts_new_counts) in SETTINGS {
            let base = if name.starts_with("limit") { "" } else { "limit = '5/s'\n" };
            let document =
                |fields: &str| -> DocumentMut { format!("[rules.a]\n{base}{fields}\n").parse().expect("TOML") };
            let (old, new) = (document(old), document(new));
            assert_eq!(!new_counts(None, &old, &new).is_empty(), starts_new_counts, "{name}");
            let table = |document: &DocumentMut| document["rules"]["a"].as_table().cloned().expect("a table");
            let (before, after) = (table(&old), table(&new));
            let has_words =
                Settings::of(&before) != Settings::of(&after) || !other_changes(Some(&before), Some(&after)).is_empty();
            assert!(has_words || name == "override", "{name}: overrides have changes of their own");
        }
    }
}
