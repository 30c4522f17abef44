//! The settings of rules and overrides in words.

use std::collections::BTreeSet;
use std::time::Duration;

use rate_limited::{Block, Limit};
use toml_edit::{Document, Item, TableLike};

use crate::rule_settings::{LimitText, OVERRIDE, OverrideKeys, limits, overrides};

/// The limits, the mode, the algorithm and the number of hashes of a rule or of some of its keys, as a text sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    limits: Vec<(String, Option<String>)>,
    mode: Option<String>,
    algorithm: Option<String>,
    packed: Option<i64>,
}

impl Settings {
    pub(crate) fn of(table: &dyn TableLike) -> Self {
        let text = |name: &str| table.get(name).and_then(Item::as_str).map(str::to_owned);
        let own = |limit: &LimitText<'_>| (limit.limit.to_owned(), limit.algorithm.map(str::to_owned));
        Self {
            limits: limits(table).iter().map(own).collect(),
            mode: text("mode"),
            algorithm: text("algorithm"),
            packed: table.get("packed").and_then(Item::as_integer),
        }
    }

    /// Returns the settings of an override's keys: its own, or else those of the rule.
    pub(crate) fn over(self, rule: &Self) -> Self {
        let limits = if self.limits.is_empty() { rule.limits.clone() } else { self.limits };
        let algorithm = self.algorithm.or_else(|| rule.algorithm.clone());
        Self { limits, mode: self.mode.or_else(|| rule.mode.clone()), algorithm, packed: self.packed.or(rule.packed) }
    }

    /// Returns the settings in words, such as `5/10s and 100/min, shadow`.
    pub(crate) fn in_words(&self) -> String {
        let mode = self.mode.as_deref().unwrap_or("enforce");
        let limits: Vec<&str> = self.limits.iter().map(|(limit, _)| &**limit).collect();
        let limits = if limits.is_empty() { "the limit of the source".to_owned() } else { limits.join(" and ") };
        let packed = self.packed.map_or_else(String::new, |buckets| format!(", packed = {buckets}"));
        match mode {
            "deny" => "each call is denied".to_owned(),
            "off" => "no limit (mode off)".to_owned(),
            "enforce" => format!("{limits}{packed}"),
            other => format!("{limits}{packed}, {other}"),
        }
    }

    /// Returns the algorithm in words.
    pub(crate) fn algorithm_in_words(&self) -> &str {
        self.algorithm.as_deref().unwrap_or("the algorithm of the source")
    }

    /// Returns whether both have the same limits, whatever their spelling, the same mode and the same number of hashes.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let mode = |settings: &Self| settings.mode.clone().unwrap_or_else(|| "enforce".to_owned());
        mode(self) == mode(other) && self.packed == other.packed && self.parsed() == other.parsed()
    }

    /// Returns whether both have the same algorithm.
    pub(crate) fn has_same_algorithm(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm
    }

    /// Returns whether a change to the other settings starts counts for windows, an algorithm or hashes that had none.
    pub(crate) fn starts_new_counts(&self, other: &Self) -> bool {
        let windows = |settings: &Self| -> BTreeSet<Duration> {
            settings.limits.iter().filter_map(|(limit, _)| Some(limit.parse::<Limit>().ok()?.window())).collect()
        };
        let (old, new) = (windows(self), windows(other));
        // Without limits of the text it may be a rule that is new.
        if self.packed != other.packed && (self.packed.is_some() || !old.is_empty()) {
            return true;
        }
        if old.is_empty() || new.is_empty() {
            return false;
        }
        !new.is_subset(&old) || !self.has_same_algorithm(other)
    }

    fn parsed(&self) -> BTreeSet<(Result<String, String>, Option<String>)> {
        let limit = |(text, algorithm): &(String, Option<String>)| {
            (text.parse::<Limit>().map(|limit| limit.to_string()).map_err(|_| text.clone()), algorithm.clone())
        };
        self.limits.iter().map(limit).collect()
    }
}

