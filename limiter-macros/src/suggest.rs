//! Suggestions for misspelt words, by their edit distance.

/// Returns the candidate that `text` probably means: it differs by at most one edit in three letters.
pub(crate) fn nearest<const N: usize>(text: &str, candidates: [&'static str; N]) -> Option<&'static str> {
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(text, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
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
    fn counts_edits_in_both_directions() {
        let cases = [("", "", 0), ("", "ab", 2), ("max", "max", 0), ("mxa", "max", 1), ("opne", "open", 1)];
        for (from, to, expected) in cases {
            assert_eq!(edit_distance(from, to), expected, "{from} {to}");
            assert_eq!(edit_distance(to, from), expected, "{to} {from}");
        }
        assert_eq!(edit_distance("kitten", "sitting"), 3);
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
}
