//! The settings that a rule and its overrides have in a text.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use limiter_syntax::{BlockText, nearest, parse_factor, parse_window};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Mistake, config_error};
use crate::block;
use crate::rule::customer_plan::names_problem;
use crate::rule::format::{
    FLAG, FLAG_FIX, FieldNames, Found, MAX_OVERRIDES, both_limits_problem, both_matches_problem, burst_problem,
    empty_match_problem, equal_match_problem, field, limit_of_parts, no_limits_problem, no_match_problem,
    of_windows_problem, parse_limit, too_many_limits_problem, too_many_overrides_problem, wrong_value_problem,
    zset_problem,
};
use crate::rule::message_text::cut;
use crate::rule::override_index::{value_problem, values_problem};
use crate::rule::packed_problem;
use crate::rule::text::TextLines;
use crate::rule::{Contradiction, MAX_LIMITS};
use crate::{Block, Key, KeyMatch, Limit, Rule};

/// The settings of a rule that were read, with the positions of their values.
#[derive(Default)]
pub(super) struct RuleReader {
    pub(super) rule: Rule,
    positions: BTreeMap<String, usize>,
}

impl RuleReader {
    /// Reads one of the settings that rules and overrides have. Returns whether it is one.
    pub(super) fn read(&mut self, entry: &TextEntry<'_>) -> Result<bool, Mistake> {
        let rule = &mut self.rule;
        match entry.name {
            "limit" | "limits" if !rule.limits.is_empty() => {
                return Err(config_error(both_limits_problem(), entry.name_at()));
            }
            "limit" => rule.limits = vec![limit(entry.value(), entry.at())?],
            "limits" => rule.limits = limits(entry)?,
            "block" if entry.value().is_table() => rule.call.block = Some(block_of_parts(entry)?),
            name => match field(name) {
                Some(field) => {
                    field.read(rule, &found(entry.value())).map_err(|problem| config_error(problem, entry.at()))?;
                }
                None => return Ok(false),
            },
        }
        self.positions.insert(entry.name.to_owned(), entry.at());
        Ok(true)
    }

