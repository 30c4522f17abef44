//! Tests of the entries of a set: one per permit for any clock, and entries that other programs added.

use std::time::Duration;

use limiter_testkit::Random;
use rate_limited::Decision;

use super::{SharedKey, denied, limit};

/// The clock stands still, or steps back to the same microsecond.
#[tokio::test]
async fn set_has_one_entry_per_permit() {
    let (shared, mut random) = (SharedKey::new().await, Random::new(5));
    let (mut taken, mut receipts) = (0, Vec::new());
    for step in 0..400 {
        match random.below(8) {
            0 => shared.clock.advance(Duration::from_micros(random.below(3))),
            1 => shared.clock.rewind(Duration::from_micros(random.below(3))),
            2 | 3 if !receipts.is_empty() => {
                let index = usize::try_from(random.any() >> 40).expect("small") % receipts.len();
                let (receipt, cost) = receipts.swap_remove(index);
                shared.limiter.refund(&receipt).await.expect("the store answers");
                taken -= i64::from(cost);
            }
            _ => {
                let cost = u32::try_from(random.between(1, 5)).expect("small");
                let decision = shared.take("100000/1h", cost).await;
                let receipt = decision.into_result().expect("a permit is free");
                taken += i64::from(cost);
                assert_eq!(i64::from(receipt.remaining()), 100_000 - taken, "step {step}");
                receipts.push((receipt, cost));
            }
        }
        assert_eq!(shared.entry_count(), taken, "step {step}");
    }
}

/// Members of this limiter start with a letter, and those of the Spring system never do.
#[tokio::test]
async fn members_of_both_systems_are_distinct() {
    let mut shared = SharedKey::new().await;
    let _ = shared.take("9/10s", 2).await;
    assert!(shared.spring_allows(10_000, 9));
    let members = shared.command("ZRANGE", &["0", "-1"]).array();
    let ours = members.into_iter().map(|member| member.text()).filter(|member| member.starts_with('r')).count();
    assert_eq!(ours, 2);
    assert_eq!(shared.command("ZSCORE", &["r1000000000000000.0"]).text(), "1000000000000");
}

/// Stamps of other programs: fractions are rounded up, and infinite ones are in no window.
#[tokio::test]
async fn odd_stamps_of_others_count_while_in_the_window() {
    let shared = SharedKey::new().await;
    let now = shared.now_ms();
    for (score, member) in [("-inf", "a"), ("-5", "b"), ("0", "c"), ("+inf", "d"), ("1e300", "e")] {
        shared.add_entry(score, member);
    }
    assert_eq!(shared.take("2/10s", 0).await.remaining(), 2, "none of these entries counts");
    shared.add_entry(&format!("{now}.5"), "f");
    shared.add_entry(&format!("{}.5", now - 10_000), "g");
    assert_eq!(shared.take("2/10s", 0).await.remaining(), 0);
    let refused = denied(shared.take("2/10s", 1).await);
    assert_eq!(refused.retry_after(), Duration::from_millis(1));
    assert_eq!(refused.reset_after(), Duration::from_millis(10_001));
    shared.advance(1);
    assert!(shared.take("2/10s", 1).await.is_allowed());
    assert!(shared.ttl() > 10_000);
    assert_eq!(
        shared.command("ZRANGE", &["0", "-1"]).array().len(),
        2,
        "expired entries, and those too far ahead, are trimmed"
    );
}

