//! What one decision takes: of one set, of several, and of many at once.

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Denied, Key};

use super::{Fleet, denied, limit};
use crate::support;

#[tokio::test]
async fn above_ten_thousand_are_denied_for_good() {
    let fleet = Fleet::new().await;
    for cost in [10_001, 4_000_000_000, u32::MAX] {
        let refused = denied(fleet.take("4294967295/10s", cost).await);
        assert!(refused.is_final());
        assert_eq!((refused.retry_after(), refused.remaining()), (Denied::NEVER, u32::MAX));
    }
    assert_eq!(fleet.card(), 0);
    assert_eq!(fleet.take("4294967295/10s", 10_000).await.remaining(), u32::MAX - 10_000);
    assert_eq!(fleet.card(), 10_000);
    let limit = limit("4294967295/10s");
    for cost in [5_000, 5_001] {
        let both = [(&fleet.key, &limit, 5_000), (&fleet.key, &limit, cost)];
        let decision = fleet.limiter.check_all(&both).await.expect("the store answers");
        assert_eq!(decision.is_allowed(), cost == 5_000, "together they are {}", 5_000 + cost);
    }
    assert_eq!(fleet.card(), 20_000);
}

#[tokio::test]
async fn of_several_keys_are_all_or_nothing() {
    let mut fleet = Fleet::new().await;
    let (zset, compact) = (limit("2/10s"), support::limit("3/10s"));
    let other = Key::new(unique("other"));
    let both = async |fleet: &Fleet| {
        let questions = [(&fleet.key, &zset, 1), (&other, &compact, 1)];
        fleet.limiter.check_all(&questions).await.expect("the store answers")
    };
    assert!(both(&fleet).await.is_allowed());
    assert!(fleet.theirs(10_000, 2));
    let refused = denied(both(&fleet).await);
    assert_eq!((refused.limit(), refused.retry_after()), (zset, Duration::from_secs(10)));
    assert_eq!(fleet.limiter.peek(&other, &compact).await.expect("the store answers").remaining(), 2);
    fleet.advance(10_000);
    assert!(both(&fleet).await.is_allowed());
    assert!(fleet.limiter.check_n(&other, &compact, 2).await.expect("the store answers").is_allowed());
    let refused = denied(both(&fleet).await);
    assert_eq!(refused.limit(), compact);
    assert_eq!(fleet.card(), 1);
}

#[tokio::test]
async fn of_one_set_add_up() {
    let fleet = Fleet::new().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    let check = async |first, second| {
        let questions = [(&fleet.key, &five, first), (&fleet.key, &seven, second)];
        fleet.limiter.check_all(&questions).await.expect("the store answers")
    };
    assert!(check(3, 5).await.is_denied());
    assert_eq!(check(3, 4).await.remaining(), 0);
    assert_eq!(fleet.card(), 7);
}

/// Several windows on one name are one history: a call is put in once, and stays for the longest.
#[tokio::test]
async fn of_several_windows_count_once_in_each() {
    let fleet = Fleet::new().await;
    let limits = [limit("3/1s"), limit("5/10s")];
    let check = async |order: [usize; 2]| {
        let questions = order.map(|index| (&fleet.key, &limits[index], 1));
        fleet.limiter.check_all(&questions).await.expect("the store answers")
    };
    for (left, order) in [(2, [0, 1]), (1, [1, 0]), (0, [0, 1])] {
        assert_eq!(check(order).await.remaining(), left);
    }
    assert_eq!(fleet.card(), 3);
    assert!(fleet.ttl() > 10_000);
    let refused = denied(check([0, 1]).await);
    assert_eq!((refused.limit(), refused.retry_after()), (limits[0], Duration::from_secs(1)));
    fleet.advance(1_000);
    assert_eq!(check([0, 1]).await.remaining(), 1);
    assert_eq!(check([1, 0]).await.remaining(), 0);
    assert_eq!(fleet.card(), 5);
    let refused = denied(check([0, 1]).await);
    assert_eq!((refused.limit(), refused.retry_after()), (limits[1], Duration::from_secs(9)));
    fleet.advance(9_000);
    let back = check([0, 1]).await.into_result().expect("three are back");
    assert_eq!((back.limit(), back.remaining(), fleet.card()), (limits[0], 2, 3));
    fleet.limiter.refund(&back).await.expect("the store answers");
    assert_eq!(fleet.card(), 2, "taken out once for both");
    let questions = [(&fleet.key, &limits[0], 3), (&fleet.key, &limits[1], 1)];
    let uneven = fleet.limiter.check_all(&questions).await.expect("the store answers").into_result().expect("free");
    assert_eq!(fleet.card(), 5, "the larger of the two");
    fleet.limiter.refund(&uneven).await.expect("the store answers");
    assert_eq!(fleet.card(), 2);
    assert!(RedisServer::shared().pttl(&fleet.set()) > 0);
}
