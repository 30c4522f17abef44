//! Overrides of methods by which no request of a layer counts.

use super::key_match::{KeyMatch, KeyPattern};

/// The piece of the method in the templates of layers. The attribute's keys are not checked: theirs is any text.
const PIECE: &str = ":method:{method}";
const NAME: &str = "method";
const HEAD: &str = "HEAD";

/// The texts by which methods count, as in `key/method.rs` of limiter-tower.
const COUNTED: [&str; 9] = ["CONNECT", "DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "other"];

/// Returns the message for a match of a method by which no request of a layer with these templates counts.
pub(super) fn method_problem(keys: &KeyMatch, templates: &[&str]) -> Option<String> {
    let KeyPattern::Parts(parts) = &keys.pattern else { return None };
    let (_, value) = parts.iter().find(|(name, value)| name == NAME && !COUNTED.contains(&&**value))?;
    if !templates.iter().any(|template| template.contains(PIECE)) {
        return None;
    }
    Some(match COUNTED.iter().find(|counted| counted.eq_ignore_ascii_case(value)) {
        Some(counted) => format!("`method` must be as it counts, got `{value}`: write `{counted}`"),
        None if value.eq_ignore_ascii_case(HEAD) => {
            format!("`method` must be `GET` for requests of `HEAD` too, got `{value}`: write `GET`, which matches both")
        }
        None => {
            let list = COUNTED.join("`, `");
            format!(
                "`method` must be one of `{list}`, got another value: write `other` for a method that is not standard"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_that_count_are_matched() {
        let problem = |value: &str, template: &str| method_problem(&KeyMatch::parts([("method", value)]), &[template]);
        let layer = "api:method:{method}:ip:{ip}";
        for counted in COUNTED {
            assert_eq!(problem(counted, layer), None);
        }
        for (value, advice) in
            [("HEAD", "`GET`, which matches both"), ("get", "write `GET`"), ("PROPFIND", "write `other`")]
        {
            let text = problem(value, layer).expect("never matches");
            assert!(text.contains(advice), "{text}");
            // In other keys the part is any text: that of an attribute, or of a header of this name.
            assert_eq!(problem(value, "api:{method}"), None);
            assert_eq!(problem(value, "api:method2:{method2}"), None);
        }
    }
}
