//! The choice between a long run and a short one.

use std::env;

/// The variable that asks for long runs. `scripts/test --full` sets it.
const VARIABLE: &str = "RATE_LIMITED_FULL";

/// Tells whether the tests run in full: with ten million keys, millions of fuzzed values, and waits of seconds.
///
/// True if the environment has `RATE_LIMITED_FULL=1`, which `scripts/test --full` sets. Everything else, and a test that
/// is run by hand, does a share of each.
///
/// # Panics
///
/// The variable is neither empty, `0` nor `1`.
pub fn is_full() -> bool {
    read(env::var(VARIABLE).ok().as_deref())
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

fn read(value: Option<&str>) -> bool {
    match value {
        None | Some("" | "0") => false,
        Some("1") => true,
        Some(other) => panic!("{VARIABLE} must be 0 or 1, got {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn only_1_asks_for_a_full_run() {
        assert_eq!([None, Some(""), Some("0"), Some("1")].map(read), [false, false, false, true]);
    }

    #[test]
    #[should_panic(expected = "RATE_LIMITED_FULL must be 0 or 1, got \"yes\"")]
    fn another_value_is_a_mistake() {
        read(Some("yes"));
    }
}
