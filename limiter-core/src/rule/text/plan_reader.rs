//! The tables of the plans of customers in a text.

use toml::de::DeTable;

use super::rule_reader::{RuleReader, TextEntry, entries, table, written_plan_names};
use super::{Mistake, TextLines, config_error};
use crate::Rule;
use crate::rule::customer_plan::{PlanTables, unknown_name_problem};
use crate::rule::format::FieldNames;

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

/// Checks that the text has a table for each plan that a rule names. The rules were read before.
///
/// # Errors
/// The first name without a table.
pub(super) fn check_names(document: &DeTable<'_>, tables: &PlanTables) -> Result<(), Mistake> {
    let rules = entries(document).into_iter().filter(|entry| entry.name == "rules");
    let rules = rules.filter_map(|entry| entry.value().as_table()).flat_map(entries);
    let settings = rules.filter_map(|rule| rule.value().as_table()).flat_map(entries);
    for plans in settings.filter(|setting| setting.name == "plans") {
        if let Some((name, at)) = written_plan_names(&plans)?.into_iter().find(|(name, _)| !tables.contains_key(*name))
        {
            return Err(config_error(unknown_name_problem(name, tables), at));
        }
    }
    Ok(())
}
