//! The settings that a rule and its overrides have in a text.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::mistake::{Mistake, config_error};
use super::value::{TextEntry, describe, entries, permits, text, word};
use crate::limit::parse_millis;
use crate::named_value::NamedValue;
use crate::rule::is_valid_deadline;
use crate::rule::message_text::cut;
use crate::{Algorithm, Layout, Limit, Rule};

const LIMIT_FIELDS: [&str; 4] = ["limit", "algorithm", "burst", "layout"];

/// The longest text of a limit that is parsed.
const MAX_LIMIT_BYTES: usize = 200;

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
                let problem = "`limit` must be left out with `limits`, got both: remove one of them";
                return Err(config_error(problem, entry.name_at()));
            }
            "limit" => rule.limits = vec![limit(entry.value(), entry.at())?],
            "limits" => rule.limits = limits(entry)?,
            "algorithm" => rule.algorithm = Some(word(entry)?),
            "burst" => rule.burst = Some(permits(entry)?),
            "layout" => rule.layout = Some(word(entry)?),
            "mode" => rule.mode = Some(word(entry)?),
            "on_error" => rule.on_error = Some(word(entry)?),
            _ => rule.deadline = Some(deadline(entry)?),
        }
        self.positions.insert(entry.name.to_owned(), entry.at());
        Ok(())
    }

    /// Returns the rule unless its settings contradict each other.
    pub(super) fn finish(self) -> Result<Rule, Mistake> {
        let Self { rule, positions } = self;
        let at = |field| positions.get(field).copied().unwrap_or(0);
        let Rule { limits, algorithm, burst, layout, .. } = &rule;
        let known = |limit: &Limit| algorithm.unwrap_or(limit.algorithm());
        if *layout == Some(Layout::Zset) {
            if limits.len() > 1 {
                let count = limits.len();
                let problem =
                    format!("`limits` must have one limit with `layout = \"zset\"`, got {count}: remove the others");
                return Err(config_error(problem, at("limits")));
            }
            let mut algorithms = limits.iter().map(known).chain(*algorithm);
            if let Some(algorithm) = algorithms.find(|algorithm| *algorithm != Algorithm::SlidingWindow) {
                return Err(layout_mistake(algorithm, at("layout")));
            }
        }
        let has_burst = |algorithm: &Algorithm| {
            algorithm.has_burst() || (rule.algorithm.is_none() && *algorithm == Algorithm::default())
        };
        let mut algorithms = limits.iter().map(known).chain(*algorithm);
        match (burst, algorithms.find(|algorithm| !has_burst(algorithm))) {
            (Some(burst), Some(algorithm)) => Err(burst_mistake(algorithm, *burst, at("burst"))),
            _ => Ok(rule),
        }
    }
}

fn limits(entry: &TextEntry<'_>) -> Result<Vec<Limit>, Mistake> {
    const FIX: &str = "one such as `[\"5/s\", \"100/min\"]`";
    let Some(values) = entry.value().as_array() else { return Err(entry.wrong("a list of limits", FIX)) };
    if values.is_empty() {
        let problem = "`limits` must have at least one limit, got an empty list: write one such as `[\"5/s\", \"100/min\"]`, \
                       or remove it for the attribute's";
        return Err(config_error(problem, entry.at()));
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
    if text.len() > MAX_LIMIT_BYTES || text.contains(char::is_control) {
        let found = cut(text);
        let problem =
            format!("`limit` must be `permits/window`, got `{found}`: write one such as `\"5/10s\"` or `\"100/min\"`");
        return Err(config_error(problem, at));
    }
    text.parse().map_err(|error: crate::Error| Mistake::new(error.to_string(), at))
}

fn limit_from_table(table: &DeTable<'_>, at: usize) -> Result<Limit, Mistake> {
    let (mut limit, mut algorithm, mut burst, mut layout) = (None, Algorithm::default(), None, None);
    for entry in entries(table) {
        match entry.name {
            "limit" => limit = Some(limit_from_text(text(&entry, "limit = \"5/10s\"")?, entry.at())?),
            "algorithm" => algorithm = word(&entry)?,
            "burst" => burst = Some((permits(&entry)?, entry.at())),
            "layout" => layout = Some((word(&entry)?, entry.at())),
            _ => return Err(entry.unknown("a part of a limit", &LIMIT_FIELDS)),
        }
    }
    let Some(limit) = limit else {
        let problem = "`limit` must be in the table of a limit, got none: write one such as `{ limit = \"5/10s\" }`";
        return Err(config_error(problem, at));
    };
    let mut limit: Limit = Limit::with_algorithm(limit, algorithm);
    if let Some((burst, at)) = burst {
        limit = limit.with_burst(burst).map_err(|_| burst_mistake(algorithm, burst, at))?;
    }
    if let Some((layout, at)) = layout {
        limit = limit.with_layout(layout).map_err(|_| layout_mistake(algorithm, at))?;
    }
    Ok(limit)
}

fn deadline(entry: &TextEntry<'_>) -> Result<Duration, Mistake> {
    const FIX: &str = "one such as `\"50ms\"` or `\"2s\"`";
    let millis = entry.value().as_str().and_then(parse_millis);
    let deadline = millis.map(Duration::from_millis).filter(|deadline| is_valid_deadline(*deadline));
    deadline.ok_or_else(|| entry.wrong("a duration from 1 ms to 60 s, in quotes", FIX))
}

fn burst_mistake(algorithm: Algorithm, burst: u32, at: usize) -> Mistake {
    let algorithm = algorithm.name();
    let problem = format!(
        "`burst` must be left out for `{algorithm}`, got {burst}: write `algorithm = \"token_bucket\"` or \
         `\"leaky_bucket\"`, or remove it"
    );
    config_error(problem, at)
}

fn layout_mistake(algorithm: Algorithm, at: usize) -> Mistake {
    let algorithm = algorithm.name();
    let problem = format!(
        "`layout` must be `compact` for `{algorithm}`, got `zset`: write `algorithm = \"sliding_window\"`, or remove it"
    );
    config_error(problem, at)
}
