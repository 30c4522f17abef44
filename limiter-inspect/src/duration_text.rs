//! Durations for people.

use std::time::Duration;

/// Writes a duration for people: two units at most, such as `2.4 s`, `3 min 20 s` or `2 d 4 h`.
#[must_use]
pub fn write_duration(duration: Duration) -> String {
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
            assert_eq!(write_duration(Duration::from_millis(millis)), text);
        }
    }
}
