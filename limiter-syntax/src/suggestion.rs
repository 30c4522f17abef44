//! Suggestions for misspelt names.

/// The longest name and the longest text with a suggestion, in letters. The time grows with the product of the two.
const MAX_LETTERS: usize = 1000;

/// Returns the candidate that `text` probably means: it differs by at most one edit in three letters.
///
/// ```
/// assert_eq!(limiter_syntax::nearest("userid", ["tenant", "user_id"]), Some("user_id"));
/// ```
pub fn nearest<'n>(text: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let text: Vec<char> = text.chars().take(MAX_LETTERS + 1).collect();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let letters: Vec<char> = candidate.chars().take(MAX_LETTERS + 1).collect();
            let max_distance = letters.len() / 3;
            // At least so many letters are added or omitted.
            let may_be_near = text.len().abs_diff(letters.len()) <= max_distance;
            let is_short = text.len().max(letters.len()) <= MAX_LETTERS;
            let distance = (may_be_near && is_short).then(|| edit_distance(&text, &letters))?;
            (distance <= max_distance).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the candidates that begin like `text`, such as `user:{user_id}` for `user`: their first word or words are the
/// text, up to its first `{`.
pub fn with_same_start<'n>(text: &str, candidates: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let start = text.split('{').next().unwrap_or_default().trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let begins = |candidate: &&str| {
        let rest = candidate.strip_prefix(start);
        rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
    };
    if start.is_empty() { Vec::new() } else { candidates.into_iter().filter(begins).collect() }
}

/// Counts letters that are added, omitted, changed or swapped with their neighbour: the optimal string alignment
/// distance.
fn edit_distance(from: &[char], to: &[char]) -> usize {
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
    fn counts_edits_in_both_directions() {
        let cases = [
            ("", "", 0),
            ("", "ab", 2),
            ("max", "max", 0),
            ("mxa", "max", 1),
            ("opne", "open", 1),
            ("kitten", "sitting", 3),
        ];
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        for (from, to, expected) in cases {
            assert_eq!(edit_distance(&letters(from), &letters(to)), expected, "{from} {to}");
            assert_eq!(edit_distance(&letters(to), &letters(from)), expected, "{to} {from}");
        }
    }

    #[test]
    fn suggests_words_within_one_edit_in_three_letters() {
        let cases = [
            ("opne", Some("open")),
            ("colsed", Some("closed")),
            ("standbye", Some("standby")),
            ("rise", Some("raise")),
            ("pen", Some("open")),
            ("degrade", None),
            ("oops", None),
        ];
        for (text, expected) in cases {
            assert_eq!(nearest(text, ["open", "closed", "standby", "raise"]), expected, "{text}");
        }
    }

    #[test]
    fn suggests_names_within_one_edit_in_three_letters() {
        let names = ["user_id", "tenant", "req.path", "größe"];
        let cases = [
            ("userid", Some("user_id")),
            ("user_di", Some("user_id")),
            ("tennant", Some("tenant")),
            ("grüße", Some("größe")),
            ("grässe", None),
            ("path", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(nearest(text, names), expected, "{text}");
        }
    }

    #[test]
    fn long_texts_and_names_have_no_suggestion() {
        let (long, longer) = ("a".repeat(MAX_LETTERS), "a".repeat(MAX_LETTERS + 1));
        assert_eq!(nearest(&long, [&*longer, &*long]), Some(&*long));
        assert_eq!(nearest(&longer, [&*longer, &*long]), None);
        assert_eq!(nearest(&"a".repeat(1 << 24), ["aaaa", &*longer]), None);
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
