//! Tests of this limiter and the Spring system's last version on one set: together they keep `max`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Oracle, Random, RedisServer, unique};
use rate_limited::{Denied, Key, Limit};

use super::{SharedKey, Spring, denied, limit};
use crate::support::builder_for;

#[tokio::test]
async fn both_systems_count_each_others_permits() {
    let mut shared = SharedKey::new().await;
    assert!(shared.spring_allows(10_000, 3));
    shared.advance(1_000);
    assert_eq!(shared.take("3/10s", 1).await.remaining(), 1);
    shared.advance(1_000);
    assert!(shared.spring_allows(10_000, 3));
    assert!(!shared.spring_allows(10_000, 3));
    let refused = denied(shared.take("3/10s", 2).await);
    assert_eq!(refused.retry_after(), Duration::from_secs(9), "two entries must expire, theirs and then ours");
    assert_eq!((refused.remaining(), refused.reset_after()), (0, Duration::from_secs(10)));
    shared.advance(8_000);
    assert!(shared.take("3/10s", 1).await.is_allowed());
    assert!(!shared.spring_allows(10_000, 3));
    shared.advance(1_000);
    assert!(shared.spring_allows(10_000, 3));
    assert!(shared.take("3/10s", 1).await.is_denied());
}

/// Random calls of both: each decision equals the oracle's, so the limit is kept and used in full.
#[tokio::test]
async fn both_systems_equal_the_oracle_on_random_schedules() {
    let mut admitted = [0_u32; 2];
    for seed in 0..60 {
        let (mut shared, mut random, mut oracle) = (SharedKey::new().await, Random::new(seed), Oracle::new());
        let window_ms = random.between(2_000, 10_000);
        let window = Duration::from_millis(window_ms);
        let max = u32::try_from(random.between(1, 12)).expect("small");
        let mut history = Vec::new();
        for step in 0..120 {
            shared.advance(match random.below(6) {
                0 => random.below(2 * window_ms),
                1 | 2 => random.below(window_ms / u64::from(max)),
                _ => random.below(3),
            });
            let now = shared.now_ms();
            // First theirs and then ours, the other way round, or both at random.
            let ours = match seed % 3 {
                0 => step >= 60,
                1 => step < 60,
                _ => random.below(2) == 0,
            };
            let cost = if ours { u32::try_from(random.below(4)).expect("small") } else { 1 };
            let expected = oracle.check(now, window_ms, max, cost);
            let allowed = if ours {
                let limit = Limit::new(max, window).expect("a limit").with_layout(rate_limited::Layout::Zset);
                let limit = limit.expect("a sliding window");
                let decision = shared.limiter.check_n(&shared.key, &limit, cost).await.expect("the store answers");
                assert_eq!(decision.remaining(), expected.remaining, "seed {seed}, step {step}");
                let (retry, reset) = match decision.into_result() {
                    Ok(allowed) => (Some(0), allowed.reset_after()),
                    Err(denied) if denied.is_final() => (None, denied.reset_after()),
                    Err(denied) => (Some(millis(denied.retry_after())), denied.reset_after()),
                };
                assert_eq!((retry, millis(reset)), (expected.retry_after, expected.reset_after), "{seed}, {step}");
                retry == Some(0)
            } else {
                shared.spring_allows(window_ms, max)
            };
            assert_eq!(allowed, expected.allowed, "seed {seed}, step {step}, ours: {ours}");
            if allowed && cost > 0 {
                let at = shared.clock.now();
                history.push(Admission { start: at, end: at, cost });
                admitted[usize::from(ours)] += 1;
                // Their script leaves none after a trim.
                if ours || shared.ttl() != -1 {
                    shared.assert_ttl(0, i64::try_from(window_ms).expect("small") + 1_000);
                }
            }
        }
        assert_eq!(feasible(&history, window, max), Ok(()));
    }
    assert!(admitted.iter().all(|count| *count > 500), "{admitted:?}");
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).expect("less than a window")
}

