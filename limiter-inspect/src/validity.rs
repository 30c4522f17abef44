//! The check of a text of shared rules before it is published.

use rate_limited::{Error, Limiter, RuleSet};
use toml_edit::Document;

/// The most bytes of a text of shared rules.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The settings at the top that are for the file of one program.
pub const FILE_SETTINGS: [&str; 2] = ["strict", "shared"];

/// Checks a text of shared rules.
///
/// # Errors
/// The mistake, with line and column.
pub fn check_text(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err("the text must have at most 1 MB, got more: remove rules that are not used".to_owned());
    }
    if let Some(message) = file_setting(text) {
        return Err(message);
    }
    let rules: RuleSet = text.parse().map_err(|error: Error| error.to_string())?;
    // A limiter finds more mistakes, such as parts that a rule's key lacks.
    Limiter::memory().set_rules(rules).map_err(|error| error.to_string())
}

/// Returns the message about a setting that is for the file of one program.
#[must_use]
pub fn file_setting(text: &str) -> Option<String> {
    // A text that is no TOML has a mistake that the library reports.
    let document = Document::parse(text).ok()?;
    let (name, at) =
        FILE_SETTINGS.into_iter().find_map(|name| Some((name, document.as_table().key(name)?.span()?.start)))?;
    Some(format!(
        "{}`{name}` must be left out of shared rules, got it: set it for each program, in its own file of rules or its \
         builder",
        place_in_text(text, at)
    ))
}

/// Returns the line and the column of a byte of a text, as in the messages of the library.
#[must_use]
pub fn place_in_text(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: ")
}
