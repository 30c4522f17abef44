//! Permits given back: the very entries that the call put in.

use std::time::Duration;

use limiter_testkit::{Oracle, Random};
use rate_limited::Allowed;

use super::{Fleet, denied, limit};

async fn taken(fleet: &Fleet, limited: &str, cost: u32) -> Allowed {
    fleet.take(limited, cost).await.into_result().expect("a place is free")
}

#[tokio::test]
async fn leave_what_others_took() {
    let mut fleet = Fleet::new().await;
    assert!(fleet.theirs(10_000, 5));
    fleet.advance(1_000);
    let own = taken(&fleet, "5/10s", 3).await;
    assert!(fleet.theirs(10_000, 5));
    fleet.limiter.refund(&own).await.expect("the store answers");
    assert_eq!(fleet.card(), 2);
    let refused = denied(fleet.take("5/10s", 4).await);
    assert_eq!((refused.remaining(), refused.retry_after()), (3, Duration::from_secs(9)), "the first is theirs");
    fleet.limiter.refund(&own).await.expect("nothing to do");
    assert_eq!(fleet.card(), 2, "a receipt twice");
    assert!(fleet.ttl() > 0);
}

#[tokio::test]
async fn of_before_a_reset_give_back_nothing() {
    let mut fleet = Fleet::new().await;
    let early = taken(&fleet, "5/10s", 2).await;
    fleet.limiter.reset(&fleet.key, &limit("5/10s")).await.expect("the store answers");
    // In the same millisecond.
    assert!(fleet.theirs(10_000, 5));
    fleet.clock.advance(Duration::from_micros(1));
    let _late = taken(&fleet, "5/10s", 2).await;
    fleet.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(fleet.card(), 3);
}

#[tokio::test]
async fn of_what_is_over_give_back_nothing() {
    let fleet = Fleet::new().await;
    let early = taken(&fleet, "5/10s", 2).await;
    fleet.advance(9_999);
    let late = taken(&fleet, "5/10s", 3).await;
    fleet.advance(1);
    fleet.limiter.refund(&early).await.expect("the store answers");
    assert_eq!(fleet.take("5/10s", 0).await.remaining(), 2);
    assert_eq!(fleet.card(), 5, "nothing was written");
    fleet.limiter.refund(&late).await.expect("the store answers");
    assert_eq!(fleet.take("5/10s", 0).await.remaining(), 5);
    assert_eq!(fleet.command("EXISTS", &[]).integer(), 0, "what was over went with it");
}

/// In any order, and in between other calls: as if the call had not been made.
#[tokio::test]
async fn are_as_if_the_call_had_not_been() {
    for seed in 0..20 {
        let (mut fleet, mut random) = (Fleet::new().await, Random::new(seed));
        let mut calls: Vec<(u64, u32, Option<Allowed>)> = Vec::new();
        for step in 0..80 {
            fleet.advance(random.below(900));
            let now = fleet.now_ms();
            // Only what was not given back.
            let mut oracle = Oracle::new();
            for (at, cost, _) in &calls {
                assert!(oracle.check(*at, 10_000, u32::MAX, *cost).allowed);
            }
            let cost = u32::try_from(random.between(1, 4)).expect("small");
            match random.below(4) {
                0 => {
                    let expected = oracle.check(now, 10_000, 12, 1);
                    assert_eq!(fleet.theirs(10_000, 12), expected.allowed, "seed {seed}, step {step}");
                    if expected.allowed {
                        calls.push((now, 1, None));
                    }
                }
                1 if calls.iter().any(|(_, _, receipt)| receipt.is_some()) => {
                    let place = usize::try_from(random.any() >> 40).expect("small") % calls.len();
                    if let (_, _, Some(receipt)) = &calls[place] {
                        fleet.limiter.refund(receipt).await.expect("the store answers");
                        calls.remove(place);
                    }
                }
                _ => {
                    let expected = oracle.check(now, 10_000, 12, cost);
                    let decision = fleet.take("12/10s", cost).await;
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
