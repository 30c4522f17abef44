//! Tests of refunds by receipt.

use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer, unique};
use rate_limited::{Algorithm, Allowed, ErrorKind, Key, Limit, Limiter, ManualClock, OnError, Source};

use super::{ALL_ALGORITHMS, limit_with_algorithm, on_every_store};
use crate::support::{Subject, builder_for, key, limit};

on_every_store! {
    refund_restores_the_permits_of_a_call,
    receipt_and_its_clone_are_refunded_once,
    refund_covers_all_limits_of_a_decision,
    receipt_from_before_a_reset_refunds_nothing,
    receipt_of_another_limiter_is_rejected,
}

async fn allowed(limiter: &Limiter, limit: Limit, cost: u32) -> Allowed {
    limiter.check_n(&key("a"), &limit, cost).await.expect("the store answers").into_result().expect("a permit is free")
}

async fn remaining(limiter: &Limiter, limit: Limit) -> u32 {
    limiter.peek(&key("a"), &limit).await.expect("the store answers").remaining()
}

async fn refund_restores_the_permits_of_a_call(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    subject.clock.advance(Duration::from_micros(1_234));
    let taken = allowed(&subject.limiter, limit, 4).await;
    subject.limiter.refund(&taken).await.expect("the store answers");
    assert_eq!(remaining(&subject.limiter, limit).await, 5, "{algorithm:?}");
    let nothing = allowed(&subject.limiter, limit, 0).await;
    assert_eq!(nothing.reset_after(), Duration::ZERO, "{algorithm:?}: no permit is in use");
    subject.limiter.refund(&nothing).await.expect("nothing to do");
    assert_eq!(allowed(&subject.limiter, limit, 5).await.remaining(), 0, "{algorithm:?}");
    subject.limiter.refund(&taken).await.expect("nothing to do");
    assert_eq!(remaining(&subject.limiter, limit).await, 0, "{algorithm:?}: a receipt was refunded twice");
}

async fn receipt_and_its_clone_are_refunded_once(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    let others = if algorithm == Algorithm::LeakyBucket { 0 } else { 3 };
    let _others = allowed(&subject.limiter, limit, others).await;
    let taken = allowed(&subject.limiter, limit, 2).await;
    let clone = taken.clone();
    let refunds = [taken, clone].map(|receipt| {
        let limiter = subject.limiter.clone();
        tokio::spawn(async move { limiter.refund(&receipt).await })
    });
    for refund in refunds {
        refund.await.expect("no panic").expect("the store answers");
    }
    assert_eq!(remaining(&subject.limiter, limit).await, 5 - others, "{algorithm:?}");
}

async fn refund_covers_all_limits_of_a_decision(subject: Subject, algorithm: Algorithm) {
    let limits = [limit_with_algorithm("5/10s", algorithm), limit_with_algorithm("9/m", algorithm), limit("7/h")];
    let key = key("a");
    let requests = [(&key, &limits[0], 2), (&key, &limits[1], 3), (&key, &limits[2], 4)];
    let taken = subject.limiter.check_all(&requests).await.expect("the store answers").into_result().expect("free");
    subject.limiter.refund(&taken).await.expect("the store answers");
    for limit in limits {
        assert_eq!(remaining(&subject.limiter, limit).await, limit.max(), "{algorithm:?}");
    }
}

async fn receipt_from_before_a_reset_refunds_nothing(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    let early = allowed(&subject.limiter, limit, 2).await;
    subject.limiter.reset(&key("a"), &limit).await.expect("the store answers");
    subject.advance_millis(1);
    assert_eq!(allowed(&subject.limiter, limit, 5).await.remaining(), 0);
    subject.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(remaining(&subject.limiter, limit).await, 0, "{algorithm:?}");
}

async fn receipt_of_another_limiter_is_rejected(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    let taken = allowed(&subject.limiter, limit, 5).await;
    let other = Limiter::memory();
    let _same = allowed(&other, limit, 5).await;
    assert_eq!(other.refund(&taken).await.expect_err("a receipt of another limiter").kind(), ErrorKind::Config);
    assert_eq!(remaining(&other, limit).await, 0, "{algorithm:?}");
    subject.limiter.clone().refund(&taken).await.expect("a clone is the same limiter");
    assert_eq!(remaining(&subject.limiter, limit).await, 5, "{algorithm:?}");
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn refunds_do_not_keep_older_permits_in_use() {
        assert_older_permits_expire(Subject::memory().await).await;
    }

    #[tokio::test]
    async fn refunded_calls_leave_no_trace() {
        assert_refunded_calls_leave_no_trace(async || Subject::memory().await, 20).await;
    }
}

mod on_redis {
    use super::*;

    #[tokio::test]
    async fn refunds_do_not_keep_older_permits_in_use() {
        assert_older_permits_expire(Subject::redis().await).await;
    }

    #[tokio::test]
    async fn refunded_calls_leave_no_trace() {
        assert_refunded_calls_leave_no_trace(async || Subject::redis().await, 3).await;
    }
}

/// Guards against a former defect: a call that was refunded in each window kept an old permit in use permanently.
/// Covers receipts of one limit and of several.
async fn assert_older_permits_expire(subject: Subject) {
    // Redis expires keys by its own clock, so the windows are longer than the test takes.
    let (limiter, limits, key) = (&subject.limiter, [limit("10/1000s"), limit("1000/10000s")], key("a"));
    assert_eq!(allowed(limiter, limits[0], 9).await.remaining(), 1);
    for call in 0..210 {
        subject.advance_millis(100_000);
        let taken = if call % 2 == 0 {
            allowed(limiter, limits[0], 1).await
        } else {
            let both = limits.each_ref().map(|limit| (&key, limit, 1));
            limiter.check_all(&both).await.expect("the store answers").into_result().expect("free")
        };
        limiter.refund(&taken).await.expect("the store answers");
    }
    assert_eq!(remaining(limiter, limits[0]).await, 10, "21 windows later none of the nine is in use");
    assert_eq!(remaining(limiter, limits[1]).await, 1_000);
}

