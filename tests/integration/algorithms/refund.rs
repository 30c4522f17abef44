//! Permits that are given back, by their receipts.

use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer, unique};
use rate_limited::{Algorithm, Allowed, ErrorKind, Key, Limit, Limiter, ManualClock, OnError, Source};

use super::{ALL, counted, on_every_store};
use crate::support::{Subject, key, limit, on};

on_every_store! {
    gives_back_what_was_taken_just_now,
    gives_back_only_once,
    gives_back_all_of_several_limits,
    gives_back_nothing_of_before_a_reset,
    takes_no_receipt_of_another_limiter,
}

async fn allowed(limiter: &Limiter, limit: Limit, cost: u32) -> Allowed {
    limiter.check_n(&key("a"), &limit, cost).await.expect("the store answers").into_result().expect("a place is free")
}

async fn remaining(limiter: &Limiter, limit: Limit) -> u32 {
    limiter.peek(&key("a"), &limit).await.expect("the store answers").remaining()
}

async fn gives_back_what_was_taken_just_now(subject: Subject, algorithm: Algorithm) {
    let limit = counted("5/10s", algorithm);
    subject.clock.advance(Duration::from_micros(1_234));
    let taken = allowed(&subject.limiter, limit, 4).await;
    subject.limiter.refund(&taken).await.expect("the store answers");
    assert_eq!(remaining(&subject.limiter, limit).await, 5, "{algorithm:?}");
    let nothing = allowed(&subject.limiter, limit, 0).await;
    assert_eq!(nothing.reset_after(), Duration::ZERO, "{algorithm:?}: as if nothing had been");
    subject.limiter.refund(&nothing).await.expect("nothing to do");
    assert_eq!(allowed(&subject.limiter, limit, 5).await.remaining(), 0, "{algorithm:?}");
    subject.limiter.refund(&taken).await.expect("nothing to do");
    assert_eq!(remaining(&subject.limiter, limit).await, 0, "{algorithm:?}: a receipt twice");
}

