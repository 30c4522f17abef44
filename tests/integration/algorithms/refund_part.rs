//! Tests of refunds of a part: decisions are as if the call had cost less.

use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer, full_or};
use rate_limited::{Algorithm, Allowed, ErrorKind, Key, Limit, Limiter, OnError, Source};

use super::{ALL_ALGORITHMS, limit_with_algorithm, on_every_store};
use crate::support::{Subject, builder_for, key, limit};

on_every_store! {
    parts_are_refunded_as_if_the_call_had_cost_less,
    parts_that_are_refunded_later_count_as_if_the_call_had_cost_less,
    parts_that_tasks_refund_together_are_at_most_the_cost,
    a_part_is_refunded_of_each_request_up_to_its_cost,
    part_of_a_call_of_another_limiter_is_rejected,
}

async fn taken(limiter: &Limiter, key: &Key, limit: Limit, cost: u32) -> Allowed {
    limiter.check_n(key, &limit, cost).await.expect("the store answers").into_result().expect("a permit is free")
}

/// Asserts that the counters of two keys are equal, by all decisions that they make now.
async fn assert_same(limiter: &Limiter, limit: Limit, keys: [&Key; 2], context: &str) {
    let mut seen = Vec::new();
    for key in keys {
        let peeked = limiter.peek(key, &limit).await.expect("the store answers");
        // A cost of 0 takes nothing.
        let free = limiter.check_n(key, &limit, 0).await.expect("the store answers").into_result().expect("allowed");
        let retry_after = peeked.clone().into_result().err().map(|denied| denied.retry_after());
        seen.push((peeked.is_allowed(), peeked.remaining(), retry_after, free.reset_after()));
    }
    assert_eq!(seen[0], seen[1], "{limit} {:?}: {context}", limit.algorithm());
}

async fn parts_are_refunded_as_if_the_call_had_cost_less(subject: Subject, algorithm: Algorithm) {
    let (limiter, limit) = (&subject.limiter, limit_with_algorithm("5/10s", algorithm));
    subject.clock.advance(Duration::from_micros(1_234));
    let parted = key("parted");
    let receipt = taken(limiter, &parted, limit, 5).await;
    let mut left = 5;
    for permits in [2, 0, 1, 1] {
        limiter.refund_n(&receipt, permits).await.expect("the store answers");
        left -= permits;
        let cheaper = Key::new("cheaper").part(left).part(permits);
        let _cheaper = taken(limiter, &cheaper, limit, left).await;
        assert_same(limiter, limit, [&parted, &cheaper], &format!("{left} left")).await;
    }
    for _ in 0..2 {
        limiter.refund(&receipt).await.expect("the store answers");
        assert_same(limiter, limit, [&parted, &key("unused")], "none left").await;
    }
    let _all = taken(limiter, &parted, limit, 5).await;
    limiter.refund_n(&receipt, 1).await.expect("nothing to do");
    limiter.refund(&receipt).await.expect("nothing to do");
    let _others = taken(limiter, &key("full"), limit, 5).await;
    assert_same(limiter, limit, [&parted, &key("full")], "the receipt is used up").await;
}

async fn parts_that_are_refunded_later_count_as_if_the_call_had_cost_less(subject: Subject, algorithm: Algorithm) {
    // Redis expires keys by its own clock, so the windows are longer than the test takes.
    let (limiter, window_us) = (&subject.limiter, 1_000_000_000);
    let limit = limit_with_algorithm("50/1000s", algorithm);
    for seed in 0..full_or(40, 8) {
        let mut random = Random::new(seed);
        let [parted, cheaper] = ["parted", "cheaper"].map(|name| Key::new(name).part(seed));
        let mut left = u32::try_from(random.between(1, 50)).expect("small");
        let parts: Vec<_> = (0..3).map(|_| u32::try_from(random.below(20)).expect("small")).collect();
        let receipt = taken(limiter, &parted, limit, left).await;
        left -= parts.iter().sum::<u32>().min(left);
        let _cheaper = taken(limiter, &cheaper, limit, left).await;
        for permits in parts {
            subject.clock.advance(Duration::from_micros(random.below(window_us / 3)));
            limiter.refund_n(&receipt, permits).await.expect("the store answers");
        }
        assert_same(limiter, limit, [&parted, &cheaper], &format!("seed {seed}, {left} left")).await;
        subject.clock.advance(Duration::from_micros(random.below(window_us / 8)));
        assert_same(limiter, limit, [&parted, &cheaper], &format!("seed {seed}, {left} left, later")).await;
    }
}

