//! Overrides by methods: a layer counts a method by one of few texts.

const HEAD: &str = "HEAD";

/// The texts by which methods count, as in `key/method.rs` of limiter-tower.
const COUNTED: [&str; 9] = ["CONNECT", "DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "other"];

/// Returns the message for a value by which no request counts. It has the value only if that is a known method.
pub(super) fn method_problem(value: &str) -> Option<String> {
    if COUNTED.contains(&value) {
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
        for counted in COUNTED {
            assert_eq!(method_problem(counted), None);
        }
        for (value, advice) in
            [("HEAD", "`GET`, which matches both"), ("get", "write `GET`"), ("PROPFIND", "write `other`")]
        {
            let text = method_problem(value).expect("never matches");
            assert!(text.contains(advice), "{text}");
        }
    }
}
