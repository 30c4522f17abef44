//! Durations: read from options, and written for people.

use std::time::Duration;

pub(crate) use limiter_inspect::write_duration as write;
use limiter_syntax::parse_window;

/// Parses a duration of an option, such as `30s` or `1h30m`: the durations of limits, and `0s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if ["0", "0s", "0ms"].contains(&trimmed) {
        return Ok(Duration::ZERO);
    }
    parse_window(trimmed).map(Duration::from_millis).map_err(|_| {
        "a duration must be a number and a unit, up to 366 days: write one such as `500ms`, `30s` or `5m`".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_a_unit() {
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        for wrong in ["", "5", "-5s", "5parsecs", "9999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
