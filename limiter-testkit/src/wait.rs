//! Waiting for what a server does in its own time.

use std::thread;
use std::time::{Duration, Instant};

/// Asks again and again until there is an answer. Meanwhile `ask` says why there is none yet.
///
/// # Panics
///
/// There is none within `limit`: with what was waited for, the last reason, and the `logs`.
#[track_caller]
pub(crate) fn until<T>(
    what: &str,
    limit: Duration,
    logs: impl FnOnce() -> String,
    mut ask: impl FnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(reason) if Instant::now() >= end => panic!("not within {limit:?}: {what}: {reason}\n{}", logs()),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_first_answer() {
        let mut left = 3;
        let answer = until("zero", Duration::from_secs(5), String::new, || {
            left -= 1;
            if left == 0 { Ok("done") } else { Err(format!("{left} left")) }
        });
        assert_eq!((answer, left), ("done", 0));
    }

    #[test]
    #[should_panic(expected = "not within 10ms: rain: not a cloud\nthe log")]
    fn says_what_it_waited_for_and_why_in_vain() {
        until::<()>("rain", Duration::from_millis(10), || "the log".into(), || Err("not a cloud".into()));
    }
}
