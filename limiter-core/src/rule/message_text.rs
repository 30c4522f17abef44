//! Parts of messages about names and values that an operator wrote.

use std::fmt::Write;

use crate::error::NamedValue;

/// Returns the message for a value that is no name of the option. `found` describes it, and `text` is the value if it
/// is a text.
pub(crate) fn wrong_name_problem<T: NamedValue>(found: &str, text: Option<&str>) -> String {
    let (option, names) = (T::OPTION, T::names());
    let (bound, fix) = (list(&names), name_fix(text, &names));
    format!("`{option}` must be one of {bound}, got {found}: write {fix}")
}

/// What to write instead of a value that is none of these names. `text` is the value if it is a text.
pub(crate) fn name_fix(text: Option<&str>, names: &[&str]) -> String {
    match text.and_then(|text| meant(text, names)) {
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

/// Returns the name that a text probably means. The time grows with the length, so no long text means one.
pub(crate) fn meant<'n>(text: &str, names: &[&'n str]) -> Option<&'n str> {
    const MAX_BYTES: usize = 100;
    Some(text).filter(|text| text.len() <= MAX_BYTES).and_then(|text| nearest(text, names.iter().copied()))
}

// Suggestions for misspelt names, by their edit distance. limiter-macros has the same for the attribute's words.

/// Returns the candidate that `text` probably means: it differs by at most one edit in three letters.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        // The table of the distance has a row for each letter, and names may be long.
        .filter(|candidate| text.len().abs_diff(candidate.len()) <= candidate.len().max(text.len()) / 3)
        .map(|candidate| (edit_distance(text, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the candidates that begin like `text`, such as `user:{user_id}` for `user`: their first word or words are the
/// text, up to its first `{`.
pub(crate) fn with_same_start<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let start = text.split('{').next().unwrap_or_default().trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let begins = |candidate: &&str| {
        let rest = candidate.strip_prefix(start);
        rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
    };
    if start.is_empty() { Vec::new() } else { candidates.into_iter().filter(begins).collect() }
}

/// Counts letters that are added, omitted, changed or swapped with their neighbour: the optimal string alignment
/// distance.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut table = vec![vec![0; to.len() + 1]; from.len() + 1];
    for row in 0..=from.len() {
        for column in 0..=to.len() {
            if row == 0 || column == 0 {
                table[row][column] = row + column;
                continue;
            }
            let changed = usize::from(from[row - 1] != to[column - 1]);
            let mut least =
                (table[row - 1][column - 1] + changed).min(table[row - 1][column] + 1).min(table[row][column - 1] + 1);
            let swapped = row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
            if swapped {
                least = least.min(table[row - 2][column - 2] + 1);
            }
            table[row][column] = least;
        }
    }
    table[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_names_within_one_edit_in_three_letters() {
        let names = ["user_id", "tenant", "req.path"];
        let cases = [
            ("userid", Some("user_id")),
            ("user_di", Some("user_id")),
            ("tennant", Some("tenant")),
            ("path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(nearest(text, names), expected, "{text}");
        }
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_names_that_begin_with_the_same_words() {
        let names = ["user:{user_id}", "user:{id}:search", "users", "user_log", "tenant:{tenant}", "api v2"];
        let of_user = &["user:{user_id}", "user:{id}:search"][..];
        let cases = [
            ("user", of_user),
            ("user:", of_user),
            ("user:{name}", of_user),
            ("tenant", &["tenant:{tenant}"]),
            ("api", &["api v2"]),
            ("use", &[]),
            ("User", &[]),
            ("{user_id}", &[]),
            (":", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(with_same_start(text, names), expected, "{text}");
        }
    }
}
