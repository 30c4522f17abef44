//! Drafts of a change: an override for exactly one key, or the limit of a rule, in a text of rules.

use std::ops::Range;

use rate_limited::{Algorithm, Key, Limit};
use toml_edit::{Array, ArrayOfTables, Document, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use crate::fleet::{fits, parts};
use crate::key_pieces::texts_and_parts;
use crate::rule_settings::{OVERRIDE, OverrideKeys, overrides};

/// The subject of a draft.
#[derive(Clone, Copy, Debug)]
pub struct DraftSubject<'d> {
    /// The name of the rule.
    pub rule: &'d str,
    /// The key whose override it is. `None` for the rule itself.
    pub key: Option<&'d Key>,
    /// The templates of the rule's keys, as far as they are known.
    pub templates: &'d [&'d str],
    /// The limits in force, which a new setting has until others are typed.
    pub limits: &'d [Limit],
}

/// A text with the place of the limit to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDraft {
    /// The text.
    pub toml: String,
    /// The bytes of the limit between its quotes.
    pub limit_at: Range<usize>,
}

/// Returns a text with an override for exactly this key, or with a limit of the rule. What the text has already stays as it
/// is, with its comments.
///
/// # Errors
/// A text that is no TOML, rules that are no tables, and a key with a digest.
pub fn draft_limit(toml: &str, subject: DraftSubject<'_>) -> Result<LimitDraft, String> {
    let mut document: DocumentMut = toml
        .parse()
        .map_err(|error: toml_edit::TomlError| format!("the text must be TOML, got a mistake: {}", error.message()))?;
    let keys = subject.key.map(|key| ExactKey::new(key, subject.templates)).transpose()?;
    let is_new = rule(document.as_table(), subject.rule).is_none();
    let settings = rule_mut(&mut document, subject.rule)?;
    match &keys {
        Some(key) => {
            let settings = override_mut(settings, key)?;
            add_limits(settings, subject.limits);
        }
        None => add_limits(settings, subject.limits),
    }
    if is_new && keys.is_some() {
        hide_header(&mut document, subject.rule);
    }
    let has_crlf = toml.contains("\r\n") && toml.matches('\n').count() == toml.matches("\r\n").count();
    let written = document.to_string();
    let toml = if has_crlf { written.replace('\n', "\r\n") } else { written };
    let limit_at = find_limit(&toml, subject.rule, keys.as_ref());
    limit_at.map(|limit_at| LimitDraft { toml, limit_at }).ok_or_else(not_a_table)
}

/// A key as overrides match it: by its parts, or as a whole.
struct ExactKey {
    encoded: String,
    /// The parts in the order of the key. Empty for a key without names for them.
    parts: Vec<(String, String)>,
}

impl ExactKey {
    fn new(key: &Key, templates: &[&str]) -> Result<Self, String> {
        let pieces = texts_and_parts(key).ok_or(
            "the key must be a text for an override, got a digest: write the override by the value of the customer",
        )?;
        let template = templates.iter().find(|template| fits(template, key) == Some(true));
        let names = template.map(|template| parts(template)).unwrap_or_default();
        let parts: Vec<_> =
            names.iter().map(|name| (*name).to_owned()).zip(pieces.into_iter().skip(1).step_by(2)).collect();
        // A value with a `*` or a backslash is a pattern, one with a `/` may be a network, and each part has one value.
        let is_text = |(name, value): &(String, String)| {
            !value.contains(['*', '\\', '/']) && names.iter().filter(|other| *other == name).count() == 1
        };
        let parts = if parts.iter().all(is_text) { parts } else { Vec::new() };
        Ok(Self { encoded: key.encoded(), parts })
    }

