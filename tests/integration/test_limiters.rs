//! Limiters for tests of programs: one that fails and one that is slow, with annotated functions.

use std::time::{Duration, Instant};

use rate_limited::{Denied, Error, ErrorKind, Limiter, OnError, Rule, rate_limited};

#[rate_limited(key = "by the limiter", limit = "1/h", fallback = "denied")]
async fn by_the_limiter() -> &'static str {
    "ran"
}

#[rate_limited(key = "open", limit = "1/h", fallback = "denied", on_error = open)]
fn fails_open() -> &'static str {
    "ran"
}

#[rate_limited(key = "handled", limit = "1/h", fallback = "denied".to_owned(),
    on_error = |error| error.kind().to_string())]
async fn handled() -> String {
    "ran".to_owned()
}

#[derive(Debug, PartialEq)]
enum Failure {
    Denied,
    Failed(ErrorKind),
}

impl From<Denied> for Failure {
    fn from(_: Denied) -> Self {
        Self::Denied
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error.kind())
    }
}

#[rate_limited(key = "raised", limit = "1/h", on_error = raise)]
fn raised() -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn failing_limiter_shows_the_policy_of_each_function() {
    let limiter = Limiter::failing(ErrorKind::ReadOnly);
    let calls = async {
        assert_eq!((by_the_limiter().await, by_the_limiter().await), ("ran", "denied"), "the standby limiter counts");
        assert_eq!((fails_open(), fails_open()), ("ran", "ran"));
        assert_eq!((handled().await, raised()), ("read_only".to_owned(), Err(Failure::Failed(ErrorKind::ReadOnly))));
    };
    limiter.scope(calls).await;
    let closed = Limiter::builder().failing(ErrorKind::Timeout).on_error(OnError::Closed).connect().await;
    assert_eq!(closed.expect("a limiter").scope(by_the_limiter()).await, "denied");
}

#[tokio::test]
async fn slow_limiter_times_out_by_the_deadline_of_a_rule() {
    let limiter = Limiter::builder()
        .slow(Duration::from_secs(3_600))
        .deadline(Duration::from_secs(60))
        .rule("handled", Rule::new().deadline(Duration::from_millis(10)))
        .build()
        .expect("a limiter");
    let started_at = Instant::now();
    assert_eq!(limiter.scope(handled()).await, "timeout");
    assert!(started_at.elapsed() >= Duration::from_millis(10));
    let quick = Limiter::slow(Duration::from_millis(1));
    assert_eq!(quick.scope(async { [handled().await, handled().await] }).await, ["ran", "denied"]);
}
