//! Calls of the original's last version and ours on one set: together never more than `max`, and neither is starved.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{Oracle, Random, RedisServer, unique};
use rate_limited::{Denied, Key, Limit};

use super::{Fleet, Spring, denied, limit};
use crate::support::on;

#[tokio::test]
async fn one_sees_what_the_other_took() {
    let mut fleet = Fleet::new().await;
    assert!(fleet.theirs(10_000, 3));
    fleet.advance(1_000);
    assert_eq!(fleet.take("3/10s", 1).await.remaining(), 1);
    fleet.advance(1_000);
    assert!(fleet.theirs(10_000, 3));
    assert!(!fleet.theirs(10_000, 3));
    let refused = denied(fleet.take("3/10s", 2).await);
    assert_eq!(refused.retry_after(), Duration::from_secs(9), "theirs, and then the one of ours");
    assert_eq!((refused.remaining(), refused.reset_after()), (0, Duration::from_secs(10)));
    fleet.advance(8_000);
    assert!(fleet.take("3/10s", 1).await.is_allowed());
    assert!(!fleet.theirs(10_000, 3));
    fleet.advance(1_000);
    assert!(fleet.theirs(10_000, 3));
    assert!(fleet.take("3/10s", 1).await.is_denied());
}

/// Random calls of both: each is told what the definition says, so there is never more, and never less.
#[tokio::test]
async fn both_agree_with_the_oracle_on_every_schedule() {
    let mut admitted = [0_u32; 2];
    for seed in 0..60 {
        let (mut fleet, mut random, mut oracle) = (Fleet::new().await, Random::new(seed), Oracle::new());
        let window_ms = random.between(2_000, 10_000);
        let window = Duration::from_millis(window_ms);
        let max = u32::try_from(random.between(1, 12)).expect("small");
        let mut history = Vec::new();
        for step in 0..120 {
            fleet.advance(match random.below(6) {
                0 => random.below(2 * window_ms),
                1 | 2 => random.below(window_ms / u64::from(max)),
                _ => random.below(3),
            });
            let now = fleet.now_ms();
            // Theirs alone and then ours alone, the other way round, and both at random.
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
                let decision = fleet.limiter.check_n(&fleet.key, &limit, cost).await.expect("the store answers");
                assert_eq!(decision.remaining(), expected.remaining, "seed {seed}, step {step}");
                let (retry, reset) = match decision.into_result() {
                    Ok(allowed) => (Some(0), allowed.reset_after()),
                    Err(denied) if denied.is_final() => (None, denied.reset_after()),
                    Err(denied) => (Some(millis(denied.retry_after())), denied.reset_after()),
                };
                assert_eq!((retry, millis(reset)), (expected.retry_after, expected.reset_after), "{seed}, {step}");
                retry == Some(0)
            } else {
                fleet.theirs(window_ms, max)
            };
            assert_eq!(allowed, expected.allowed, "seed {seed}, step {step}, ours: {ours}");
            if allowed && cost > 0 {
                let at = fleet.clock.now();
                history.push(Admission { start: at, end: at, cost });
                admitted[usize::from(ours)] += 1;
                let ttl = fleet.ttl();
                assert!(ttl == -1 && !ours || ttl > 0, "{ttl} ms");
                let most = i64::try_from(window_ms).expect("small") + 1_000;
                assert!(ttl <= most, "{ttl} ms");
            }
        }
        assert_eq!(feasible(&history, window, max), Ok(()));
    }
    assert!(admitted.iter().all(|count| *count > 500), "{admitted:?}");
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).expect("less than a window")
}

/// The Spring system's script sets the time to live before it adds: if its trim has emptied the set, the set has none.
/// Ours never leaves it so, and mends what theirs did.
#[tokio::test]
async fn a_set_that_was_trimmed_to_nothing_gets_its_time_to_live_again() {
    for first_is_ours in [true, false] {
        let mut fleet = Fleet::new().await;
        for round in 0..3 {
            // After the window and before the end of the set's time to live, by the clock of the calls.
            if first_is_ours == (round % 2 == 0) {
                assert!(fleet.take("1/10s", 1).await.is_allowed());
                let ttl = fleet.ttl();
                assert!(ttl > 10_000 && ttl <= 11_000, "{ttl} ms");
                assert_eq!(fleet.card(), 1, "what is over is trimmed");
            } else {
                assert!(fleet.theirs(10_000, 1));
                assert_eq!(fleet.ttl() == -1, round > 0, "as their script does it");
            }
            fleet.advance(10_500);
        }
    }
}

#[tokio::test]
async fn ours_alone_leave_a_time_to_live_too() {
    let fleet = Fleet::new().await;
    for _ in 0..3 {
        assert!(fleet.take("1/10s", 1).await.is_allowed());
        assert!(fleet.ttl() > 10_000);
        fleet.advance(10_500);
    }
}

/// A host whose clock is ahead: what it took counts until it is a window old by the clock of Redis.
#[tokio::test]
async fn entries_of_a_clock_that_is_ahead_count_longer() {
    let mut fleet = Fleet::new().await;
    let ahead = fleet.now_ms() + 3_000;
    assert!(fleet.spring.allows(&fleet.name, ahead, 10_000, 1));
    let refused = denied(fleet.take("1/10s", 1).await);
    assert_eq!((refused.retry_after(), refused.reset_after()), (Duration::from_secs(13), Duration::from_secs(13)));
    let beside = fleet.take("2/10s", 1).await.into_result().expect("a place is free");
    assert_eq!(beside.reset_after(), Duration::from_secs(13));
    assert!(fleet.ttl() > 13_000 && fleet.ttl() <= 14_000, "{} ms: for as long as it counts", fleet.ttl());
    fleet.limiter.refund(&beside).await.expect("the store answers");
    fleet.advance(12_999);
    assert!(fleet.take("1/10s", 1).await.is_denied());
    fleet.advance(1);
    assert!(fleet.take("1/10s", 1).await.is_allowed());
}

/// Real time on both sides, until each has been admitted more than two windows hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time_no_window_holds_more_than_max() {
    const ENOUGH: usize = 45;
    let (name, limit) = (unique("real"), limit("20/300ms"));
    let origin = Instant::now();
    let done = std::sync::Arc::new(AtomicBool::new(false));
    let spring = std::thread::spawn({
        let (name, done) = (name.clone(), std::sync::Arc::clone(&done));
        move || {
            let (mut spring, mut admitted) = (Spring::on(RedisServer::shared()), Vec::new());
            while !done.load(Ordering::Relaxed) || admitted.len() < ENOUGH {
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
    let limiter = on(RedisServer::shared()).connect().await.expect("connects");
    let key = Key::new(&name);
    let mut admitted = Vec::new();
    while admitted.len() < ENOUGH {
        let start = origin.elapsed();
        match limiter.check(&key, &limit).await.expect("answers").into_result() {
            Ok(_) => admitted.push(Admission { start, end: origin.elapsed(), cost: 1 }),
            Err(denied) => assert!(denied.retry_after() != Denied::NEVER),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    done.store(true, Ordering::Relaxed);
    admitted.extend(spring.join().expect("no panic"));
    // Their stamps are in whole milliseconds, rounded down.
    assert_eq!(feasible(&admitted, Duration::from_millis(298), 20), Ok(()));
}
