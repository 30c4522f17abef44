//! The fields of a rule in a text of rules and in the formats of serde: their names, their bounds and the messages.

use std::fmt::Display;
use std::time::Duration;

use crate::error::NamedValue;
use crate::limit::parse_millis;
use crate::rule::message_text::{cut, list, meant};
use crate::rule::{MAX_LIMITS, is_valid_deadline};
use crate::{Algorithm, Error, ErrorKind, Layout, Limit};

/// The fields of a limit that is more than a text.
pub(crate) const LIMIT_FIELDS: [&str; 4] = ["limit", "algorithm", "burst", "layout"];
pub(crate) const RULE_FIELDS: [&str; 11] =
    ["limit", "limits", "algorithm", "burst", "layout", "mode", "on_error", "deadline", "leases", "key", "override"];
pub(crate) const OVERRIDE_FIELDS: [&str; 11] =
    ["match", "key", "limit", "limits", "algorithm", "burst", "layout", "mode", "on_error", "deadline", "leases"];

/// The kinds of fields, in the messages for unknown ones.
pub(crate) const LIMIT_FIELD: &str = "a part of a limit";
pub(crate) const RULE_FIELD: &str = "a setting of a rule";
pub(crate) const OVERRIDE_FIELD: &str = "a setting of an override";

/// The most overrides of a text or of a rule.
pub(crate) const MAX_OVERRIDES: usize = 100_000;

/// The parts of a limit that is more than a text.
#[derive(Default)]
pub(crate) struct LimitParts {
    pub(crate) limit: Option<Limit>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) burst: Option<u32>,
    pub(crate) layout: Option<Layout>,
}

impl LimitParts {
    /// Returns the limit of these parts.
    ///
    /// # Errors
    /// The message, with the field of the culprit if there is one.
    pub(crate) fn build(self) -> Result<Limit, (Option<&'static str>, String)> {
        let Self { limit, algorithm, burst, layout } = self;
        let algorithm = algorithm.unwrap_or_default();
        let mut limit = limit.ok_or_else(|| (None, no_limit_problem()))?.with_algorithm(algorithm);
        if let Some(burst) = burst {
            limit = limit.with_burst(burst).map_err(|_| (Some("burst"), burst_problem(algorithm, burst)))?;
        }
        if let Some(layout) = layout {
            limit = limit.with_layout(layout).map_err(|_| (Some("layout"), zset_problem(algorithm)))?;
        }
        Ok(limit)
    }
}

/// Parses a text such as `5/10s`.
///
/// # Errors
/// [`ErrorKind::InvalidLimit`], with the beginning of a long text.
pub(crate) fn parse_limit(text: &str) -> Result<Limit, Error> {
    const MAX_BYTES: usize = 200;
    if text.len() > MAX_BYTES || text.contains(char::is_control) {
        return Err(Error::new(ErrorKind::InvalidLimit, limit_text_problem(text)));
    }
    text.parse()
}

/// Parses the text of a deadline. `None` for one out of its range.
pub(crate) fn parse_deadline(text: &str) -> Option<Duration> {
    parse_millis(text).map(Duration::from_millis).filter(|deadline| is_valid_deadline(*deadline))
}

fn limit_text_problem(text: &str) -> String {
    let found = cut(text);
    format!("`limit` must be `permits/window`, got `{found}`: write one such as `\"5/10s\"` or `\"100/min\"`")
}

fn no_limit_problem() -> String {
    "`limit` must be in the table of a limit, got none: write one such as `{ limit = \"5/10s\" }`".to_owned()
}

pub(crate) fn both_limits_problem() -> String {
    "`limit` must be left out with `limits`, got both: remove one of them".to_owned()
}

pub(crate) fn no_limits_problem() -> String {
    "`limits` must have at least one limit, got an empty list: write one such as `[\"5/s\", \"100/min\"]`, or remove it \
     for the attribute's"
        .to_owned()
}

pub(crate) fn too_many_limits_problem(count: usize) -> String {
    format!("`limits` must have at most {MAX_LIMITS} limits, got {count}: remove the others")
}

pub(crate) fn burst_problem(algorithm: Algorithm, burst: u32) -> String {
    let algorithm = algorithm.name();
    format!(
        "`burst` must be left out for `{algorithm}`, got {burst}: write `algorithm = \"token_bucket\"` or \
         `\"leaky_bucket\"`, or remove it"
    )
}

pub(crate) fn zset_problem(algorithm: Algorithm) -> String {
    let algorithm = algorithm.name();
    format!(
        "`layout` must be `compact` for `{algorithm}`, got `zset`: write `algorithm = \"sliding_window\"`, or remove it"
    )
}

/// Returns the message for a value that is no number of permits.
pub(crate) fn permits_problem(field: &str, found: &str) -> String {
    wrong_value_problem(field, "a whole number from 1 to 4294967295", found, "one such as `10`, without quotes")
}

/// Returns the message for a value that is no deadline.
pub(crate) fn deadline_text_problem(field: &str, found: &str) -> String {
    wrong_value_problem(field, "a duration from 1 ms to 60 s, in quotes", found, "one such as `\"50ms\"` or `\"2s\"`")
}

pub(crate) fn both_matches_problem() -> String {
    "`key` must be left out with `match`, got both: remove one of them".to_owned()
}

pub(crate) fn no_match_problem() -> String {
    "`match` must be set in an override, got none: write one such as `match = { user_id = \"42\" }`, or \
     `key = \"user:@42\"`"
        .to_owned()
}

pub(crate) fn empty_match_problem() -> String {
    "`match` must name at least one part of the key, got none: write one such as `match = { user_id = \"42\" }`, or set \
     the rule itself"
        .to_owned()
}

/// Returns the message for an override of the same keys as an earlier one.
pub(crate) fn equal_match_problem(earlier: impl Display) -> String {
    format!("`match` must differ from that of other overrides, got the one of {earlier}: remove one of them")
}

pub(crate) fn too_many_overrides_problem() -> String {
    format!("`override` must be used at most {MAX_OVERRIDES} times, got more: use parts of keys, or remove some")
}

/// Returns the message for a value outside of its bound. `fix` is what to write.
pub(crate) fn wrong_value_problem(field: &str, bound: &str, found: &str, fix: &str) -> String {
    let field = cut(field);
    format!("`{field}` must be {bound}, got {found}: write {fix}")
}

/// Returns the message for a field that is none of `known`, with a suggestion.
pub(crate) fn unknown_field_problem(field: &str, bound: &str, known: &[&'static str]) -> String {
    let fix = match meant(field, known) {
        Some(meant) => format!("`{meant}`"),
        None => format!("{}, or remove it; a newer version may have more", list(known).replacen(" and ", " or ", 1)),
    };
    let field = cut(field);
    format!("`{field}` must be {bound}, got an unknown name: write {fix}")
}
