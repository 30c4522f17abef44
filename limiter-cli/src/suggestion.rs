//! Suggestions for misspelt names.

/// Returns the candidate that `text` probably means: it differs by at most one edit in three letters.
pub(crate) fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().max(text.len()) <= 1000)
        .map(|candidate| {
            let letters = candidate.chars().count();
            (strsim::osa_distance(&text.to_lowercase(), &candidate.to_lowercase()), letters, candidate)
        })
        .filter(|(distance, letters, _)| *distance <= letters / 3)
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., candidate)| candidate)
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
}