    /// Returns whether an override applies to exactly this key.
    fn is_of(&self, table: &dyn TableLike) -> bool {
        let own = || OverrideKeys::parts(self.parts.iter().map(|(name, value)| (name.clone(), vec![value.clone()])));
        match OverrideKeys::of(table) {
            Some(OverrideKeys::Key(key)) => key == self.encoded,
            Some(parts) => !self.parts.is_empty() && parts == own(),
            None => false,
        }
    }

    /// Returns whether an override of more keys would apply to this key in place of a later one.
    fn is_among(&self, table: &dyn TableLike) -> bool {
        let Some(OverrideKeys::Parts(others)) = OverrideKeys::of(table) else { return false };
        let has = |(name, values): &(String, Vec<String>)| {
            self.parts.iter().any(|(own, value)| own == name && values.contains(value))
        };
        !self.parts.is_empty() && others.len() == self.parts.len() && others.iter().all(has)
    }

    fn insert_into(&self, table: &mut dyn TableLike) {
        if self.parts.is_empty() {
            table.insert("key", toml_edit::value(&self.encoded));
            return;
        }
        let mut parts = InlineTable::new();
        for (name, value) in &self.parts {
            parts.insert(name, value.into());
        }
        table.insert("match", toml_edit::value(parts));
    }
}

fn rule<'t>(document: &'t Table, name: &str) -> Option<&'t dyn TableLike> {
    document.get("rules")?.as_table_like()?.get(name)?.as_table_like()
}

/// Returns a rule for a change. One that the text lacks is added below all others, and below the comments at the end.
fn rule_mut<'t>(document: &'t mut DocumentMut, name: &str) -> Result<&'t mut dyn TableLike, String> {
    let is_new = rule(document.as_table(), name).is_none();
    let end = last_position(document.as_table()) + 1;
    let is_empty = document.is_empty();
    let comments = document.trailing().as_str().unwrap_or_default().to_owned();
    let rules = document.entry("rules").or_insert_with(|| {
        let mut rules = Table::new();
        rules.set_implicit(true);
        Item::Table(rules)
    });
    let is_table = rules.is_table();
    let rules = rules.as_table_like_mut().ok_or_else(not_a_table)?;
    if is_new && is_table {
        let mut table = Table::new();
        table.set_position(Some(end));
        let separator = if is_empty && comments.is_empty() { "" } else { "\n" };
        table.decor_mut().set_prefix(format!("{comments}{separator}"));
        rules.insert(name, Item::Table(table));
        document.set_trailing("");
    } else if is_new {
        rules.insert(name, toml_edit::value(InlineTable::new()));
    }
    let rules = document.get_mut("rules").and_then(Item::as_table_like_mut).ok_or_else(not_a_table)?;
    rules.get_mut(name).and_then(Item::as_table_like_mut).ok_or_else(not_a_table)
}

/// Returns the last position of a table with a header.
fn last_position(table: &Table) -> isize {
    let of_table = |table: &Table| table.position().unwrap_or(0).max(last_position(table));
    let of_item = |(_, item): (&str, &Item)| match item {
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(of_table).max().unwrap_or(0),
        _ => 0,
    };
    table.iter().map(of_item).max().unwrap_or(0)
}

