//! The values of a text, with the messages for those of another kind.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, config_error};
use crate::error::NamedValue;
use crate::rule::fields::{permits_problem, unknown_field_problem, wrong_value_problem};
use crate::rule::message_text::{cut, meant, quoted, wrong_name_problem};

/// A setting of a table: its name and its value, with their positions.
pub(super) struct TextEntry<'t> {
    pub(super) name: &'t str,
    name_at: usize,
    value: &'t Spanned<DeValue<'t>>,
}

/// Returns the settings of a table in the order of the text.
pub(super) fn entries<'t>(table: &'t DeTable<'t>) -> Vec<TextEntry<'t>> {
    let mut entries: Vec<_> = table
        .iter()
        .map(|(name, value)| TextEntry { name: name.get_ref(), name_at: name.span().start, value })
        .collect();
    entries.sort_by_key(|entry| entry.name_at);
    entries
}

impl<'t> TextEntry<'t> {
    pub(super) fn at(&self) -> usize {
        self.value.span().start
    }

    pub(super) fn name_at(&self) -> usize {
        self.name_at
    }

    pub(super) fn value(&self) -> &'t DeValue<'t> {
        self.value.get_ref()
    }

    /// Returns the mistake of a name that is none of `known`, with a suggestion.
    pub(super) fn unknown(&self, bound: &str, known: &[&'static str]) -> Mistake {
        let problem = if self.value().is_table() && meant(self.name, known).is_none() {
            let name = cut(self.name);
            format!(
                "`{name}` must be {bound}, got an unknown name: write a rule's name with dots in quotes, as in \
                 `[rules.\"a.b\"]`, or remove it"
            )
        } else {
            unknown_field_problem(self.name, bound, known)
        };
        config_error(problem, self.name_at)
    }

    /// Returns the mistake of a value outside of its bound. `fix` is what to write.
    pub(super) fn wrong(&self, bound: &str, fix: &str) -> Mistake {
        config_error(wrong_value_problem(self.name, bound, &describe(self.value()), fix), self.at())
    }

    /// Returns the mistake of a part of a key. The message does not show the value, which may be personal data.
    pub(super) fn wrong_key(&self, bound: &str, fix: &str) -> Mistake {
        config_error(wrong_value_problem(self.name, bound, kind(self.value()), fix), self.at())
    }
}

/// Returns a table, as behind `[name]`.
pub(super) fn table<'t>(entry: &TextEntry<'t>) -> Result<&'t DeTable<'t>, Mistake> {
    let fix = || format!("it as `[{}]`, with a setting in each line below", cut(entry.name));
    entry.value().as_table().ok_or_else(|| entry.wrong("a table", &fix()))
}

/// Returns the tables of a list, as behind `[[name]]`, with their positions.
pub(super) fn list_tables<'t>(entry: &TextEntry<'t>) -> Result<Vec<(&'t DeTable<'t>, usize)>, Mistake> {
    let mistake = || entry.wrong("a list of tables", &format!("`[[rules.name.{}]]` before each", entry.name));
    let values = entry.value().as_array().ok_or_else(mistake)?;
    let table = |value: &'t Spanned<DeValue<'t>>| Some((value.get_ref().as_table()?, value.span().start));
    values.iter().map(|value| table(value).ok_or_else(mistake)).collect()
}

pub(super) fn flag(entry: &TextEntry<'_>) -> Result<bool, Mistake> {
    entry.value().as_bool().ok_or_else(|| entry.wrong("`true` or `false`", "it without quotes"))
}

/// Returns a text. `example` is one in the message.
pub(super) fn text<'t>(entry: &TextEntry<'t>, example: &str) -> Result<&'t str, Mistake> {
    match entry.value() {
        DeValue::String(text) => Ok(text),
        _ => Err(entry.wrong("a text in quotes", &format!("one such as `{example}`"))),
    }
}

/// Returns a number of permits, 1 to `u32::MAX`.
pub(super) fn permits(entry: &TextEntry<'_>) -> Result<u32, Mistake> {
    let number =
        entry.value().as_integer().and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| config_error(permits_problem(entry.name, &describe(entry.value())), entry.at()))
}

/// Returns the value that a name stands for.
pub(super) fn word<T: NamedValue>(entry: &TextEntry<'_>) -> Result<T, Mistake> {
    let text = entry.value().as_str();
    text.and_then(T::named)
        .ok_or_else(|| config_error(wrong_name_problem::<T>(&describe(entry.value()), text), entry.at()))
}

/// Describes a value in a message: a scalar as written, or the kind of a composed value.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => format!("`{}`", cut(&number.to_string())),
        DeValue::Float(number) => format!("`{}`", cut(number.as_str())),
        DeValue::Boolean(flag) => format!("`{flag}`"),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => kind(value).to_owned(),
    }
}

/// The kind of a value.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a flag",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