async fn gives_back_only_once(subject: Subject, algorithm: Algorithm) {
    let limit = counted("5/10s", algorithm);
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

async fn gives_back_all_of_several_limits(subject: Subject, algorithm: Algorithm) {
    let limits = [counted("5/10s", algorithm), counted("9/m", algorithm), limit("7/h")];
    let key = key("a");
    let questions = [(&key, &limits[0], 2), (&key, &limits[1], 3), (&key, &limits[2], 4)];
    let taken = subject.limiter.check_all(&questions).await.expect("the store answers").into_result().expect("free");
    subject.limiter.refund(&taken).await.expect("the store answers");
    for limit in limits {
        assert_eq!(remaining(&subject.limiter, limit).await, limit.max(), "{algorithm:?}");
    }
}

async fn gives_back_nothing_of_before_a_reset(subject: Subject, algorithm: Algorithm) {
    let limit = counted("5/10s", algorithm);
    let early = allowed(&subject.limiter, limit, 2).await;
    subject.limiter.reset(&key("a"), &limit).await.expect("the store answers");
    subject.advance_millis(1);
    assert_eq!(allowed(&subject.limiter, limit, 5).await.remaining(), 0);
    subject.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(remaining(&subject.limiter, limit).await, 0, "{algorithm:?}");
}

async fn takes_no_receipt_of_another_limiter(subject: Subject, algorithm: Algorithm) {
    let limit = counted("5/10s", algorithm);
    let taken = allowed(&subject.limiter, limit, 5).await;
    let other = Limiter::memory();
    let _same = allowed(&other, limit, 5).await;
    assert_eq!(other.refund(&taken).await.expect_err("not its own").kind(), ErrorKind::Config);
    assert_eq!(remaining(&other, limit).await, 0, "{algorithm:?}");
    subject.limiter.clone().refund(&taken).await.expect("a clone is the same limiter");
    assert_eq!(remaining(&subject.limiter, limit).await, 5, "{algorithm:?}");
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn refunds_keep_no_old_permit_alive() {
        keeps_no_old_permit_alive(Subject::memory().await).await;
    }

    #[tokio::test]
    async fn a_refund_is_as_if_the_call_had_not_been_made() {
        is_as_if_the_call_had_not_been_made(async || Subject::memory().await, 20).await;
    }
}

mod on_redis {
    use super::*;

    #[tokio::test]
    async fn refunds_keep_no_old_permit_alive() {
        keeps_no_old_permit_alive(Subject::redis().await).await;
    }

    #[tokio::test]
    async fn a_refund_is_as_if_the_call_had_not_been_made() {
        is_as_if_the_call_had_not_been_made(async || Subject::redis().await, 3).await;
    }
}

/// The defect that was found: a call that was refunded in each window kept an old permit in use for ever. By the receipts
/// of single limits, and by those of several.
async fn keeps_no_old_permit_alive(subject: Subject) {
    // Redis expires keys by its own clock: windows are long enough that it keeps them for as long as the test lasts.
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
    assert_eq!(remaining(limiter, limits[0]).await, 10, "21 windows later nothing of the nine is in use");
    assert_eq!(remaining(limiter, limits[1]).await, 1_000);
}

/// Receipts in any order and at any time: the limit answers as one that never saw the calls that were refunded.
async fn is_as_if_the_call_had_not_been_made(subject: impl AsyncFn() -> Subject, seeds: u64) {
    let (window_ms, max, limited) = (1_000_000, 60, limit("60/1000s"));
    for seed in 0..seeds {
        let (subject, mut random) = (subject().await, Random::new(seed));
        let mut calls: Vec<(u64, Allowed, u32)> = Vec::new();
        for step in 0..250 {
            // More runs than a short log has, and fewer than are merged.
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

/// The mirror too removes the permits of the receipt, or an outage would deny what was free before it.
#[tokio::test]
async fn refunds_keep_no_old_permit_of_the_mirror_alive() {
    let (mut server, clock) = (RedisServer::start(), ManualClock::new());
    let limiter = on(&server).clock(clock.clone()).connect().await.expect("connects");
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

/// What the stand-in mirrors is given back too, or an outage would deny what was free before it.
#[tokio::test]
async fn the_mirror_is_refunded_with_the_store() {
    for algorithm in ALL {
        let mut server = RedisServer::start();
        let limiter = on(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
        // A fixed window that is not over before this test is.
        let limit = counted("5/366d", algorithm);
        let taken = allowed(&limiter, limit, 5).await;
        assert_eq!(taken.source(), Source::Store);
        limiter.refund(&taken).await.expect("the store answers");
        server.kill();
        let on_standby = allowed(&limiter, limit, 5).await;
        assert_eq!(on_standby.source(), Source::Standby, "{algorithm:?}");
        let full = limiter.peek(&key("a"), &limit).await.expect("the stand-in answers");
        assert!(full.is_denied(), "{algorithm:?}");
        limiter.refund(&on_standby).await.expect("the stand-in gives back what it granted itself");
        assert_eq!(remaining(&limiter, limit).await, 5, "{algorithm:?}");
        let error = limiter.refund(&allowed(&Limiter::memory(), limit, 1).await).await.expect_err("not its own");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn a_refund_that_fails_is_told_and_not_tried_again() {
    let mut server = RedisServer::start();
    let limiter = on(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
    let taken = allowed(&limiter, limit("1/366d"), 1).await;
    server.kill();
    let error = limiter.refund(&taken).await.expect_err("the store is gone");
    assert!(error.is_transient(), "{error}");
    limiter.refund(&taken).await.expect("the receipt is used up");
    assert_eq!(remaining(&limiter, limit("1/366d")).await, 0, "what may not be back counts on");
}

#[tokio::test]
async fn there_is_nothing_to_give_back_where_a_policy_allowed() {
    let limiter =
        Limiter::builder().url("redis+unix:///nowhere.sock").on_error(OnError::Open).build().expect("a limiter");
    let opened = allowed(&limiter, limit("1/10s"), 1).await;
    assert_eq!(opened.source(), Source::Policy);
    limiter.refund(&opened).await.expect("nothing to do");
}

/// As observers see it: a receipt of a call that they were told of.
#[tokio::test]
async fn receipts_show_no_keys() {
    let (limiter, secret) = (Limiter::memory(), unique("secret"));
    let taken = limiter.check(&Key::new("user:").part(&secret), &limit("1/10s")).await.expect("the store answers");
    assert!(!format!("{taken:?}").contains(&secret));
}
