//! The plans of customers in a text: their tables, and the names that rules have of them.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::rule_reader::{RuleReader, TextEntry, entries, table};
use super::{Mistake, TextLines, config_error};
use crate::Rule;
use crate::rule::customer_plan::{PlanTables, names_problem, unknown_name_problem};
use crate::rule::format::FieldNames;

/// What to write instead of another value.
const FIX: &str = "one such as `[\"free\", \"pro\"]`";

/// Reads `[plans.name]`.
pub(super) fn plan(plan: &TextEntry<'_>, lines: &TextLines<'_>) -> Result<Rule, Mistake> {
    let mut reader = RuleReader::default();
    for entry in entries(table(plan)?) {
        if !reader.read(&entry)? {
            return Err(entry.unknown(&FieldNames::of_plan()));
        }
    }
    let mut read = reader.finish()?;
    read.check_as_plan(plan.name).map_err(|error| Mistake::new(error.to_string(), plan.name_at()))?;
    read.place = lines.place(plan.name_at());
    Ok(read)
}

/// Reads the plans that a rule names.
pub(super) fn plan_names(entry: &TextEntry<'_>) -> Result<Vec<String>, Mistake> {
    let names = written_names(entry)?;
    let texts: Vec<_> = names.iter().map(|(name, _)| (*name).to_owned()).collect();
    match names_problem(&texts, "") {
        None => Ok(texts),
        Some((index, problem)) => {
            let at = index.and_then(|index| names.get(index)).map_or(entry.at(), |(_, at)| *at);
            Err(config_error(problem, at))
        }
    }
}

/// Returns the names in a list, with their positions.
fn written_names<'t>(entry: &TextEntry<'t>) -> Result<Vec<(&'t str, usize)>, Mistake> {
    let wrong = || entry.wrong("a list of the names of plans", FIX);
    let values = entry.value().as_array().ok_or_else(wrong)?;
    let name = |value: &'t Spanned<DeValue<'t>>| Some((value.get_ref().as_str()?, value.span().start));
    values.iter().map(|value| name(value).ok_or_else(wrong)).collect()
}

/// Checks that the text has a table for each plan that a rule names. The rules were read before.
///
/// # Errors
/// The first name without a table.
pub(super) fn check_names(document: &DeTable<'_>, tables: &PlanTables) -> Result<(), Mistake> {
    let rules = entries(document).into_iter().filter(|entry| entry.name == "rules");
    let rules = rules.filter_map(|entry| entry.value().as_table()).flat_map(entries);
    let settings = rules.filter_map(|rule| rule.value().as_table()).flat_map(entries);
    for plans in settings.filter(|setting| setting.name == "plans") {
        if let Some((name, at)) = written_names(&plans)?.into_iter().find(|(name, _)| !tables.contains_key(*name)) {
            return Err(config_error(unknown_name_problem(name, tables), at));
        }
    }
    Ok(())
}