/// A stamp more than a window ahead is void. A peek leaves it, and an admission trims it.
#[tokio::test]
async fn entries_more_than_a_window_ahead_do_not_count_and_are_trimmed() {
    let shared = SharedKey::new().await;
    let now = shared.now_ms();
    shared.add_entry(&(now + 10_000).to_string(), "a window ahead");
    shared.add_entry(&(now + 10_001).to_string(), "further ahead");
    assert_eq!(shared.limiter.peek(&shared.key, &limit("3/10s")).await.expect("answers").remaining(), 2);
    assert!(shared.take("1/10s", 1).await.is_denied());
    assert_eq!(shared.entry_count(), 2, "a denial writes nothing");
    assert_eq!(shared.take("3/10s", 1).await.remaining(), 1);
    assert_eq!(shared.entry_count(), 2, "the entry further ahead is trimmed");
    shared.advance(1);
    assert_eq!(shared.take("3/10s", 0).await.remaining(), 1, "the trimmed entry does not count later");
}

/// A clock that stepped back by an hour leaves entries that would block the key once the hour has passed.
#[tokio::test]
async fn entries_from_before_a_large_step_back_never_count_again() {
    let shared = SharedKey::new().await;
    assert!(shared.take("2/10s", 2).await.is_allowed());
    shared.clock.rewind(Duration::from_secs(3_600));
    assert!(shared.take("2/10s", 1).await.is_allowed());
    shared.advance(3_595_000);
    let allowed = shared.take("2/10s", 1).await.into_result().expect("entries from before the step are trimmed");
    assert_eq!((allowed.remaining(), shared.entry_count()), (1, 1));
}

/// Entries that the longest window of a decision counts are kept.
#[tokio::test]
async fn entries_ahead_within_the_longest_window_are_kept() {
    let shared = SharedKey::new().await;
    let (now, limits) = (shared.now_ms(), [limit("9/1s"), limit("9/10s")]);
    for (ahead, member) in [(999, "a"), (1_001, "b"), (10_000, "c"), (10_001, "d")] {
        shared.add_entry(&(now + ahead).to_string(), member);
    }
    let both = limits.each_ref().map(|limit| (&shared.key, limit, 1));
    let decision = shared.limiter.check_all(&both).await.expect("the store answers");
    assert_eq!(decision.remaining(), 5, "three entries of theirs and one of ours");
    assert_eq!(shared.entry_count(), 4);
    assert_eq!(shared.take("9/1s", 1).await.remaining(), 6, "one entry of theirs and two of ours");
    assert_eq!(
        shared.entry_count(),
        3,
        "a decision by the shorter window trims entries that only the longer one counts"
    );
}

#[tokio::test]
async fn trim_of_entries_far_ahead_is_bounded_per_call() {
    let shared = SharedKey::new().await;
    for _ in 0..2 {
        assert!(shared.take("1000000/10s", 10_000).await.is_allowed());
    }
    shared.clock.rewind(Duration::from_secs(60));
    for entries in [10_001, 2, 3] {
        assert!(shared.take("1000000/10s", 1).await.is_allowed());
        assert_eq!(shared.entry_count(), entries);
    }
}

#[tokio::test]
async fn trim_of_expired_entries_is_bounded_per_call() {
    let shared = SharedKey::new().await;
    for _ in 0..3 {
        assert!(shared.take("1000000/10s", 10_000).await.is_allowed());
    }
    shared.advance(10_000);
    for entries in [20_001, 10_002, 3, 4] {
        let Decision::Allowed(allowed) = shared.take("1000000/10s", 1).await else { panic!("a permit is free") };
        assert!(allowed.remaining() < 1_000_000);
        assert_eq!(shared.entry_count(), entries);
    }
}

/// Checks the documented size of an entry.
#[tokio::test]
async fn entries_take_about_120_bytes_each() {
    let shared = SharedKey::new().await;
    for _ in 0..10 {
        assert!(shared.limiter.check_n(&shared.key, &limit("100000/1h"), 1_000).await.expect("answers").is_allowed());
        shared.advance(7);
    }
    let bytes = shared.server.command(&["MEMORY", "USAGE", &shared.set_name(), "SAMPLES", "0"]).integer();
    println!("{} bytes a permit", bytes / 10_000);
    assert!(bytes < 10_000 * 130, "{bytes} bytes for 10 000");
}
