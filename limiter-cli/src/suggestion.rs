//! Suggestions for misspelt names.

/// Returns the candidate that `text` probably means in upper or lower case: it differs by at most one edit in three
/// letters, or it is the shortest that begins with the same words, such as `user:{user_id}` for `user`.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let lower_case: Vec<String> = candidates.iter().map(|name| name.to_lowercase()).collect();
    let similar = limiter_syntax::nearest(&text.to_lowercase(), lower_case.iter().map(String::as_str));
    let place = similar.and_then(|similar| lower_case.iter().position(|name| name == similar));
    place.map(|place| candidates[place]).or_else(|| {
        let same_start = limiter_syntax::with_same_start(text, candidates.iter().copied());
        same_start.into_iter().min_by_key(|name| name.len())
    })
}

/// Returns the letters and digits of a name, in lower case.
pub(crate) fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase)
}

/// Returns whether a name is that of a rule but for its case, its punctuation or one letter.
pub(crate) fn is_misspelt(name: &str, of_rule: &str) -> bool {
    let (name, of_rule) = (letters(name).collect::<Vec<_>>(), letters(of_rule).collect::<Vec<_>>());
    let same_start = name.iter().zip(&of_rule).take_while(|(one, other)| one == other).count();
    let (name, of_rule) = (&name[same_start..], &of_rule[same_start..]);
    let same_end = name.iter().rev().zip(of_rule.iter().rev()).take_while(|(one, other)| one == other).count();
    // What differs: nothing, one letter on either side, or two neighbours that have changed places.
    let (name, of_rule) = (&name[..name.len() - same_end], &of_rule[..of_rule.len() - same_end]);
    match (name, of_rule) {
        ([one, two], [first, second]) => one == second && two == first,
        // A letter that is left out or added makes a short name no other one, as another letter does.
        ([], [_]) | ([_], []) => same_start + same_end >= 2,
        _ => name.len().max(of_rule.len()) <= 1 && same_start + same_end >= 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_names_within_one_edit_in_three_letters() {
        let names = ["getId", "user:{user_id}", "search"];
        assert_eq!(nearest("getid", names), Some("getId"));
        assert_eq!(nearest("saerch", names), Some("search"));
        assert_eq!(nearest("user:{userid}", names), Some("user:{user_id}"));
        assert_eq!(nearest("upload", names), None);
    }

    #[test]
    fn suggests_names_that_begin_with_the_same_words() {
        let names = ["user_log", "user:{user_id}:search", "user:{user_id}"];
        for text in ["user", "user:", "user:{name}"] {
            assert_eq!(nearest(text, names), Some("user:{user_id}"), "{text}");
        }
        for text in ["us", ":", ""] {
            assert_eq!(nearest(text, names), None, "{text}");
        }
    }

    #[test]
    fn a_name_is_misspelt_by_its_case_its_punctuation_or_one_letter() {
        for (name, of_rule, expected) in [
            ("getid", "getId", true),
            ("get-id", "getId", true),
            ("getIds", "getId", true),
            ("serch", "search", true),
            ("saerch", "search", true),
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
            assert_eq!(is_misspelt(name, of_rule), expected, "{name}, {of_rule}");
        }
    }
}
