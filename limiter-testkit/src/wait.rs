//! Polls a server until a condition holds.

use std::thread;
use std::time::{Duration, Instant};

/// Calls `poll` every 5 ms until it returns a value. An `Err` states why there is none yet.
///
/// # Panics
///
/// There is no value within `limit`. The message has the condition, the last reason and the `logs`.
#[track_caller]
pub fn poll_until<T>(
    what: &str,
    limit: Duration,
    logs: impl FnOnce() -> String,
    mut poll: impl FnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        match poll() {
            Ok(value) => return value,
            Err(reason) if Instant::now() >= end => panic!("not within {limit:?}: {what}: {reason}\n{}", logs()),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_first_value() {
        let mut left = 3;
        let value = poll_until("zero", Duration::from_secs(5), String::new, || {
            left -= 1;
            if left == 0 { Ok("done") } else { Err(format!("{left} left")) }
        });
        assert_eq!((value, left), ("done", 0));
    }

    #[test]
    #[should_panic(expected = "not within 10ms: rain: not a cloud\nthe log")]
    fn a_timeout_shows_the_condition_the_last_reason_and_the_logs() {
        poll_until::<()>("rain", Duration::from_millis(10), || "the log".into(), || Err("not a cloud".into()));
    }
}