/// Returns the override of a key. A new one is before an override of more keys that has the key too, or else the last one.
fn override_mut<'t>(settings: &'t mut dyn TableLike, key: &ExactKey) -> Result<&'t mut dyn TableLike, String> {
    let all = overrides(settings);
    let found = all.iter().position(|table| key.is_of(*table));
    let at = found.or_else(|| all.iter().position(|table| key.is_among(*table))).unwrap_or(all.len());
    if settings.get(OVERRIDE).is_none() {
        settings.insert(OVERRIDE, Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let table: Option<&mut dyn TableLike> = match settings.get_mut(OVERRIDE) {
        Some(Item::ArrayOfTables(tables)) => {
            if found.is_none() {
                let mut table = Table::new();
                table.decor_mut().set_prefix("\n");
                table.set_position(tables.get(at).and_then(Table::position));
                key.insert_into(&mut table);
                tables.insert(at, table);
            }
            tables.get_mut(at).map(|table| table as _)
        }
        Some(Item::Value(Value::Array(tables))) => {
            if found.is_none() {
                let mut table = InlineTable::new();
                key.insert_into(&mut table);
                tables.insert(at, table);
            }
            tables.get_mut(at).and_then(Value::as_inline_table_mut).map(|table| table as _)
        }
        _ => None,
    };
    table.ok_or_else(not_a_table)
}

/// Adds limits to settings that have none. Without any known ones the text is to be typed.
fn add_limits(settings: &mut dyn TableLike, limits: &[Limit]) {
    if settings.get("limit").is_some() || settings.get("limits").is_some() {
        return;
    }
    // Limits of several algorithms need theirs, and otherwise they have that of the rule.
    let counted = || limits.iter().map(Limit::algorithm).filter(|algorithm| !is_in_text(*algorithm));
    let is_common = counted().all(|algorithm| Some(algorithm) == counted().next());
    let text = |limit: &Limit| -> Value {
        if is_common || is_in_text(limit.algorithm()) {
            return limit.to_string().into();
        }
        let mut table = InlineTable::new();
        table.insert("limit", limit.to_string().into());
        table.insert("algorithm", limit.algorithm().to_string().into());
        table.into()
    };
    match limits {
        [] => settings.insert("limit", toml_edit::value("")),
        [limit] => settings.insert("limit", toml_edit::value(text(limit))),
        limits => settings.insert("limits", toml_edit::value(limits.iter().map(text).collect::<Array>())),
    };
}

/// Returns whether the text of a limit has its algorithm.
fn is_in_text(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Concurrent | Algorithm::Calendar)
}

/// Leaves the header of a new rule out that has nothing but an override.
fn hide_header(document: &mut DocumentMut, name: &str) {
    let rule = document.get_mut("rules").and_then(|rules| rules.get_mut(name)).and_then(Item::as_table_mut);
    let Some(rule) = rule else { return };
    rule.set_implicit(true);
    let (prefix, position) = (rule.decor().prefix().cloned().unwrap_or_default(), rule.position());
    let tables = rule.get_mut(OVERRIDE).and_then(Item::as_array_of_tables_mut);
    if let Some(first) = tables.and_then(|tables| tables.get_mut(0)) {
        first.decor_mut().set_prefix(prefix);
        first.set_position(position);
    }
}

/// Returns the bytes of the first limit of the settings in a text.
fn find_limit(toml: &str, name: &str, key: Option<&ExactKey>) -> Option<Range<usize>> {
    let document = Document::parse(toml).ok()?;
    let rule = rule(document.as_table(), name)?;
    let settings = match key {
        Some(key) => overrides(rule).into_iter().find(|table| key.is_of(*table))?,
        None => rule,
    };
    let quoted = of_item(settings.get("limit").or_else(|| settings.get("limits"))?)?;
    let text = toml.get(quoted.clone())?;
    let quotes = if text.starts_with("\"\"\"") || text.starts_with("'''") { 3 } else { 1 };
    Some(quoted.start + quotes..quoted.end.checked_sub(quotes)?)
}

fn of_item(item: &Item) -> Option<Range<usize>> {
    match item {
        Item::Value(value) => of_value(value),
        Item::Table(table) => of_item(table.get("limit")?),
        Item::ArrayOfTables(tables) => of_item(tables.get(0)?.get("limit")?),
        Item::None => None,
    }
}

fn of_value(value: &Value) -> Option<Range<usize>> {
    match value {
        Value::String(text) => text.span(),
        Value::InlineTable(table) => of_value(table.get("limit")?),
        Value::Array(values) => of_value(values.get(0)?),
        _ => None,
    }
}

fn not_a_table() -> String {
    "the rules of the text must be tables with limits as texts, got another value: correct it first".to_owned()
}

#[cfg(test)]
mod tests;
