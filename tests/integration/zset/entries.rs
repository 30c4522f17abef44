//! The entries of a set: one for each permit, whatever the clock does; and those that others put there.

use std::time::Duration;

use limiter_testkit::{Random, RedisServer};
use rate_limited::Decision;

use super::{Fleet, denied, limit};

/// By a clock that stands still, and one that steps back to the same microsecond.
#[tokio::test]
async fn are_as_many_as_permits() {
    let (fleet, mut random) = (Fleet::new().await, Random::new(5));
    let (mut taken, mut receipts) = (0, Vec::new());
    for step in 0..400 {
        match random.below(8) {
            0 => fleet.clock.advance(Duration::from_micros(random.below(3))),
            1 => fleet.clock.rewind(Duration::from_micros(random.below(3))),
            2 | 3 if !receipts.is_empty() => {
                let place = usize::try_from(random.any() >> 40).expect("small") % receipts.len();
                let (receipt, cost) = receipts.swap_remove(place);
                fleet.limiter.refund(&receipt).await.expect("the store answers");
                taken -= i64::from(cost);
            }
            _ => {
                let cost = u32::try_from(random.between(1, 5)).expect("small");
                let decision = fleet.take("100000/1h", cost).await;
                let receipt = decision.into_result().expect("there is room");
                taken += i64::from(cost);
                assert_eq!(i64::from(receipt.remaining()), 100_000 - taken, "step {step}");
                receipts.push((receipt, cost));
            }
        }
        assert_eq!(fleet.card(), taken, "step {step}");
    }
}

/// A letter is first in ours, and never in theirs.
#[tokio::test]
async fn of_ours_are_none_of_theirs() {
    let mut fleet = Fleet::new().await;
    let _ = fleet.take("9/10s", 2).await;
    assert!(fleet.theirs(10_000, 9));
    let members = fleet.command("ZRANGE", &["0", "-1"]).array();
    let ours = members.into_iter().map(|member| member.text()).filter(|member| member.starts_with('r')).count();
    assert_eq!(ours, 2);
    assert_eq!(fleet.command("ZSCORE", &["r1000000000000000.0"]).text(), "1000000000000");
}

/// Another's stamps: what is no whole number is rounded up, what is infinite is at no time in a window.
#[tokio::test]
async fn with_odd_stamps_count_while_they_are_live() {
    let fleet = Fleet::new().await;
    let now = fleet.now_ms();
    for (score, member) in [("-inf", "a"), ("-5", "b"), ("0", "c"), ("+inf", "d"), ("1e300", "e")] {
        fleet.add(score, member);
    }
    assert_eq!(fleet.take("2/10s", 0).await.remaining(), 2, "none of these counts");
    fleet.add(&format!("{now}.5"), "f");
    fleet.add(&format!("{}.5", now - 10_000), "g");
    assert_eq!(fleet.take("2/10s", 0).await.remaining(), 0);
    let refused = denied(fleet.take("2/10s", 1).await);
    assert_eq!(refused.retry_after(), Duration::from_millis(1));
    assert_eq!(refused.reset_after(), Duration::from_millis(10_001));
    fleet.advance(1);
    assert!(fleet.take("2/10s", 1).await.is_allowed());
    assert!(fleet.ttl() > 10_000);
    assert_eq!(fleet.command("ZRANGE", &["0", "-1"]).array().len(), 2, "what is over, or too far ahead, is gone");
}

/// Further ahead than a window a stamp proves nothing. A look leaves it, and a call that is allowed trims it.
#[tokio::test]
async fn from_far_ahead_do_not_count_and_are_trimmed() {
    let fleet = Fleet::new().await;
    let now = fleet.now_ms();
    fleet.add(&(now + 10_000).to_string(), "a window ahead");
    fleet.add(&(now + 10_001).to_string(), "further ahead");
    assert_eq!(fleet.limiter.peek(&fleet.key, &limit("3/10s")).await.expect("answers").remaining(), 2);
    assert!(fleet.take("1/10s", 1).await.is_denied());
    assert_eq!(fleet.card(), 2, "nothing was written");
    assert_eq!(fleet.take("3/10s", 1).await.remaining(), 1);
    assert_eq!(fleet.card(), 2, "the one further ahead is gone");
    fleet.advance(1);
    assert_eq!(fleet.take("3/10s", 0).await.remaining(), 1, "and does not come to count");
}

/// A clock that stepped back by an hour leaves entries that would block the key when the hour has passed.
#[tokio::test]
async fn from_before_a_large_step_back_never_count_again() {
    let fleet = Fleet::new().await;
    assert!(fleet.take("2/10s", 2).await.is_allowed());
    fleet.clock.rewind(Duration::from_secs(3_600));
    assert!(fleet.take("2/10s", 1).await.is_allowed());
    fleet.advance(3_595_000);
    let allowed = fleet.take("2/10s", 1).await.into_result().expect("those of before the step are gone");
    assert_eq!((allowed.remaining(), fleet.card()), (1, 1));
}

/// Several windows in one decision: what the longest of them still counts is kept.
#[tokio::test]
async fn ahead_within_the_longest_window_are_kept() {
    let fleet = Fleet::new().await;
    let (now, limits) = (fleet.now_ms(), [limit("9/1s"), limit("9/10s")]);
    for (ahead, member) in [(999, "a"), (1_001, "b"), (10_000, "c"), (10_001, "d")] {
        fleet.add(&(now + ahead).to_string(), member);
    }
    let both = limits.each_ref().map(|limit| (&fleet.key, limit, 1));
    let decision = fleet.limiter.check_all(&both).await.expect("the store answers");
    assert_eq!(decision.remaining(), 5, "three of theirs and one of ours");
    assert_eq!(fleet.card(), 4);
    assert_eq!(fleet.take("9/1s", 1).await.remaining(), 6, "one of theirs and two of ours");
    assert_eq!(fleet.card(), 3, "a decision by the shorter window alone trims what only the longer counts");
}

#[tokio::test]
async fn from_far_ahead_are_trimmed_a_bounded_number_at_once() {
    let fleet = Fleet::new().await;
    for _ in 0..2 {
        assert!(fleet.take("1000000/10s", 10_000).await.is_allowed());
    }
    fleet.clock.rewind(Duration::from_secs(60));
    for left in [10_001, 2, 3] {
        assert!(fleet.take("1000000/10s", 1).await.is_allowed());
        assert_eq!(fleet.card(), left);
    }
}

#[tokio::test]
async fn that_are_over_are_trimmed_a_bounded_number_at_once() {
    let fleet = Fleet::new().await;
    for _ in 0..3 {
        assert!(fleet.take("1000000/10s", 10_000).await.is_allowed());
    }
    fleet.advance(10_000);
    for left in [20_001, 10_002, 3, 4] {
        let Decision::Allowed(allowed) = fleet.take("1000000/10s", 1).await else { panic!("there is room") };
        assert!(allowed.remaining() < 1_000_000);
        assert_eq!(fleet.card(), left);
    }
}

/// The figure that the documentation gives.
#[tokio::test]
async fn take_about_120_bytes_each() {
    let fleet = Fleet::new().await;
    for _ in 0..10 {
        assert!(fleet.limiter.check_n(&fleet.key, &limit("100000/1h"), 1_000).await.expect("answers").is_allowed());
        fleet.advance(7);
    }
    let bytes = RedisServer::shared().command(&["MEMORY", "USAGE", &fleet.set(), "SAMPLES", "0"]).integer();
    println!("{} bytes a permit", bytes / 10_000);
    assert!(bytes < 10_000 * 130, "{bytes} bytes for 10 000");
}
