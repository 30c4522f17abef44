//! The time that a peer demands before the next call.

use std::time::{Duration, SystemTime};

/// Returns the time until which a peer refuses further calls: the value of the field `Retry-After` of a response with the
/// status 429 or 503. For types of response that [`OutgoingLayer`](crate::OutgoingLayer) does not know.
///
/// The value is a number of seconds or a date (RFC 9110, section 10.2.3). `None` for other statuses, for a date that is
/// over, and for a value that is neither.
///
/// ```
/// use std::time::Duration;
/// use limiter_tower::retry_after;
///
/// assert_eq!(retry_after(429, "120"), Some(Duration::from_secs(120)));
/// assert_eq!(retry_after(200, "120"), None);
/// ```
#[must_use]
pub fn retry_after(status: u16, header: &str) -> Option<Duration> {
    after(status, header, SystemTime::now())
}

fn after(status: u16, header: &str, now: SystemTime) -> Option<Duration> {
    let value = header.trim();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let pause = match status {
        // A number beyond 64 bits is as good as never.
        429 | 503 if is_number => Duration::from_secs(value.parse().unwrap_or(u64::MAX)),
        429 | 503 => httpdate::parse_http_date(value).ok()?.duration_since(now).ok()?,
        _ => return None,
    };
    Some(pause).filter(|pause| !pause.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let cases = [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", None),
            ("315360000", Some(315_360_000)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("", None),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("+5", None),
        ];
        for (header, expected) in cases {
            for status in [429, 503] {
                assert_eq!(after(status, header, now), expected.map(Duration::from_secs), "{header:?}");
            }
            assert_eq!(after(500, header, now), None);
        }
    }
}
