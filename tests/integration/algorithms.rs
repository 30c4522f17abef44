//! Tests of every algorithm on every store, with a manual clock.

use std::time::Duration;

use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Decision, Denied, Key, Limit};
use tokio::task::JoinSet;

use crate::support::{Subject, key, limit};

mod agreement;
pub(crate) mod queue;
mod refund;
mod refund_part;
mod stored;

pub(crate) const ALL_ALGORITHMS: [Algorithm; 5] =
    [SlidingWindow, FixedWindow, SlidingCounter, TokenBucket, LeakyBucket];

macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() {
                for algorithm in super::ALL_ALGORITHMS {
                    super::$test(crate::support::Subject::memory().await, algorithm).await;
                }
            })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() {
                for algorithm in super::ALL_ALGORITHMS {
                    super::$test(crate::support::Subject::redis().await, algorithm).await;
                }
            })+
        }
    };
}
pub(crate) use on_every_store;

on_every_store! {
    exactly_the_limit_of_64_concurrent_calls_is_admitted,
    denies_until_exactly_retry_after,
    peek_and_denial_take_no_permit,
    cost_zero_is_free_and_cost_above_the_limit_is_final,
    costs_on_one_counter_add_up,
    reset_clears_only_its_own_window,
    each_algorithm_and_window_has_its_own_counter,
    changed_limit_applies_to_the_next_call,
    clock_steps_keep_retry_after_exact,
}

pub(crate) fn limit_with_algorithm(text: &str, algorithm: Algorithm) -> Limit {
    limit(text).with_algorithm(algorithm)
}

pub(crate) fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

async fn take(subject: &Subject, limit: Limit, cost: u32) -> Decision {
    subject.limiter.check_n(&key("a"), &limit, cost).await.expect("the store answers")
}

/// Returns the number of permits that are free at once: one in a leaky bucket, `max` in every other algorithm.
fn free_at_once(algorithm: Algorithm, max: u32) -> u32 {
    if algorithm == LeakyBucket { 1 } else { max }
}

async fn exactly_the_limit_of_64_concurrent_calls_is_admitted(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let limiter = subject.limiter.clone();
        calls.spawn(async move { limiter.check(&key("a"), &limit).await.expect("the store answers").is_allowed() });
    }
    let admitted = calls.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert_eq!(admitted, usize::try_from(free_at_once(algorithm, 5)).expect("small"), "{algorithm:?}");
}

/// Tests every cost that fits, also with buckets that hold fewer and more permits than `max`.
async fn denies_until_exactly_retry_after(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("7/10s", algorithm);
    let holding = |burst| limit.with_burst(burst).ok();
    for limit in [Some(limit), holding(4), holding(11)].into_iter().flatten() {
        for cost in 1..=limit.burst() {
            while take(&subject, limit, 1).await.is_allowed() {
                subject.clock.advance(Duration::from_micros(123_457));
            }
            let wait = denied(take(&subject, limit, cost).await).retry_after();
            subject.clock.advance(wait - Duration::from_millis(1));
            let early = denied(take(&subject, limit, cost).await);
            assert_eq!(early.retry_after(), Duration::from_millis(1), "{limit:?}, {cost}");
            subject.advance_millis(1);
            assert!(take(&subject, limit, cost).await.is_allowed(), "{limit:?}, {cost}");
        }
    }
}

async fn peek_and_denial_take_no_permit(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("3/10s", algorithm);
    for _ in 0..5 {
        let seen = subject.limiter.peek(&key("a"), &limit).await.expect("the store answers");
        assert_eq!((seen.is_allowed(), seen.remaining()), (true, 3), "{algorithm:?}");
    }
    assert!(take(&subject, limit, 3).await.is_allowed());
    subject.advance_millis(10);
    let first = denied(take(&subject, limit, 1).await);
    for _ in 0..20 {
        let again = denied(take(&subject, limit, 1).await);
        assert_eq!(
            (again.retry_after(), again.reset_after(), again.remaining()),
            (first.retry_after(), first.reset_after(), first.remaining()),
            "{algorithm:?}"
        );
        let seen = denied(subject.limiter.peek(&key("a"), &limit).await.expect("the store answers"));
        assert_eq!(seen.retry_after(), first.retry_after(), "{algorithm:?}");
    }
}

async fn cost_zero_is_free_and_cost_above_the_limit_is_final(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("5/10s", algorithm);
    for cost in [6, u32::MAX] {
        let never = denied(take(&subject, limit, cost).await);
        assert!(never.is_final(), "{algorithm:?}");
        assert_eq!((never.retry_after(), never.remaining()), (Denied::NEVER, 5), "{algorithm:?}");
    }
    assert_eq!(take(&subject, limit, 0).await.remaining(), 5, "{algorithm:?}");
    assert!(take(&subject, limit, 5).await.is_allowed(), "{algorithm:?}");
    let nothing = take(&subject, limit, 0).await;
    assert_eq!((nothing.is_allowed(), nothing.remaining()), (true, 0), "{algorithm:?}");
}