    /// Returns the rule unless its settings contradict each other.
    pub(super) fn finish(self) -> Result<Rule, Mistake> {
        let Self { rule, positions } = self;
        let at = |field| positions.get(field).copied().unwrap_or(0);
        let mistake = match rule.contradiction() {
            None => return Ok(rule),
            Some(Contradiction::PackedWith(conflict)) => config_error(packed_problem(conflict), at("packed")),
            Some(Contradiction::ZsetOfLimits(count)) => config_error(
                format!("`limits` must have one limit with `layout = \"zset\"`, got {count}: remove the others"),
                at("limits"),
            ),
            Some(Contradiction::ZsetOf(algorithm)) => config_error(zset_problem(algorithm), at("layout")),
            Some(Contradiction::BurstOf(algorithm, burst)) => {
                config_error(burst_problem(algorithm, burst), at("burst"))
            }
            Some(Contradiction::OfWindows(setting, limit)) => {
                config_error(of_windows_problem(setting, limit), at(setting))
            }
            Some(Contradiction::WholeAlgorithm(_)) => return Ok(rule), // No text has it.
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

/// Reads the table of a block.
fn block_of_parts(entry: &TextEntry<'_>) -> Result<Block, Mistake> {
    let fix = "a block such as `{ time = \"1min\", factor = 2, most = \"1d\" }`";
    let (mut time, mut factor, mut most, mut is_extended) = (None, None, None, false);
    for part in table(entry).map(entries)? {
        let millis = || {
            let millis = part.value().as_str().and_then(|text| parse_window(text).ok());
            millis.ok_or_else(|| part.wrong("a duration from 1 ms to 366 days, in quotes", "one such as `\"10min\"`"))
        };
        match part.name {
            "time" => time = Some(millis()?),
            "most" => most = Some(millis()?),
            "factor" => {
                let text = found(part.value()).to_string();
                let number = parse_factor(text.trim_matches('`'));
                let wrong =
                    || part.wrong("a number from 1 to 1000 with at most three decimals", "one such as `2` or `1.5`");
                factor = Some(number.ok_or_else(wrong)?);
            }
            "extend" => is_extended = flag(&part)?,
            _ => return Err(part.unknown(&FieldNames::of_block())),
        }
    }
    let mistake = |problem: String| config_error(problem, entry.at());
    let time =
        time.ok_or_else(|| mistake(format!("`block` must have a `time`, got a table without one: write {fix}")))?;
    let text = BlockText::from_parts(time, factor, most, is_extended);
    text.map(Block::of_text).map_err(|problem| mistake(block::problem_text(problem, "other parts")))
}

/// Reads a limit: a text such as `5/10s`, or a table of this text with an algorithm, a burst and a layout of its own.
fn limit(value: &DeValue<'_>, at: usize) -> Result<Limit, Mistake> {
    match value {
        DeValue::String(text) => limit_from_text(text, at),
        DeValue::Table(table) => limit_from_table(table, at),
        _ => {
            let found = found(value);
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
    let mut parts = RuleReader::default();
    for entry in entries(table) {
        match entry.name {
            "limit" => {
                let text = text(&entry, "limit = \"5/10s\"")?;
                parts.rule.limits = vec![limit_from_text(text, entry.at())?];
            }
            name if field(name).is_some_and(|field| field.is_of_limit()) => drop(parts.read(&entry)?),
            _ => return Err(entry.unknown(&FieldNames::of_limit())),
        }
    }
    limit_of_parts(&parts.rule).map_err(|(field, problem)| {
        let field_at = field.and_then(|field| parts.positions.get(field));
        Mistake::new(problem, field_at.copied().unwrap_or(at))
    })
}

// The values of a text, with the messages for those of another kind.

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
    pub(super) fn unknown(&self, known: &FieldNames) -> Mistake {
        let FieldNames { kind, names } = known;
        let problem = if self.value().is_table() && nearest(self.name, names.iter().copied()).is_none() {
            let name = cut(self.name);
            format!(
                "`{name}` must be {kind}, got an unknown name: write a rule's name with dots in quotes, as in \
                 `[rules.\"a.b\"]`, or remove it"
            )
        } else {
            known.unknown_problem(self.name)
        };
        config_error(problem, self.name_at)
    }

    /// Returns the mistake of a value outside of its bound. `fix` is what to write.
    pub(super) fn wrong(&self, bound: &str, fix: &str) -> Mistake {
        config_error(wrong_value_problem(self.name, bound, &found(self.value()).to_string(), fix), self.at())
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
    entry.value().as_bool().ok_or_else(|| entry.wrong(FLAG, FLAG_FIX))
}

/// Returns a text. `example` is one in the message.
pub(super) fn text<'t>(entry: &TextEntry<'t>, example: &str) -> Result<&'t str, Mistake> {
    match entry.value() {
        DeValue::String(text) => Ok(text),
        _ => Err(entry.wrong("a text in quotes", &format!("one such as `{example}`"))),
    }
}

/// Returns a value as the description of fields reads it.
fn found<'t>(value: &'t DeValue<'t>) -> Found<'t> {
    match value {
        DeValue::String(text) => Found::Text(text),
        DeValue::Integer(number) => {
            let value = u32::from_str_radix(number.as_str(), number.radix()).ok();
            Found::Number(Cow::Owned(number.to_string()), value)
        }
        DeValue::Float(number) => Found::Number(Cow::Borrowed(number.as_str()), None),
        DeValue::Boolean(flag) => Found::Flag(*flag),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => Found::Other(kind(value)),
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

// The overrides of a rule in a text.

/// Reads the overrides of a text, and counts them.
pub(super) struct OverrideReader<'l> {
    lines: &'l TextLines<'l>,
    count: usize,
}

impl<'l> OverrideReader<'l> {
    pub(super) fn new(lines: &'l TextLines<'l>) -> Self {
        Self { lines, count: 0 }
    }

    pub(super) fn lines(&self) -> &TextLines<'l> {
        self.lines
    }

    /// Reads `[[rules.name.override]]`, all of them.
    #[expect(clippy::mutable_key_type, reason = "the caches of a key are in no hash and no comparison")]
    pub(super) fn read(&mut self, entry: &TextEntry<'_>) -> Result<Vec<(KeyMatch, Rule)>, Mistake> {
        let mut overrides = Vec::new();
        let mut seen = HashMap::new();
        for (fields, at) in list_tables(entry)? {
            self.count += 1;
            if self.count > MAX_OVERRIDES {
                return Err(config_error(too_many_overrides_problem(), at));
            }
            let mut reader = RuleReader::default();
            let mut keys = None;
            for entry in entries(fields) {
                match entry.name {
                    "match" | "key" if keys.is_some() => {
                        return Err(config_error(both_matches_problem(), entry.name_at()));
                    }
                    "match" => keys = Some((matched_parts(&entry)?, entry.at())),
                    "key" => keys = Some((matched_key(&entry)?, entry.at())),
                    _ if reader.read(&entry)? => {}
                    _ => return Err(entry.unknown(&FieldNames::of_override())),
                }
            }
            let Some((keys, keys_at)) = keys else { return Err(config_error(no_match_problem(), at)) };
            if let Some(earlier) = seen.insert(keys.clone(), keys_at) {
                let line = self.lines.place(earlier).line();
                return Err(config_error(equal_match_problem(format_args!("line {line}")), keys_at));
            }
            let mut rule = reader.finish()?;
            rule.place = self.lines.place(keys_at);
            overrides.push((keys, rule));
        }
        Ok(overrides)
    }
}

fn matched_parts(entry: &TextEntry<'_>) -> Result<KeyMatch, Mistake> {
    let table = entry.value().as_table();
    let table = table.ok_or_else(|| entry.wrong_key("a table", "one such as `match = { user_id = \"42\" }`"))?;
    let parts = entries(table).into_iter().map(|part| Ok((part.name, matched_values(&part)?)));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Err(config_error(empty_match_problem(), entry.at()));
    }
    Ok(KeyMatch::any_of(parts))
}

/// Reads the values of a part: one, or a list.
fn matched_values(part: &TextEntry<'_>) -> Result<Vec<String>, Mistake> {
    let value = |value: &Spanned<DeValue<'_>>| {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            other => {
                let fix = format!("one such as `{} = \"42\"`", cut(part.name));
                let problem = wrong_value_problem(part.name, "a text in quotes", kind(other), &fix);
                return Err(config_error(problem, value.span().start));
            }
        };
        match value_problem(part.name, &text) {
            None => Ok(text),
            Some(problem) => Err(config_error(problem, value.span().start)),
        }
    };
    let Some(list) = part.value().as_array() else { return Ok(vec![value(part.value)?]) };
    let values = list.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    match values_problem(part.name, &values) {
        None => Ok(values),
        Some(problem) => Err(config_error(problem, part.at())),
    }
}