async fn parts_that_tasks_refund_together_are_at_most_the_cost(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("9/10s", algorithm);
    let others = if algorithm == Algorithm::LeakyBucket { 0 } else { 3 };
    let _others = taken(&subject.limiter, &key("a"), limit, others).await;
    let receipt = taken(&subject.limiter, &key("a"), limit, 6).await;
    let refunds: Vec<_> = (0..8)
        .map(|_| {
            let (limiter, receipt) = (subject.limiter.clone(), receipt.clone());
            tokio::spawn(async move { limiter.refund_n(&receipt, 1).await })
        })
        .collect();
    for refund in refunds {
        refund.await.expect("no panic").expect("the store answers");
    }
    let _same = taken(&subject.limiter, &key("b"), limit, others).await;
    let keys = [key("a"), key("b")];
    assert_same(&subject.limiter, limit, [&keys[0], &keys[1]], "8 of 6 refunded").await;
}

async fn a_part_is_refunded_of_each_request_up_to_its_cost(subject: Subject, algorithm: Algorithm) {
    let (limiter, limit) = (&subject.limiter, limit_with_algorithm("9/10s", algorithm));
    let [small, large, free] = ["small", "large", "free"].map(key);
    let requests = [(&small, &limit, 2), (&large, &limit, 5), (&free, &limit, 0)];
    let receipt = limiter.check_all(&requests).await.expect("the store answers").into_result().expect("free");
    for (permits, left) in [(1, [1, 4]), (2, [0, 2]), (1, [0, 1]), (u32::MAX, [0, 0]), (1, [0, 0])] {
        limiter.refund_n(&receipt, permits).await.expect("the store answers");
        for (key, cost) in [&small, &large].into_iter().zip(left) {
            let same = Key::new("same").part(key.encoded()).part(cost).part(permits);
            let _same = taken(limiter, &same, limit, cost).await;
            assert_same(limiter, limit, [key, &same], &format!("{left:?} left")).await;
        }
        assert_same(limiter, limit, [&free, &key("unused")], "it cost nothing").await;
    }
}

async fn part_of_a_call_of_another_limiter_is_rejected(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    let receipt = taken(&subject.limiter, &key("a"), limit, 5).await;
    let error = Limiter::memory().refund_n(&receipt, 1).await.expect_err("a receipt of another limiter");
    assert_eq!(error.kind(), ErrorKind::Config);
    subject.limiter.refund(&receipt).await.expect("the store answers");
    assert_same(&subject.limiter, limit, [&key("a"), &key("unused")], "nothing of it was used up").await;
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn refunded_parts_leave_no_trace() {
        assert_refunded_parts_leave_no_trace(async || Subject::memory().await, 20).await;
    }
}

mod on_redis {
    use super::*;

    #[tokio::test]
    async fn refunded_parts_leave_no_trace() {
        assert_refunded_parts_leave_no_trace(async || Subject::redis().await, 3).await;
    }
}