/// Returns the keys of an override in words, such as `` `user_id` = 4711 ``.
#[must_use]
pub fn keys_in_words(keys: &OverrideKeys) -> String {
    match keys {
        OverrideKeys::Key(key) => format!("key {key}"),
        OverrideKeys::Parts(parts) => {
            let part = |(name, values): &(String, Vec<String>)| format!("`{name}` = {}", values.join(" or "));
            parts.iter().map(part).collect::<Vec<_>>().join(", ")
        }
    }
}

/// An override of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideOutline {
    /// The line of its keys, from 1.
    pub line: usize,
    /// Its keys in words.
    pub keys: String,
    /// Its limits and its mode in words.
    pub settings: String,
}

/// Returns the first overrides of a rule in the order of the text, and the number of all of them.
#[must_use]
pub fn override_outlines(toml: &str, rule: &str, max_outlines: usize) -> (Vec<OverrideOutline>, usize) {
    let Ok(document) = Document::parse(toml) else { return (Vec::new(), 0) };
    let rules = document.get("rules").and_then(Item::as_table_like);
    let Some(rule) = rules.and_then(|rules| rules.get(rule)?.as_table_like()) else { return (Vec::new(), 0) };
    let outline = |table: &dyn TableLike| {
        let keys = keys_in_words(&OverrideKeys::of(table)?);
        let at = table.get("match").or_else(|| table.get("key")).and_then(Item::span).map_or(0, |span| span.start);
        let line = toml.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let own = Settings::of(table);
        let has_words = !own.limits.is_empty() || own.mode.is_some();
        let others: Vec<_> =
            table.iter().map(|(name, _)| name).filter(|name| !["match", "key"].contains(name)).collect();
        let settings = if has_words { own.in_words() } else { others.join(", ") };
        Some(OverrideOutline { line, keys, settings })
    };
    let all = overrides(rule);
    (all.iter().take(max_outlines).filter_map(|table| outline(*table)).collect(), all.len())
}

/// Returns the names of the settings that differ and have no words of their own.
pub(crate) fn other_changes<'t>(old: Option<&'t dyn TableLike>, new: Option<&'t dyn TableLike>) -> BTreeSet<&'t str> {
    let is_other = |name: &&str| !["limit", "limits", "mode", "algorithm", "packed", OVERRIDE, "match"].contains(name);
    let names = old.into_iter().chain(new).flat_map(|table| table.iter().map(|(name, _)| name)).filter(is_other);
    let text = |table: Option<&dyn TableLike>, name: &str| {
        let value = table?.get(name)?;
        let block: Option<Block> = value.as_str().filter(|_| name == "block").and_then(|text| text.parse().ok());
        Some(block.map_or_else(|| value.to_string().trim().to_owned(), |block| block.to_string()))
    };
    names.filter(|name| text(old, name) != text(new, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_listed_with_their_lines_and_words() {
        let toml = "[rules.a]\nlimit = '5/s'\n\n[[rules.a.override]]\nmatch = { user = [7, '13'], net = '10.0.0.0/8' }\nlimit = '9/s'\n\
            [[rules.a.override]]\nkey = 'a:@1'\nmode = 'deny'\n[[rules.a.override]]\nkey = 'a:@2'\nburst = 3\n";
        let found: Vec<_> =
            override_outlines(toml, "a", 9).0.into_iter().map(|one| (one.line, one.keys, one.settings)).collect();
        let expected = [
            (5, "`net` = 10.0.0.0/8, `user` = 13 or 7", "9/s"),
            (8, "key a:@1", "each call is denied"),
            (11, "key a:@2", "burst"),
        ];
        assert_eq!(found, expected.map(|(line, keys, settings)| (line, keys.to_owned(), settings.to_owned())));
        let number =
            |toml: &str, rule: &str| (override_outlines(toml, rule, 1).0.len(), override_outlines(toml, rule, 1).1);
        assert_eq!((number(toml, "a"), number(toml, "b"), number("[", "a")), ((1, 3), (0, 0), (0, 0)));
    }
}
