//! Headers of tables, such as `[rules.getId]`, whose names lack quotes.

use super::write::{TomlKey, is_bare};

/// Returns the header in the line of the byte `at` with its name in quotes. `None` unless the name needs them and has
/// none.
pub(super) fn in_quotes(text: &str, at: usize) -> Option<String> {
    /// Longer names are no remedy that fits into a message.
    const MAX_BYTES: usize = 100;
    let (before, behind) = text.split_at_checked(at)?;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = behind.find('\n').map_or(text.len(), |newline| at + newline);
    let line = text.get(start..end)?.trim();
    let (open, close) = if line.starts_with("[[") { ("[[", "]]") } else { ("[", "]") };
    let (path, _) = line.strip_prefix(open)?.split_once(close)?;
    let (name, field) = match path.trim().strip_prefix("rules.")? {
        of_override if open == "[[" => (of_override.strip_suffix(".override")?, ".override"),
        name => (name, ""),
    };
    let needs_quotes = !name.bytes().all(|byte| is_bare(byte) || byte == b'.');
    let has_quotes = name.contains(['"', '\'']);
    let is_plain = !name.contains(char::is_control) && name.len() <= MAX_BYTES;
    (needs_quotes && !has_quotes && is_plain).then(|| format!("{open}rules.{}{field}{close}", TomlKey(name)))
}
