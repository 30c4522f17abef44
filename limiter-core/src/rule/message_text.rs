//! Parts of messages about names and values that an operator wrote.

use std::fmt::Write;

use limiter_syntax::nearest;

use crate::Algorithm;
use crate::error::NamedValue;

/// Returns the message for a value that is no name of the option. `found` describes it, and `text` is the value if it
/// is a text.
pub(crate) fn wrong_name_problem<T: NamedValue>(found: &str, text: Option<&str>) -> String {
    let (option, names) = (T::OPTION, T::names());
    let (bound, fix) = (list(&names), name_fix(text, &names));
    format!("`{option}` must be one of {bound}, got {found}: write {fix}")
}

/// The advice about a value that is none of these names. `text` is the value if it is a text.
pub(crate) fn name_fix(text: Option<&str>, names: &[&str]) -> String {
    let whole = [Algorithm::Concurrent, Algorithm::Calendar].into_iter().find(|whole| text == Some(whole.name()));
    if let (Some(whole), true) = (whole, names == Algorithm::names()) {
        return format!("the limit as `\"{}\"`, without an algorithm", whole.text_of_whole());
    }
    match text.and_then(|text| nearest(text, names.iter().copied())) {
        Some(meant) => format!("`\"{meant}\"`"),
        None => "one of them, in quotes".to_owned(),
    }
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