/// Refunds of parts, in random order and at random times: decisions are those of an oracle for which each call cost
/// only what is left of it.
async fn assert_refunded_parts_leave_no_trace(subject: impl AsyncFn() -> Subject, seeds: u64) {
    let (window_ms, max, limited) = (1_000_000, 90, limit("90/1000s"));
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
            if random.below(5) < 3 && !calls.is_empty() {
                let index = usize::try_from(random.below(calls.len() as u64)).expect("small");
                let permits = u32::try_from(random.below(4)).expect("small");
                let (_, receipt, left) = &mut calls[index];
                *left -= permits.min(*left);
                subject.limiter.refund_n(receipt, permits).await.expect("the store answers");
            }
            let mut without_parts = Oracle::new();
            for (at_ms, _, left) in &calls {
                assert!(without_parts.check(*at_ms, window_ms, u32::MAX, *left).allowed);
            }
            let cost = u32::try_from(random.between(1, 5)).expect("small");
            let expected = without_parts.check(now_ms, window_ms, max, cost);
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

/// Otherwise an outage would deny calls that had room before, or allow more than the limit.
#[tokio::test]
async fn part_is_refunded_to_the_standby_mirror_too() {
    for algorithm in ALL_ALGORITHMS {
        let mut server = RedisServer::start();
        let limiter = builder_for(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
        // A window longer than the test.
        let limit = limit_with_algorithm("5/366d", algorithm);
        let keys = [key("parted"), key("refunded")];
        let [parted, refunded] = [taken(&limiter, &keys[0], limit, 5).await, taken(&limiter, &keys[1], limit, 5).await];
        limiter.refund_n(&parted, 2).await.expect("the store answers");
        limiter.refund_n(&parted, 1).await.expect("the store answers");
        limiter.refund_n(&refunded, 2).await.expect("the store answers");
        limiter.refund(&refunded).await.expect("the store answers");
        server.kill();
        let fits = async |key: &Key, cost: u32| {
            let decision = limiter.check_n(key, &limit, cost).await.expect("the standby limiter answers");
            let result = decision.into_result();
            let source = result.as_ref().map_or_else(|denied| denied.source(), Allowed::source);
            assert_eq!(source, Source::Standby, "{algorithm:?}");
            result
        };
        if algorithm == Algorithm::LeakyBucket {
            // The turns of the rest take two fifths of the window.
            let denied = fits(&keys[0], 1).await.expect_err("two turns are ahead");
            let turns = denied.retry_after().as_secs_f64() / limit.window().as_secs_f64();
            assert!((0.399..0.4001).contains(&turns), "{turns}");
        } else {
            assert!(fits(&keys[0], 4).await.is_err(), "{algorithm:?}");
            assert!(fits(&keys[0], 3).await.is_ok(), "{algorithm:?}");
        }
        let on_standby = fits(&keys[1], 5).await.expect("all permits are free");
        limiter.refund_n(&on_standby, 4).await.expect("the standby limiter refunds its own permits");
        limiter.refund_n(&on_standby, 4).await.expect("the standby limiter refunds its own permits");
        assert!(fits(&keys[1], 5).await.is_ok(), "{algorithm:?}");
    }
}

#[tokio::test]
async fn failed_refund_of_a_part_uses_up_that_part() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).deadline(Duration::from_millis(100)).connect().await.expect("connects");
    let limit = limit("5/366d");
    let receipt = taken(&limiter, &key("a"), limit, 5).await;
    server.kill();
    let error = limiter.refund_n(&receipt, 5).await.expect_err("the server is down");
    assert!(error.is_transient(), "{error}");
    limiter.refund_n(&receipt, 1).await.expect("the receipt is used up");
    let standby = limiter.peek(&key("a"), &limit).await.expect("the standby limiter answers");
    assert_eq!(standby.remaining(), 0, "permits whose refund may have failed still count");
}

#[tokio::test]
async fn part_of_a_call_that_took_nothing_is_nothing() {
    let limiter =
        Limiter::builder().url("redis+unix:///nowhere.sock").on_error(OnError::Open).build().expect("a limiter");
    let opened = taken(&limiter, &key("a"), limit("1/10s"), 1).await;
    assert_eq!(opened.source(), Source::Policy);
    limiter.refund_n(&opened, 1).await.expect("nothing to do");
}

#[test]
fn part_is_refunded_by_the_blocking_method() {
    let (limiter, limit) = (Limiter::memory(), limit("5/1h"));
    let receipt = limiter.check_n_blocking(&key("a"), &limit, 5).expect("answers").into_result().expect("free");
    limiter.refund_n_blocking(&receipt, 2).expect("refunded");
    assert_eq!(limiter.peek_blocking(&key("a"), &limit).expect("answers").remaining(), 2);
}
