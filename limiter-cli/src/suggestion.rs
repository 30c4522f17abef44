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
}