fn matched_key(entry: &TextEntry<'_>) -> Result<KeyMatch, Mistake> {
    let encoded = entry.value().as_str();
    let encoded = encoded.ok_or_else(|| entry.wrong_key("a text in quotes", "one such as `key = \"user:@42\"`"))?;
    let key = Key::from_encoded(encoded).map_err(|error| Mistake::new(error.to_string(), entry.at()))?;
    Ok(KeyMatch::key(&key))
}

// The rules and the defaults in a text.

/// Reads `[defaults]`.
pub(super) fn defaults(table: &DeTable<'_>) -> Result<Rule, Mistake> {
    let mut reader = RuleReader::default();
    for entry in entries(table) {
        let is_default = field(entry.name).is_some_and(|field| field.is_of_all_rules());
        if !is_default || !reader.read(&entry)? {
            return Err(entry.unknown(&FieldNames::of_defaults()));
        }
    }
    reader.finish()
}

/// Reads the plans that a rule names.
fn plan_names(entry: &TextEntry<'_>) -> Result<Vec<String>, Mistake> {
    let names = written_plan_names(entry)?;
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
pub(super) fn written_plan_names<'t>(entry: &TextEntry<'t>) -> Result<Vec<(&'t str, usize)>, Mistake> {
    const FIX: &str = "one such as `[\"free\", \"pro\"]`";
    let wrong = || entry.wrong("a list of the names of plans", FIX);
    let values = entry.value().as_array().ok_or_else(wrong)?;
    let name = |value: &'t Spanned<DeValue<'t>>| Some((value.get_ref().as_str()?, value.span().start));
    values.iter().map(|value| name(value).ok_or_else(wrong)).collect()
}

/// Reads `[rules.name]`.
pub(super) fn rule(rule: &TextEntry<'_>, overrides: &mut OverrideReader<'_>) -> Result<Rule, Mistake> {
    if rule.name.is_empty() {
        let problem = "`rules` must have a name for each rule, got an empty text: write the attribute's `name`, or its key \
                       as written there";
        return Err(config_error(problem, rule.name_at()));
    }
    let mut reader = RuleReader::default();
    for entry in entries(table(rule)?) {
        match entry.name {
            "key" => reader.rule.key = Some(text(&entry, "key = \"user:{user_id}\"")?.to_owned()),
            "override" => reader.rule.overrides = overrides.read(&entry)?,
            "plans" => reader.rule.plans = Some(plan_names(&entry)?),
            _ if reader.read(&entry)? => {}
            _ => return Err(entry.unknown(&FieldNames::of_rule())),
        }
    }
    let mut read = reader.finish()?;
    read.check("the rule").map_err(|error| Mistake::new(error.to_string(), rule.name_at()))?;
    read.place = overrides.lines().place(rule.name_at());
    Ok(read)
}
