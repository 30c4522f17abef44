//! The settings that a rule and its overrides have in a text.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, config_error};
use super::value::{TextEntry, describe, entries, flag, permits, text, word};
use crate::rule::fields::{
    LIMIT_FIELD, LIMIT_FIELDS, LimitParts, both_limits_problem, burst_problem, deadline_text_problem,
    no_limits_problem, parse_deadline, parse_limit, too_many_limits_problem, zset_problem,
};
use crate::rule::{Contradiction, HAS_LEASES, MAX_LIMITS, leases_problem};
use crate::{Limit, Rule};

/// The settings of a rule that were read, with the positions of their values.
#[derive(Default)]
pub(super) struct RuleReader {
    pub(super) rule: Rule,
    positions: BTreeMap<String, usize>,
}

impl RuleReader {
    /// Reads one of the settings that rules and overrides have, by its name.
    pub(super) fn read(&mut self, entry: &TextEntry<'_>) -> Result<(), Mistake> {
        let rule = &mut self.rule;
        match entry.name {
            "limit" | "limits" if !rule.limits.is_empty() => {
                return Err(config_error(both_limits_problem(), entry.name_at()));
            }
            "limit" => rule.limits = vec![limit(entry.value(), entry.at())?],
            "limits" => rule.limits = limits(entry)?,
            "algorithm" => rule.algorithm = Some(word(entry)?),
            "burst" => rule.burst = Some(permits(entry)?),
            "layout" => rule.layout = Some(word(entry)?),
            "mode" => rule.mode = Some(word(entry)?),
            "on_error" => rule.on_error = Some(word(entry)?),
            "leases" => rule.leases = Some(leases(entry)?),
            _ => rule.deadline = Some(deadline(entry)?),
        }
        self.positions.insert(entry.name.to_owned(), entry.at());
        Ok(())
    }

    /// Returns the rule unless its settings contradict each other.
    pub(super) fn finish(self) -> Result<Rule, Mistake> {
        let Self { rule, positions } = self;
        let at = |field| positions.get(field).copied().unwrap_or(0);
        let mistake = match rule.contradiction() {
            None => return Ok(rule),
            Some(Contradiction::ZsetOfLimits(count)) => config_error(
                format!("`limits` must have one limit with `layout = \"zset\"`, got {count}: remove the others"),
                at("limits"),
            ),
            Some(Contradiction::ZsetOf(algorithm)) => config_error(zset_problem(algorithm), at("layout")),
            Some(Contradiction::BurstOf(algorithm, burst)) => {
                config_error(burst_problem(algorithm, burst), at("burst"))
            }
        };
        Err(mistake)
    }
}

fn limits(entry: &TextEntry<'_>) -> Result<Vec<Limit>, Mistake> {
    const FIX: &str = "one such as `[\"5/s\", \"100/min\"]`";
    let Some(values) = entry.value().as_array() else { return Err(entry.wrong("a list of limits", FIX)) };
    if values.is_empty() {
        return Err(config_error(no_limits_problem(), entry.at()));
    }
    if values.len() > MAX_LIMITS {
        return Err(config_error(too_many_limits_problem(values.len()), entry.at()));
    }
    values.iter().map(|value| limit(value.get_ref(), value.span().start)).collect()
}

/// Reads a limit: a text such as `5/10s`, or a table of this text with an algorithm, a burst and a layout of its own.
fn limit(value: &DeValue<'_>, at: usize) -> Result<Limit, Mistake> {
    match value {
        DeValue::String(text) => limit_from_text(text, at),
        DeValue::Table(table) => limit_from_table(table, at),
        _ => {
            let found = describe(value);
            let problem = format!(
                "`limit` must be `permits/window` in quotes, got {found}: write one such as `\"5/10s\"` or `\"100/min\"`"
            );
            Err(config_error(problem, at))
        }
    }
}

fn limit_from_text(text: &str, at: usize) -> Result<Limit, Mistake> {
    parse_limit(text).map_err(|error| Mistake::new(error.to_string(), at))
}

fn limit_from_table(table: &DeTable<'_>, at: usize) -> Result<Limit, Mistake> {
    let mut parts = LimitParts::default();
    let mut positions = BTreeMap::new();
    for entry in entries(table) {
        match entry.name {
            "limit" => parts.limit = Some(limit_from_text(text(&entry, "limit = \"5/10s\"")?, entry.at())?),
            "algorithm" => parts.algorithm = Some(word(&entry)?),
            "burst" => parts.burst = Some(permits(&entry)?),
            "layout" => parts.layout = Some(word(&entry)?),
            _ => return Err(entry.unknown(LIMIT_FIELD, &LIMIT_FIELDS)),
        }
        positions.insert(entry.name, entry.at());
    }
    parts.build().map_err(|(field, problem)| {
        let field_at = field.and_then(|field| positions.get(field));
        Mistake::new(problem, field_at.copied().unwrap_or(at))
    })
}

fn leases(entry: &TextEntry<'_>) -> Result<bool, Mistake> {
    match flag(entry)? {
        true if !HAS_LEASES => Err(config_error(leases_problem("`leases`"), entry.at())),
        leases => Ok(leases),
    }
}

fn deadline(entry: &TextEntry<'_>) -> Result<Duration, Mistake> {
    entry
        .value()
        .as_str()
        .and_then(parse_deadline)
        .ok_or_else(|| config_error(deadline_text_problem(entry.name, &describe(entry.value())), entry.at()))
}
