//! Tests of `max_in_flight`, the bound on calls that wait for the store.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Builder, Decision, Error, ErrorKind, Limiter, OnError, Source, rate_limited};

use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{builder_for, key, limit};

/// Polls a future once.
macro_rules! poll {
    ($future:expr) => {
        $future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
}

/// Returns a server that never replies to a call, and a limiter with `max` calls in flight at most.
async fn silent_server(max: u32, options: impl FnOnce(Builder) -> Builder) -> (FakeServer, Limiter) {
    let server = FakeServer::with_script_reply(ScriptReply::Never);
    let builder = server.limiter().deadline(Duration::from_secs(60)).max_in_flight(max);
    let limiter = options(builder).connect().await.expect("connected");
    (server, limiter)
}

fn with_raise(builder: Builder) -> Builder {
    builder.on_error(OnError::Raise)
}

fn error_kind(poll: Poll<Result<Decision, Error>>) -> Option<ErrorKind> {
    match poll {
        Poll::Ready(Err(error)) => Some(error.kind()),
        _ => None,
    }
}

#[tokio::test]
async fn call_above_the_bound_fails_at_once_and_a_dropped_call_frees_a_slot() {
    let (_server, limiter) = silent_server(3, with_raise).await;
    let (key, limit) = (key("a"), limit("5/h"));
    let clones: [Limiter; 3] = std::array::from_fn(|_| limiter.clone());
    let mut calls: Vec<_> = clones.iter().map(|limiter| Box::pin(limiter.check(&key, &limit))).collect();
    for call in &mut calls {
        assert!(poll!(call).is_pending());
    }
    for _ in 0..3 {
        assert_eq!(error_kind(poll!(pin!(limiter.check(&key, &limit)))), Some(ErrorKind::Overloaded));
        assert_eq!(error_kind(poll!(pin!(limiter.peek(&key, &limit)))), Some(ErrorKind::Overloaded));
    }
    drop(calls.pop());
    let mut next = pin!(limiter.check(&key, &limit));
    assert!(poll!(next).is_pending(), "it replaces the dropped call");
    assert_eq!(error_kind(poll!(pin!(limiter.check(&key, &limit)))), Some(ErrorKind::Overloaded));
}

#[tokio::test]
async fn call_above_the_bound_gets_its_policy_and_open_keeps_the_limit() {
    let expected = [
        (OnError::Open, [Some(Source::Standby), Some(Source::Standby)]),
        (OnError::Standby, [Some(Source::Standby), Some(Source::Standby)]),
        (OnError::Closed, [None, None]),
    ];
    for (policy, sources) in expected {
        let (_server, limiter) = silent_server(1, |builder| builder.on_error(policy)).await;
        let (held, key, limit) = (key("held"), key("a"), limit("2/h"));
        let mut in_flight = pin!(limiter.check(&held, &limit));
        assert!(poll!(in_flight).is_pending());
        for source in sources {
            match limiter.check(&key, &limit).await.expect("a decision") {
                Decision::Allowed(allowed) => assert_eq!(Some(allowed.source()), source, "{policy:?}"),
                Decision::Denied(denied) => assert_eq!((denied.source(), source), (Source::Policy, None), "{policy:?}"),
            }
        }
        let third = limiter.check(&key, &limit).await.expect("a decision");
        assert!(third.is_denied(), "{policy:?}: the limit holds");
        assert!(limiter.peek(&key, &limit).await.expect("a peek").is_denied(), "{policy:?}");
    }
}

#[rate_limited(key = "handled", limit = "5/h", on_error = |error: Error| Some(error.kind()), fallback = None)]
async fn handled() -> Option<ErrorKind> {
    None
}

#[tokio::test]
async fn overload_error_reaches_the_handler() {
    let (_server, limiter) = silent_server(1, |builder| builder).await;
    let (held, limit) = (key("held"), limit("2/h"));
    let mut in_flight = pin!(limiter.check(&held, &limit));
    assert!(poll!(in_flight).is_pending());
    assert_eq!(limiter.scope(handled()).await, Some(ErrorKind::Overloaded));
}

#[tokio::test]
async fn sleeping_wait_is_not_in_flight() {
    let limiter = with_raise(builder_for(RedisServer::shared()).max_in_flight(1)).connect().await.expect("connected");
    let (waited, other, limit) = (key("waited"), key("other"), limit("1/h"));
    assert!(limiter.check(&waited, &limit).await.expect("a decision").is_allowed());
    let waiter = limiter.clone();
    let wait_task = tokio::spawn(async move { waiter.wait(&waited, &limit, Duration::from_secs(7200)).await });
    tokio::task::yield_now().await;
    // The waiting call is in flight only while it calls the store. It waits for an hour.
    let free = async {
        while limiter.check(&other, &limit).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.expect("a free slot");
    assert!(!wait_task.is_finished());
    wait_task.abort();
}

/// The permit that the standby limiter has granted counts, but only on the key whose call has failed.
#[tokio::test]
async fn standby_is_consulted_only_for_keys_of_rejected_calls() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).max_in_flight(1).connect().await.expect("connected");
    let (held, marked, other, limit) = (key("held"), key("marked"), key("other"), limit("4/h"));
    server.pause();
    let mut in_flight = Box::pin(limiter.check(&held, &limit));
    assert!(poll!(in_flight).is_pending());
    let refused = limiter.check(&marked, &limit).await.expect("a decision");
    assert!(matches!(refused, Decision::Allowed(allowed) if allowed.source() == Source::Standby));
    server.resume();
    assert!(in_flight.await.expect("a decision").is_allowed());
    let mut admitted = [0, 0];
    for (key, admitted) in [&marked, &other].into_iter().zip(&mut admitted) {
        for _ in 0..4 {
            *admitted += u32::from(limiter.check(key, &limit).await.expect("a decision").is_allowed());
        }
    }
    assert_eq!(admitted, [3, 4]);
}

#[test]
fn bound_of_zero_is_an_error() {
    let error = Limiter::builder().max_in_flight(0).build().expect_err("no call could be made");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().starts_with("`max_in_flight` must be at least 1, got 0"), "{error}");
}
