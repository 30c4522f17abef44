//! The choice between a long run and a short one.

use std::env;

/// The environment variable that selects long runs. `scripts/test --full` sets it.
const FULL_RUN_VARIABLE: &str = "RATE_LIMITED_FULL";

/// Returns true if the tests run in full: ten million keys, millions of fuzzed values, and waits of seconds.
///
/// A full run needs `RATE_LIMITED_FULL=1`, which `scripts/test --full` sets. Every other run, such as a single test
/// started by hand, uses fewer keys and values, and shorter waits.
///
/// # Panics
///
/// The variable is neither empty, `0` nor `1`.
pub fn is_full() -> bool {
    parse_flag(env::var(FULL_RUN_VARIABLE).ok().as_deref())
}

/// Returns `full` in a full run (see [`is_full`]), and `short` in any other.
///
/// ```
/// # use limiter_testkit::full_or;
/// let rounds = full_or(1_000_000, 10_000);
/// # assert!(rounds >= 10_000);
/// ```
pub fn full_or<T>(full: T, short: T) -> T {
    if is_full() { full } else { short }
}

fn parse_flag(value: Option<&str>) -> bool {
    match value {
        None | Some("" | "0") => false,
        Some("1") => true,
        Some(other) => panic!("{FULL_RUN_VARIABLE} must be 0 or 1, got {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_flag;

    #[test]
    fn only_1_selects_a_full_run() {
        assert_eq!([None, Some(""), Some("0"), Some("1")].map(parse_flag), [false, false, false, true]);
    }

    #[test]
    #[should_panic(expected = "RATE_LIMITED_FULL must be 0 or 1, got \"yes\"")]
    fn another_value_panics() {
        parse_flag(Some("yes"));
    }
}