/// Refunds in random order and at random times: decisions are those of an oracle that never saw the refunded calls.
async fn assert_refunded_calls_leave_no_trace(subject: impl AsyncFn() -> Subject, seeds: u64) {
    let (window_ms, max, limited) = (1_000_000, 60, limit("60/1000s"));
    for seed in 0..seeds {
        let (subject, mut random) = (subject().await, Random::new(seed));
        let mut calls: Vec<(u64, Allowed, u32)> = Vec::new();
        for step in 0..250 {
            // More runs than a short log has, and fewer than the log merges.
            subject.advance_millis(match random.below(60) {
                0 => random.below(2 * window_ms),
                _ => random.between(10_000, 30_000),
            });
            let now_ms = subject.now_us() / 1_000;
            calls.retain(|(at_ms, ..)| at_ms + 2 * window_ms > now_ms);
            if random.below(5) < 2 && !calls.is_empty() {
                let index = usize::try_from(random.below(calls.len() as u64)).expect("small");
                let (_, receipt, _) = calls.remove(index);
                subject.limiter.refund(&receipt).await.expect("the store answers");
            }
            let mut never_refunded = Oracle::new();
            for (at_ms, _, cost) in &calls {
                assert!(never_refunded.check(*at_ms, window_ms, u32::MAX, *cost).allowed);
            }
            let cost = u32::try_from(random.between(1, 3)).expect("small");
            let expected = never_refunded.check(now_ms, window_ms, max, cost);
            let decision = subject.limiter.check_n(&key("a"), &limited, cost).await.expect("the store answers");
            let seen = (decision.is_allowed(), decision.remaining());
            assert_eq!(seen, (expected.allowed, expected.remaining), "seed {seed}, step {step}");
            match decision.into_result() {
                Ok(receipt) => calls.push((now_ms, receipt, cost)),
                Err(denied) => {
                    let wait = u64::try_from(denied.retry_after().as_millis()).expect("small");
                    assert_eq!(Some(wait), expected.retry_after, "seed {seed}, step {step}");
                }
            }
        }
    }
}

/// The mirror also removes the receipt's permits. Otherwise calls would be denied in an outage that had room before.
#[tokio::test]
async fn refunds_do_not_keep_older_permits_in_use_in_the_mirror() {
    let (mut server, clock) = (RedisServer::start(), ManualClock::new());
    let limiter = builder_for(&server).clock(clock.clone()).connect().await.expect("connects");
    let limit = limit("10/1h");
    assert_eq!(allowed(&limiter, limit, 9).await.source(), Source::Store);
    for _ in 0..11 {
        clock.advance(Duration::from_secs(360));
        let taken = allowed(&limiter, limit, 1).await;
        assert_eq!(taken.source(), Source::Store);
        limiter.refund(&taken).await.expect("the store answers");
    }
    server.kill();
    let on_standby = allowed(&limiter, limit, 10).await;
    assert_eq!(on_standby.source(), Source::Standby);
}

/// A refund also applies to the standby limiter's mirror. Otherwise an outage would deny calls that had room before.
#[tokio::test]
async fn refund_applies_to_the_standby_mirror_too() {
    for algorithm in ALL_ALGORITHMS {
        let mut server = RedisServer::start();
        let limiter = builder_for(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
        // A window longer than the test.
        let limit = limit_with_algorithm("5/366d", algorithm);
        let taken = allowed(&limiter, limit, 5).await;
        assert_eq!(taken.source(), Source::Store);
        limiter.refund(&taken).await.expect("the store answers");
        server.kill();
        let on_standby = allowed(&limiter, limit, 5).await;
        assert_eq!(on_standby.source(), Source::Standby, "{algorithm:?}");
        let full = limiter.peek(&key("a"), &limit).await.expect("the standby limiter answers");
        assert!(full.is_denied(), "{algorithm:?}");
        limiter.refund(&on_standby).await.expect("the standby limiter refunds its own permits");
        assert_eq!(remaining(&limiter, limit).await, 5, "{algorithm:?}");
        let error = limiter
            .refund(&allowed(&Limiter::memory(), limit, 1).await)
            .await
            .expect_err("a receipt of another limiter");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn failed_refund_returns_an_error_and_uses_up_the_receipt() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
    let taken = allowed(&limiter, limit("1/366d"), 1).await;
    server.kill();
    let error = limiter.refund(&taken).await.expect_err("the server is down");
    assert!(error.is_transient(), "{error}");
    limiter.refund(&taken).await.expect("the receipt is used up");
    assert_eq!(remaining(&limiter, limit("1/366d")).await, 0, "permits whose refund may have failed still count");
}

#[tokio::test]
async fn refund_after_failing_open_does_nothing() {
    let limiter =
        Limiter::builder().url("redis+unix:///nowhere.sock").on_error(OnError::Open).build().expect("a limiter");
    let opened = allowed(&limiter, limit("1/10s"), 1).await;
    assert_eq!(opened.source(), Source::Policy);
    limiter.refund(&opened).await.expect("nothing to do");
}

/// Observers get receipts, so their debug form must not contain the key.
#[tokio::test]
async fn debug_form_of_a_receipt_hides_the_key() {
    let (limiter, secret) = (Limiter::memory(), unique("secret"));
    let taken = limiter.check(&Key::new("user:").part(&secret), &limit("1/10s")).await.expect("the store answers");
    assert!(!format!("{taken:?}").contains(&secret));
}