/// The Spring script sets the TTL before it adds an entry, so a set that its trim emptied has none. Ours always sets a
/// TTL, also on a set that theirs left without one.
#[tokio::test]
async fn set_emptied_by_a_trim_gets_a_new_ttl() {
    for first_is_ours in [true, false] {
        let mut shared = SharedKey::new().await;
        for round in 0..3 {
            // After the window and before the end of the set's TTL, by the clock of the calls.
            if first_is_ours == (round % 2 == 0) {
                assert!(shared.take("1/10s", 1).await.is_allowed());
                shared.assert_ttl(10_000, 11_000);
                assert_eq!(shared.entry_count(), 1, "expired entries are trimmed");
            } else {
                assert!(shared.spring_allows(10_000, 1));
                assert_eq!(shared.ttl() == -1, round > 0, "their script leaves no TTL after a trim");
            }
            shared.advance(10_500);
        }
    }
}

#[tokio::test]
async fn ours_alone_always_sets_a_ttl() {
    let shared = SharedKey::new().await;
    for _ in 0..3 {
        assert!(shared.take("1/10s", 1).await.is_allowed());
        assert!(shared.ttl() > 10_000);
        shared.advance(10_500);
    }
}

/// Entries of a host whose clock is ahead count until they are a window old by Redis's clock.
#[tokio::test]
async fn entries_of_a_clock_ahead_count_longer() {
    let mut shared = SharedKey::new().await;
    let ahead = shared.now_ms() + 3_000;
    assert!(shared.spring.allows(&shared.name, ahead, 10_000, 1));
    let refused = denied(shared.take("1/10s", 1).await);
    assert_eq!((refused.retry_after(), refused.reset_after()), (Duration::from_secs(13), Duration::from_secs(13)));
    let beside = shared.take("2/10s", 1).await.into_result().expect("a permit is free");
    assert_eq!(beside.reset_after(), Duration::from_secs(13));
    // For as long as it counts.
    shared.assert_ttl(13_000, 14_000);
    shared.limiter.refund(&beside).await.expect("the store answers");
    shared.advance(12_999);
    assert!(shared.take("1/10s", 1).await.is_denied());
    shared.advance(1);
    assert!(shared.take("1/10s", 1).await.is_allowed());
}

/// Both systems call in real time until each has more admissions than fit into two windows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_exceeds_max_in_real_time() {
    const MIN_ADMISSIONS: usize = 45;
    let (name, limit) = (unique("real"), limit("20/300ms"));
    let origin = Instant::now();
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let spring = std::thread::spawn({
        let (name, done) = (name.clone(), std::sync::Arc::clone(&done));
        move || {
            let (mut spring, mut admitted) = (Spring::connect(RedisServer::shared()), Vec::new());
            while !done.load(Ordering::Relaxed) || admitted.len() < MIN_ADMISSIONS {
                let start = origin.elapsed();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                let now = u64::try_from(now.as_millis()).expect("a time of this age");
                if spring.allows(&name, now, 300, 20) {
                    admitted.push(Admission { start, end: origin.elapsed(), cost: 1 });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            admitted
        }
    });
    let limiter = builder_for(RedisServer::shared()).connect().await.expect("connects");
    let key = Key::new(&name);
    let mut admitted = Vec::new();
    while admitted.len() < MIN_ADMISSIONS {
        let start = origin.elapsed();
        match limiter.check(&key, &limit).await.expect("answers").into_result() {
            Ok(_) => admitted.push(Admission { start, end: origin.elapsed(), cost: 1 }),
            Err(denied) => assert!(denied.retry_after() != Denied::NEVER),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    done.store(true, Ordering::Relaxed);
    admitted.extend(spring.join().expect("no panic"));
    // The Spring system rounds its stamps down to whole milliseconds.
    assert_eq!(feasible(&admitted, Duration::from_millis(298), 20), Ok(()));
}