async fn costs_on_one_counter_add_up(subject: Subject, algorithm: Algorithm) {
    let (limit, key) = (limit_with_algorithm("5/10s", algorithm), key("a"));
    let check = async |costs: [u32; 3]| {
        let limits = costs.map(|cost| (&key, &limit, cost));
        subject.limiter.check_all(&limits).await.expect("the store answers")
    };
    assert!(denied(check([2, 2, 2]).await).is_final(), "{algorithm:?}");
    let seen = subject.limiter.peek(&key, &limit).await.expect("the store answers");
    assert_eq!(seen.remaining(), 5, "{algorithm:?}: a denial took a permit");
    assert_eq!(check([2, 0, 3]).await.remaining(), 0, "{algorithm:?}");
    assert!(!denied(check([1, 0, 0]).await).is_final(), "{algorithm:?}");
}

async fn reset_clears_only_its_own_window(subject: Subject, algorithm: Algorithm) {
    let limits = [limit_with_algorithm("2/10s", algorithm), limit_with_algorithm("2/11s", algorithm)];
    for limit in limits {
        assert!(take(&subject, limit, 2).await.is_allowed());
    }
    subject.limiter.reset(&key("a"), &limits[0]).await.expect("the store answers");
    assert!(take(&subject, limits[0], 2).await.is_allowed(), "{algorithm:?}");
    assert!(take(&subject, limits[1], 1).await.is_denied(), "{algorithm:?}: the other window is another counter");
}

async fn each_algorithm_and_window_has_its_own_counter(subject: Subject, algorithm: Algorithm) {
    assert!(take(&subject, limit_with_algorithm("2/10s", algorithm), 2).await.is_allowed());
    assert!(take(&subject, limit_with_algorithm("2/10s", algorithm), 1).await.is_denied());
    for other in ALL_ALGORITHMS.into_iter().filter(|other| *other != algorithm) {
        assert!(
            take(&subject, limit_with_algorithm("2/10s", other), 2).await.is_allowed(),
            "{other:?} after {algorithm:?}"
        );
    }
    assert!(take(&subject, limit_with_algorithm("2/10001ms", algorithm), 2).await.is_allowed());
    let windows = [limit_with_algorithm("1/h", algorithm), limit_with_algorithm("2/m", algorithm)];
    let limits = windows.each_ref().map(|limit| (limit, 1));
    let key = Key::new("b");
    let check = async || {
        let limits = limits.map(|(limit, cost)| (&key, limit, cost));
        subject.limiter.check_all(&limits).await.expect("the store answers")
    };
    assert!(check().await.is_allowed() && check().await.is_denied(), "{algorithm:?}");
    let minute = subject.limiter.peek(&key, &windows[1]).await.expect("the store answers");
    assert_eq!(
        minute.remaining(),
        free_at_once(algorithm, 2) - 1,
        "{algorithm:?}: a denial by the hour took a permit of the minute"
    );
}

/// The limit is raised and lowered between calls: no counted permit is lost, and each `retry_after` stays exact.
async fn changed_limit_applies_to_the_next_call(subject: Subject, algorithm: Algorithm) {
    assert!(take(&subject, limit_with_algorithm("4/10s", algorithm), 4).await.is_allowed());
    subject.advance_millis(1);
    let raised = take(&subject, limit_with_algorithm("9/10s", algorithm), 0).await;
    let left = if algorithm == LeakyBucket { 0 } else { 5 };
    assert_eq!(raised.remaining(), left, "{algorithm:?}: raised");
    for text in ["2/10s", "1/10s", "3/10s", "40/10s"] {
        let limit = limit_with_algorithm(text, algorithm);
        let Err(refused) = take(&subject, limit, limit.max()).await.into_result() else {
            panic!("{algorithm:?}: {text} is full or nearly")
        };
        assert!(refused.retry_after() <= Duration::from_secs(20), "{algorithm:?}, {text}");
        subject.clock.advance(refused.retry_after() - Duration::from_millis(1));
        let before = take(&subject, limit, limit.max()).await;
        assert!(before.is_denied(), "{algorithm:?}, {text}: 1 ms early");
        subject.advance_millis(1);
        assert!(take(&subject, limit, limit.max()).await.is_allowed(), "{algorithm:?}, {text}");
    }
}

async fn clock_steps_keep_retry_after_exact(subject: Subject, algorithm: Algorithm) {
    let limit = limit_with_algorithm("4/10s", algorithm);
    subject.advance_millis(3_000);
    assert!(take(&subject, limit, 4).await.is_allowed());
    let natural = denied(take(&subject, limit, 1).await).retry_after();
    subject.clock.rewind(Duration::from_secs(4));
    let refused = denied(take(&subject, limit, 1).await);
    assert_eq!(refused.retry_after(), natural + Duration::from_secs(4), "{algorithm:?}: by the clock as it is now");
    subject.clock.advance(refused.retry_after());
    assert!(take(&subject, limit, 1).await.is_allowed(), "{algorithm:?}");
    subject.clock.rewind(Duration::from_secs(24));
    assert!(
        take(&subject, limit, 4).await.is_allowed(),
        "{algorithm:?}: a step of more than a window voids the counter"
    );
    subject.clock.advance(Duration::from_secs(86_400 * 365));
    assert!(take(&subject, limit, 4).await.is_allowed(), "{algorithm:?}: a year later");
}
