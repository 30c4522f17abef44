//! Durations: read from options, and written for people.

use std::time::Duration;

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

/// Writes a duration for people: two units at most, such as `2.4 s`, `3 min 20 s` or `2 d 4 h`.
pub(crate) fn write(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.as_millis());
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 => format!("{} ms", duration.as_nanos().div_ceil(1_000_000)),
        1..10 if millis % 1000 > 0 => {
            let tenths = millis.div_ceil(100);
            if tenths == 100 { "10 s".to_owned() } else { format!("{}.{} s", tenths / 10, tenths % 10) }
        }
        1..60 => format!("{} s", seconds + u64::from(millis % 1000 > 0)),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_with_two_units_and_never_too_short_below_a_minute() {
        let cases = [
            (0, "0 s"),
            (1, "1 ms"),
            (999, "999 ms"),
            (2_000, "2 s"),
            (2_301, "2.4 s"),
            (9_999, "10 s"),
            (10_001, "11 s"),
            (59_000, "59 s"),
            (200_000, "3 min 20 s"),
            (7_200_000, "2 h"),
            (187_200_000, "2 d 4 h"),
        ];
        for (millis, text) in cases {
            assert_eq!(write(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn durations_are_read_with_a_unit() {
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        for wrong in ["", "5", "-5s", "5parsecs", "9999999d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
