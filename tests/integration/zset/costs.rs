//! Tests of costs: on one set, on several keys, and on several windows of a key.

use std::time::Duration;

use limiter_testkit::unique;
use rate_limited::{Denied, Key};

use super::{SharedKey, denied, limit};
use crate::support;

#[tokio::test]
async fn costs_above_ten_thousand_are_denied_permanently() {
    let shared = SharedKey::new().await;
    for cost in [10_001, 4_000_000_000, u32::MAX] {
        let refused = denied(shared.take("4294967295/10s", cost).await);
        assert!(refused.is_final());
        assert_eq!((refused.retry_after(), refused.remaining()), (Denied::NEVER, u32::MAX));
    }
    assert_eq!(shared.entry_count(), 0);
    assert_eq!(shared.take("4294967295/10s", 10_000).await.remaining(), u32::MAX - 10_000);
    assert_eq!(shared.entry_count(), 10_000);
    let limit = limit("4294967295/10s");
    for cost in [5_000, 5_001] {
        let both = [(&shared.key, &limit, 5_000), (&shared.key, &limit, cost)];
        let decision = shared.limiter.check_all(&both).await.expect("the store answers");
        assert_eq!(decision.is_allowed(), cost == 5_000, "together they are {}", 5_000 + cost);
    }
    assert_eq!(shared.entry_count(), 20_000);
}

#[tokio::test]
async fn costs_on_several_keys_are_taken_together_or_not_at_all() {
    let mut shared = SharedKey::new().await;
    let (zset, compact) = (limit("2/10s"), support::limit("3/10s"));
    let other = Key::new(unique("other"));
    let both = async |shared: &SharedKey| {
        let requests = [(&shared.key, &zset, 1), (&other, &compact, 1)];
        shared.limiter.check_all(&requests).await.expect("the store answers")
    };
    assert!(both(&shared).await.is_allowed());
    assert!(shared.spring_allows(10_000, 2));
    let refused = denied(both(&shared).await);
    assert_eq!((refused.limit(), refused.retry_after()), (zset, Duration::from_secs(10)));
    assert_eq!(shared.limiter.peek(&other, &compact).await.expect("the store answers").remaining(), 2);
    shared.advance(10_000);
    assert!(both(&shared).await.is_allowed());
    assert!(shared.limiter.check_n(&other, &compact, 2).await.expect("the store answers").is_allowed());
    let refused = denied(both(&shared).await);
    assert_eq!(refused.limit(), compact);
    assert_eq!(shared.entry_count(), 1);
}

#[tokio::test]
async fn costs_on_one_set_add_up() {
    let shared = SharedKey::new().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    let check = async |first, second| {
        let requests = [(&shared.key, &five, first), (&shared.key, &seven, second)];
        shared.limiter.check_all(&requests).await.expect("the store answers")
    };
    assert!(check(3, 5).await.is_denied());
    assert_eq!(check(3, 4).await.remaining(), 0);
    assert_eq!(shared.entry_count(), 7);
}

/// All windows of a key share one set: a call has one entry per permit, which stays for the longest window.
#[tokio::test]
async fn cost_on_several_windows_is_stored_once() {
    let shared = SharedKey::new().await;
    let limits = [limit("3/1s"), limit("5/10s")];
    let check = async |order: [usize; 2]| {
        let requests = order.map(|index| (&shared.key, &limits[index], 1));
        shared.limiter.check_all(&requests).await.expect("the store answers")
    };
    for (left, order) in [(2, [0, 1]), (1, [1, 0]), (0, [0, 1])] {
        assert_eq!(check(order).await.remaining(), left);
    }
    assert_eq!(shared.entry_count(), 3);
    assert!(shared.ttl() > 10_000);
    let refused = denied(check([0, 1]).await);
    assert_eq!((refused.limit(), refused.retry_after()), (limits[0], Duration::from_secs(1)));
    shared.advance(1_000);
    assert_eq!(check([0, 1]).await.remaining(), 1);
    assert_eq!(check([1, 0]).await.remaining(), 0);
    assert_eq!(shared.entry_count(), 5);
    let refused = denied(check([0, 1]).await);
    assert_eq!((refused.limit(), refused.retry_after()), (limits[1], Duration::from_secs(9)));
    shared.advance(9_000);
    let back = check([0, 1]).await.into_result().expect("three are back");
    assert_eq!((back.limit(), back.remaining(), shared.entry_count()), (limits[0], 2, 3));
    shared.limiter.refund(&back).await.expect("the store answers");
    assert_eq!(shared.entry_count(), 2, "removed once for both limits");
    let requests = [(&shared.key, &limits[0], 3), (&shared.key, &limits[1], 1)];
    let uneven = shared.limiter.check_all(&requests).await.expect("the store answers").into_result().expect("free");
    assert_eq!(shared.entry_count(), 5, "the larger of the two costs");
    shared.limiter.refund(&uneven).await.expect("the store answers");
    assert_eq!(shared.entry_count(), 2);
    assert!(shared.ttl() > 0);
}
