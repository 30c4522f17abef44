//! Tests of each policy when the store fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rate_limited::{Decision, Error, ErrorKind, Limit, Limiter, OnError, Source};

use super::source;
use crate::support::{key, limit};

/// Returns a limiter whose server does not exist.
fn failing(policy: OnError) -> Limiter {
    let builder = Limiter::builder().url("redis+unix:///nowhere/redis.sock").on_error(policy);
    builder.build().expect("a URL")
}

async fn check(limiter: &Limiter, limit: &Limit) -> Decision {
    limiter.check(&key("a"), limit).await.expect("a decision")
}

#[tokio::test]
async fn open_allows_with_nothing_remaining() {
    let limiter = failing(OnError::Open);
    for _ in 0..10 {
        let Decision::Allowed(allowed) = check(&limiter, &limit("5/10s")).await else { panic!("it is open") };
        assert_eq!((allowed.source(), allowed.remaining(), allowed.reset_after()), (Source::Policy, 0, Duration::ZERO));
    }
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_allowed()), (Source::Policy, true));
}

#[tokio::test]
async fn closed_denies_with_a_short_retry_after() {
    let limiter = failing(OnError::Closed);
    for (limited, retry_after) in [("5/10s", 1_000), ("5/1s", 1_000), ("5/200ms", 200)] {
        let Decision::Denied(denied) = check(&limiter, &limit(limited)).await else { panic!("it is closed") };
        assert_eq!((denied.source(), denied.is_final()), (Source::Policy, false));
        assert_eq!(denied.retry_after(), Duration::from_millis(retry_after));
    }
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Policy, true));
}

#[tokio::test]
async fn standby_counts_in_the_process() {
    let limiter = failing(OnError::Standby);
    let seen = limiter.peek(&key("a"), &limit("2/10s")).await.expect("a decision");
    assert_eq!(seen.remaining(), 2);
    for (allowed, remaining) in [(true, 1), (true, 0), (false, 0)] {
        let decision = check(&limiter, &limit("2/10s")).await;
        assert_eq!(source(&decision), Source::Standby);
        assert_eq!((decision.is_allowed(), decision.remaining()), (allowed, remaining));
    }
    let seen = limiter.peek(&key("a"), &limit("2/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Standby, true));
}

#[tokio::test]
async fn raise_returns_the_error() {
    let limiter = failing(OnError::Raise);
    for error in [
        limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no server"),
        limiter.check_n(&key("a"), &limit("5/10s"), 0).await.expect_err("no server"),
        limiter.check_n(&key("a"), &limit("5/10s"), 6).await.expect_err("no server"),
        limiter.peek(&key("a"), &limit("5/10s")).await.expect_err("no server"),
        limiter.check_blocking(&key("a"), &limit("5/10s")).expect_err("no server"),
    ] {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true));
    }
}

#[tokio::test]
async fn failed_reset_returns_an_error_with_every_policy() {
    for policy in [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise] {
        let error = failing(policy).reset(&key("a"), &limit("5/10s")).await.expect_err("no server");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn observers_get_each_failure_once_and_their_panics_are_contained() {
    for policy in [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise] {
        let [failures, allowed, denied] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let [seen_failures, seen_allowed, seen_denied] = [&failures, &allowed, &denied].map(Arc::clone);
        let limiter = Limiter::builder()
            .url("redis+unix:///nowhere/redis.sock")
            .on_error(policy)
            .on_failure(|_| panic!("a panic of the observer"))
            .on_error(move |error: &Error| {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                seen_failures.fetch_add(1, Relaxed);
            })
            .on_allowed(move |_| {
                seen_allowed.fetch_add(1, Relaxed);
            })
            .on_denied(move |_| {
                seen_denied.fetch_add(1, Relaxed);
            })
            .build()
            .expect("a URL");
        let counts = || [&failures, &allowed, &denied].map(|count| count.load(Relaxed));
        for _ in 0..3 {
            // A decision or an error, depending on the policy.
            let _ = limiter.check(&key("a"), &limit("2/10s")).await;
        }
        let expected = match policy {
            OnError::Open => [3, 3, 0],
            OnError::Closed => [3, 0, 3],
            OnError::Standby => [3, 2, 1],
            _ => [3, 0, 0],
        };
        assert_eq!(counts(), expected, "{policy:?}");
        let _ = limiter.peek(&key("a"), &limit("2/10s")).await;
        let _ = limiter.reset(&key("a"), &limit("2/10s")).await;
        assert_eq!(counts(), [expected[0] + 2, expected[1], expected[2]], "{policy:?}: a peek is no decision");
    }
}
