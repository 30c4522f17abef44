//! Tests of refunds: they remove exactly the entries that the call added.

use std::time::Duration;

use limiter_testkit::{Oracle, Random};
use rate_limited::Allowed;

use super::{SharedKey, denied, limit};

async fn taken(shared: &SharedKey, limited: &str, cost: u32) -> Allowed {
    shared.take(limited, cost).await.into_result().expect("a permit is free")
}

#[tokio::test]
async fn refund_leaves_entries_of_others() {
    let mut shared = SharedKey::new().await;
    assert!(shared.spring_allows(10_000, 5));
    shared.advance(1_000);
    let own = taken(&shared, "5/10s", 3).await;
    assert!(shared.spring_allows(10_000, 5));
    shared.limiter.refund(&own).await.expect("the store answers");
    assert_eq!(shared.entry_count(), 2);
    let refused = denied(shared.take("5/10s", 4).await);
    assert_eq!((refused.remaining(), refused.retry_after()), (3, Duration::from_secs(9)), "the first entry is theirs");
    shared.limiter.refund(&own).await.expect("nothing to do");
    assert_eq!(shared.entry_count(), 2, "a receipt was refunded twice");
    assert!(shared.ttl() > 0);
}

#[tokio::test]
async fn refund_of_a_part_removes_as_many_own_entries() {
    let mut shared = SharedKey::new().await;
    assert!(shared.spring_allows(10_000, 9));
    let own = taken(&shared, "9/10s", 5).await;
    for (permits, left) in [(2, 4), (0, 4), (1, 3), (7, 1), (1, 1)] {
        shared.limiter.refund_n(&own, permits).await.expect("the store answers");
        assert_eq!(shared.entry_count(), left, "{permits}");
    }
}

#[tokio::test]
async fn refund_from_before_a_reset_removes_nothing() {
    let mut shared = SharedKey::new().await;
    let early = taken(&shared, "5/10s", 2).await;
    shared.limiter.reset(&shared.key, &limit("5/10s")).await.expect("the store answers");
    // In the same millisecond.
    assert!(shared.spring_allows(10_000, 5));
    shared.clock.advance(Duration::from_micros(1));
    let _late = taken(&shared, "5/10s", 2).await;
    shared.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(shared.entry_count(), 3);
}

#[tokio::test]
async fn refund_of_expired_entries_removes_nothing() {
    let shared = SharedKey::new().await;
    let early = taken(&shared, "5/10s", 2).await;
    shared.advance(9_999);
    let late = taken(&shared, "5/10s", 3).await;
    shared.advance(1);
    shared.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(shared.take("5/10s", 0).await.remaining(), 2);
    assert_eq!(shared.entry_count(), 5, "the refund writes nothing");
    shared.limiter.refund(&late).await.expect("the store answers");
    assert_eq!(shared.take("5/10s", 0).await.remaining(), 5);
    assert_eq!(shared.command("EXISTS", &[]).integer(), 0, "expired entries were removed too");
}

/// Refunds in random order between other calls: decisions equal those of an oracle without the refunded calls.
#[tokio::test]
async fn refunded_calls_leave_no_trace() {
    for seed in 0..20 {
        let (mut shared, mut random) = (SharedKey::new().await, Random::new(seed));
        let mut calls: Vec<(u64, u32, Option<Allowed>)> = Vec::new();
        for step in 0..80 {
            shared.advance(random.below(900));
            let now = shared.now_ms();
            // Only calls that were not refunded.
            let mut oracle = Oracle::new();
            for (at, cost, _) in &calls {
                assert!(oracle.check(*at, 10_000, u32::MAX, *cost).allowed);
            }
            let cost = u32::try_from(random.between(1, 4)).expect("small");
            match random.below(4) {
                0 => {
                    let expected = oracle.check(now, 10_000, 12, 1);
                    assert_eq!(shared.spring_allows(10_000, 12), expected.allowed, "seed {seed}, step {step}");
                    if expected.allowed {
                        calls.push((now, 1, None));
                    }
                }
                1 if calls.iter().any(|(_, _, receipt)| receipt.is_some()) => {
                    let index = usize::try_from(random.any() >> 40).expect("small") % calls.len();
                    if let (_, _, Some(receipt)) = &calls[index] {
                        shared.limiter.refund(receipt).await.expect("the store answers");
                        calls.remove(index);
                    }
                }
                _ => {
                    let expected = oracle.check(now, 10_000, 12, cost);
                    let decision = shared.take("12/10s", cost).await;
                    assert_eq!(decision.remaining(), expected.remaining, "seed {seed}, step {step}");
                    match decision.into_result() {
                        Ok(receipt) => calls.push((now, cost, Some(receipt))),
                        Err(denied) => {
                            let wait = Some(u64::try_from(denied.retry_after().as_millis()).expect("small"));
                            assert_eq!(wait, expected.retry_after, "seed {seed}, step {step}");
                        }
                    }
                }
            }
        }
    }
}
