//! Names that are probably misspelt.

/// Returns the candidate that a name probably means: it is misspelt by [`is_misspelt`], or the nearest one by its letters.
#[must_use]
pub fn similar_name<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let misspelt = candidates.iter().copied().find(|candidate| is_misspelt(name, candidate));
    misspelt.or_else(|| limiter_syntax::nearest(name, candidates))
}

/// Returns whether a name is another one but for its case, its punctuation or one letter.
#[must_use]
pub fn is_misspelt(name: &str, other: &str) -> bool {
    let (name, other) = (letters(name), letters(other));
    let same_start = name.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let (name, other) = (&name[same_start..], &other[same_start..]);
    let same_end = name.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    // What differs: nothing, one letter on either side, or two neighbours that have changed places.
    match (&name[..name.len() - same_end], &other[..other.len() - same_end]) {
        ([one, two], [first, second]) => one == second && two == first,
        // A letter that is left out or added makes a short name no other one, as another letter does.
        ([], [_]) | ([_], []) => same_start + same_end >= 2,
        (name, other) => name.len().max(other.len()) <= 1 && same_start + same_end >= 3,
    }
}

/// Returns whether two names differ in case and punctuation alone.
#[must_use]
pub fn is_other_case(name: &str, other: &str) -> bool {
    letters(name) == letters(other)
}

fn letters(name: &str) -> Vec<char> {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_misspelt_by_its_case_its_punctuation_or_one_letter() {
        for (name, other, expected) in [
            ("getid", "getId", true),
            ("get-id", "getId", true),
            ("getIds", "getId", true),
            ("serch", "search", true),
            ("saerch", "search", true),
            ("userid", "user_id", true),
            ("user:{userid}", "user:{user_id}", true),
            ("user:{user_id}:hourly", "user:{user_id}:daily", false),
            ("user", "user:{user_id}", false),
            ("ap", "api", true),
            ("apis", "api", true),
            ("v1", "v2", false),
            ("a", "ap", false),
            ("a", "b", false),
            ("reports", "search", false),
        ] {
            assert_eq!(is_misspelt(name, other), expected, "{name}, {other}");
        }
    }

    #[test]
    fn a_similar_name_differs_by_one_edit_in_three_letters() {
        assert_eq!(similar_name("userid", ["tenant", "user_id"]), Some("user_id"));
        assert_eq!(similar_name("custmer_idd", ["customer_id"]), Some("customer_id"));
        assert_eq!(similar_name("plan", ["user_id"]), None);
    }
}
