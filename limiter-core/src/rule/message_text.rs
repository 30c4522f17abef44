//! Parts of messages about names and values that an operator wrote.

use std::fmt::Write;

use crate::error::NamedValue;
use crate::rule::suggest::nearest;

/// Returns the message for a value that is no name of the option. `found` describes it, and `text` is the value if it
/// is a text.
pub(crate) fn wrong_name_problem<T: NamedValue>(found: &str, text: Option<&str>) -> String {
    let (option, names) = (T::OPTION, T::names());
    let fix = match text.and_then(|text| meant(text, &names)) {
        Some(meant) => format!("`\"{meant}\"`"),
        None => "one of them, in quotes".to_owned(),
    };
    let names = list(&names);
    format!("`{option}` must be one of {names}, got {found}: write {fix}")
}

/// Describes a text in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("`\"{}\"`", cut(text))
}

/// Returns a text for a message: escaped, and its beginning if it is long.
pub(crate) fn cut(text: &str) -> String {
    const MAX_LETTERS: usize = 60;
    let mut cut: String = text.chars().take(MAX_LETTERS).flat_map(char::escape_debug).collect();
    let rest = text.chars().skip(MAX_LETTERS).count();
    if rest > 0 {
        let _ = write!(cut, "… and {rest} more characters");
    }
    cut
}

/// Lists names in a sentence: `a`, `b` and `c`.
pub(crate) fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the name that a text probably means. The time grows with the length, so no long text means one.
pub(crate) fn meant<'n>(text: &str, names: &[&'n str]) -> Option<&'n str> {
    const MAX_BYTES: usize = 100;
    Some(text).filter(|text| text.len() <= MAX_BYTES).and_then(|text| nearest(text, names.iter().copied()))
}
