//! Suggestions for misspelt names.

/// Returns the candidate that `text` probably means: it differs by at most one edit in three letters, or it is the
/// shortest that begins with the same words, such as `user:{user_id}` for `user`.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let similar = candidates
        .clone()
        .into_iter()
        .filter(|candidate| candidate.len().max(text.len()) <= 1000)
        .map(|candidate| {
            let letters = candidate.chars().count();
            (strsim::osa_distance(&text.to_lowercase(), &candidate.to_lowercase()), letters, candidate)
        })
        .filter(|(distance, letters, _)| *distance <= letters / 3)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., candidate)| candidate);
    similar.or_else(|| candidates.into_iter().filter(|name| has_same_start(text, name)).min_by_key(|name| name.len()))
}

/// Returns whether a name begins with the words of `text`, up to its first `{`.
fn has_same_start(text: &str, name: &str) -> bool {
    let start = text.split('{').next().unwrap_or_default().trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let is_word = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    !start.is_empty() && name.strip_prefix(start).is_some_and(is_word)
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
