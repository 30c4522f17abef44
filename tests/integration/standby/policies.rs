//! What a call gets when the store fails, policy by policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rate_limited::{Decision, Error, ErrorKind, Limit, Limiter, OnError, Source};

use super::source;
use crate::support::{key, limit};

/// On a server that is not there and never will be.
fn failing(policy: OnError) -> Limiter {
    let builder = Limiter::builder().url("redis+unix:///nowhere/redis.sock").on_error(policy);
    builder.build().expect("a URL")
}

async fn ask(limiter: &Limiter, limit: &Limit) -> Decision {
    limiter.check(&key("a"), limit).await.expect("a decision")
}

#[tokio::test]
async fn open_allows_and_knows_nothing() {
    let limiter = failing(OnError::Open);
    for _ in 0..10 {
        let Decision::Allowed(allowed) = ask(&limiter, &limit("5/10s")).await else { panic!("it is open") };
        assert_eq!((allowed.source(), allowed.remaining(), allowed.reset_after()), (Source::Policy, 0, Duration::ZERO));
    }
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_allowed()), (Source::Policy, true));
}

#[tokio::test]
async fn closed_denies_and_says_to_come_back_soon() {
    let limiter = failing(OnError::Closed);
    for (limited, retry_after) in [("5/10s", 1_000), ("5/1s", 1_000), ("5/200ms", 200)] {
        let Decision::Denied(denied) = ask(&limiter, &limit(limited)).await else { panic!("it is closed") };
        assert_eq!((denied.source(), denied.is_final()), (Source::Policy, false));
        assert_eq!(denied.retry_after(), Duration::from_millis(retry_after));
    }
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Policy, true));
}

#[tokio::test]
async fn standby_counts_in_this_process() {
    let limiter = failing(OnError::Standby);
    let seen = limiter.peek(&key("a"), &limit("2/10s")).await.expect("a decision");
    assert_eq!(seen.remaining(), 2);
    for (allowed, remaining) in [(true, 1), (true, 0), (false, 0)] {
        let decision = ask(&limiter, &limit("2/10s")).await;
        assert_eq!(source(&decision), Source::Standby);
        assert_eq!((decision.is_allowed(), decision.remaining()), (allowed, remaining));
    }
    let seen = limiter.peek(&key("a"), &limit("2/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Standby, true));
}

#[tokio::test]
async fn raise_gives_the_error() {
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
async fn a_reset_that_failed_is_told_whatever_the_policy() {
    for policy in [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise] {
        let error = failing(policy).reset(&key("a"), &limit("5/10s")).await.expect_err("no server");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn observers_are_told_of_each_failure_once_and_cannot_harm() {
    for policy in [OnError::Open, OnError::Closed, OnError::Standby, OnError::Raise] {
        let [failures, allowed, denied] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let [seen_failures, seen_allowed, seen_denied] = [&failures, &allowed, &denied].map(Arc::clone);
        let limiter = Limiter::builder()
            .url("redis+unix:///nowhere/redis.sock")
            .on_error(policy)
            .on_error(|_: &Error| panic!("an observer's own trouble"))
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
        let told = || [&failures, &allowed, &denied].map(|count| count.load(Relaxed));
        for _ in 0..3 {
            // A decision or an error, as the policy has it.
            let _ = limiter.check(&key("a"), &limit("2/10s")).await;
        }
        let expected = match policy {
            OnError::Open => [3, 3, 0],
            OnError::Closed => [3, 0, 3],
            OnError::Standby => [3, 2, 1],
            _ => [3, 0, 0],
        };
        assert_eq!(told(), expected, "{policy:?}");
        let _ = limiter.peek(&key("a"), &limit("2/10s")).await;
        let _ = limiter.reset(&key("a"), &limit("2/10s")).await;
        assert_eq!(told(), [expected[0] + 2, expected[1], expected[2]], "{policy:?}: a look is no decision");
    }
}
