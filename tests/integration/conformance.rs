//! Conformance tests that every store must pass, with a manual clock.

use std::time::Duration;

use rate_limited::{Decision, Denied, Key, Source};

use crate::support::{Subject, key, on_every_store, on_packed, on_zset};

/// Defines a test for each function on every store. Those of `one_window` are also run with the layout of the Spring
/// system, in which all windows of a key share one set. All are run with counts that share hashes.
macro_rules! on_every_layout {
    (one_window: { $($one:ident),+ $(,)? } several_windows: { $($several:ident),+ $(,)? }) => {
        on_every_store! { $($one,)+ $($several),+ }
        on_packed! { $($one,)+ $($several),+ }
        on_zset! { $($one),+ }
    };
}

on_every_layout! {
    one_window: {
        admits_max_then_denies_with_the_exact_retry_after,
        denies_until_exactly_retry_after,
        permits_come_back_one_by_one,
        denial_takes_no_permit,
        peek_takes_no_permit,
        cost_is_taken_in_full_or_not_at_all,
        cost_zero_takes_no_permit,
        cost_above_max_is_denied_permanently,
        changed_max_keeps_counted_permits,
        limits_with_different_max_share_one_counter,
        retry_after_is_exact_to_the_microsecond,
        rounded_up_stamp_frees_no_permit_early,
        windows_of_up_to_a_year_are_exact,
        flood_still_gets_its_full_limit,
        clock_step_back_keeps_retry_after_exact,
    }
    several_windows: {
        changed_window_starts_a_new_counter,
        reset_clears_only_its_own_window,
    }
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

async fn take(subject: &Subject, key: &Key, limited: &str, cost: u32) -> Decision {
    subject.limiter.check_n(key, &subject.limit(limited), cost).await.expect("the store answers")
}

async fn admits_max_then_denies_with_the_exact_retry_after(subject: Subject) {
    let key = key("getId");
    for remaining in (0..5).rev() {
        let Decision::Allowed(allowed) = take(&subject, &key, "5/10s", 1).await else { panic!("a permit is free") };
        assert_eq!(allowed.remaining(), remaining);
        assert_eq!(allowed.reset_after(), Duration::from_secs(10));
        assert_eq!(allowed.limit(), subject.limit("5/10s"));
        assert_eq!(allowed.source(), Source::Store);
        assert_eq!(allowed.name(), "check");
    }
    subject.advance_millis(1);
    let denied = denied(take(&subject, &key, "5/10s", 1).await);
    assert_eq!(denied.retry_after(), Duration::from_millis(9_999));
    assert_eq!(denied.reset_after(), Duration::from_millis(9_999));
    assert_eq!((denied.remaining(), denied.is_final(), denied.source()), (0, false, Source::Store));
    assert_eq!(denied.to_string(), "rate limit `check` of 5/10s reached: retry after 9.999s");
}

async fn denies_until_exactly_retry_after(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "2/10s", 1).await.is_allowed());
    subject.advance_millis(3_000);
    assert!(take(&subject, &key, "2/10s", 1).await.is_allowed());
    for cost in [1, 2] {
        let wait = denied(take(&subject, &key, "2/10s", cost).await).retry_after();
        subject.clock.advance(wait - Duration::from_millis(1));
        let early = denied(take(&subject, &key, "2/10s", cost).await);
        assert_eq!(early.retry_after(), Duration::from_millis(1));
        subject.advance_millis(1);
        assert!(take(&subject, &key, "2/10s", cost).await.is_allowed());
    }
}

async fn permits_come_back_one_by_one(subject: Subject) {
    let key = key("a");
    for _ in 0..4 {
        assert!(take(&subject, &key, "4/8s", 1).await.is_allowed());
        subject.advance_millis(2_000);
    }
    // Every 2 s one permit comes back, never all of them at once.
    for _ in 0..10 {
        assert!(take(&subject, &key, "4/8s", 1).await.is_allowed());
        assert!(take(&subject, &key, "4/8s", 1).await.is_denied());
        subject.advance_millis(2_000);
    }
}

async fn denial_takes_no_permit(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    let first = denied(take(&subject, &key, "1/10s", 1).await);
    for _ in 0..100 {
        let again = denied(take(&subject, &key, "1/10s", 1).await);
        assert_eq!((again.retry_after(), again.remaining()), (first.retry_after(), first.remaining()));
    }
}

async fn flood_still_gets_its_full_limit(subject: Subject) {
    let key = key("a");
    let mut admitted = 0;
    for _ in 0..1_000 {
        admitted += u32::from(take(&subject, &key, "3/1s", 1).await.is_allowed());
        subject.advance_millis(10);
    }
    assert_eq!(admitted, 30, "10 s of calls at 33 times the limit");
}

async fn peek_takes_no_permit(subject: Subject) {
    let key = key("a");
    for _ in 0..3 {
        let decision = subject.limiter.peek(&key, &subject.limit("1/10s")).await.expect("the store answers");
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, 1));
    }
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    let decision = subject.limiter.peek(&key, &subject.limit("1/10s")).await.expect("the store answers");
    assert_eq!(denied(decision).retry_after(), Duration::from_secs(10));
}

async fn cost_is_taken_in_full_or_not_at_all(subject: Subject) {
    let key = key("a");
    assert_eq!(take(&subject, &key, "5/10s", 3).await.remaining(), 2);
    let refused = denied(take(&subject, &key, "5/10s", 3).await);
    assert_eq!((refused.remaining(), refused.retry_after()), (2, Duration::from_secs(10)));
    assert_eq!(take(&subject, &key, "5/10s", 2).await.remaining(), 0);
}

async fn cost_zero_takes_no_permit(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "1/10s", 0).await.is_allowed());
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    let decision = take(&subject, &key, "1/10s", 0).await;
    assert_eq!((decision.is_allowed(), decision.remaining()), (true, 0));
}

async fn cost_above_max_is_denied_permanently(subject: Subject) {
    for cost in [6, u32::MAX] {
        let denied = denied(take(&subject, &key("a"), "5/10s", cost).await);
        assert!(denied.is_final());
        assert_eq!((denied.retry_after(), denied.remaining()), (Denied::NEVER, 5));
        assert_eq!(denied.to_string(), "the call costs more than the rate limit `check` of 5/10s ever allows");
    }
}

async fn changed_max_keeps_counted_permits(subject: Subject) {
    let key = key("a");
    for _ in 0..4 {
        assert!(take(&subject, &key, "4/10s", 1).await.is_allowed());
        subject.advance_millis(1_000);
    }
    assert_eq!(take(&subject, &key, "6/10s", 1).await.remaining(), 1);
    // Lowered below the permits in use: three of the five must expire before one is free.
    let lowered = denied(take(&subject, &key, "3/10s", 1).await);
    assert_eq!((lowered.remaining(), lowered.retry_after()), (0, Duration::from_millis(8_000)));
    subject.advance_millis(7_999);
    assert!(take(&subject, &key, "3/10s", 1).await.is_denied());
    subject.advance_millis(1);
    assert!(take(&subject, &key, "3/10s", 1).await.is_allowed());
}

async fn limits_with_different_max_share_one_counter(subject: Subject) {
    let key = key("a");
    assert_eq!(take(&subject, &key, "2/10s", 1).await.remaining(), 1);
    assert_eq!(take(&subject, &key, "10/10s", 5).await.remaining(), 4);
    assert!(take(&subject, &key, "2/10s", 1).await.is_denied());
    assert!(take(&subject, &key, "10/10s", 1).await.is_allowed());
}

async fn changed_window_starts_a_new_counter(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    assert!(take(&subject, &key, "1/11s", 1).await.is_allowed());
    assert!(take(&subject, &key, "1/10s", 1).await.is_denied());
}

async fn reset_clears_only_its_own_window(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    assert!(take(&subject, &key, "1/11s", 1).await.is_allowed());
    subject.limiter.reset(&key, &subject.limit("1/10s")).await.expect("the store answers");
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    assert!(take(&subject, &key, "1/11s", 1).await.is_denied(), "the other window is another counter");
}

/// A permit counts from the end of the millisecond in which it was taken.
async fn retry_after_is_exact_to_the_microsecond(subject: Subject) {
    let key = key("a");
    subject.clock.advance(Duration::from_micros(400));
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
    let refused = denied(take(&subject, &key, "1/10s", 1).await);
    assert_eq!(refused.retry_after(), Duration::from_micros(10_000_600));
    subject.clock.advance(refused.retry_after() - Duration::from_micros(1));
    assert_eq!(denied(take(&subject, &key, "1/10s", 1).await).retry_after(), Duration::from_micros(1));
    subject.clock.advance(Duration::from_micros(1));
    assert!(take(&subject, &key, "1/10s", 1).await.is_allowed());
}

/// The newest stamp may be ahead of the clock by its rounding. Older permits still expire by the clock.
async fn rounded_up_stamp_frees_no_permit_early(subject: Subject) {
    // Offsets have a resolution of 1 ms for the short window, and of 32 ms for the long one.
    for (text, window, step) in [("2/10s", 10_000_000, 1_000), ("2/366d", 31_622_400_000_000, 32_000)] {
        let key = key(text);
        assert!(take(&subject, &key, text, 1).await.is_allowed());
        subject.clock.advance(Duration::from_micros(window - step + 100));
        assert!(take(&subject, &key, text, 1).await.is_allowed());
        subject.clock.advance(Duration::from_micros(100));
        let refused = denied(take(&subject, &key, text, 1).await);
        assert_eq!(refused.retry_after(), Duration::from_micros(step - 200), "{text}");
        subject.clock.advance(refused.retry_after());
        assert!(take(&subject, &key, text, 1).await.is_allowed());
    }
}

async fn windows_of_up_to_a_year_are_exact(subject: Subject) {
    for days in [12, 31, 366] {
        let text = format!("2/{days}d");
        let key = key(&text);
        let window = Duration::from_secs(days * 86_400);
        assert!(take(&subject, &key, &text, 1).await.is_allowed());
        subject.clock.advance(window / 2);
        assert!(take(&subject, &key, &text, 1).await.is_allowed());
        let refused = denied(take(&subject, &key, &text, 1).await);
        assert_eq!(refused.retry_after(), window / 2, "{days} days");
        subject.clock.advance(refused.retry_after() - Duration::from_millis(1));
        assert!(take(&subject, &key, &text, 1).await.is_denied());
        subject.advance_millis(1);
        assert!(take(&subject, &key, &text, 1).await.is_allowed());
    }
}

async fn clock_step_back_keeps_retry_after_exact(subject: Subject) {
    let key = key("a");
    assert!(take(&subject, &key, "2/10s", 2).await.is_allowed());
    subject.clock.rewind(Duration::from_secs(4));
    let refused = denied(take(&subject, &key, "2/10s", 1).await);
    assert_eq!(refused.retry_after(), Duration::from_secs(14), "by the clock as it is now");
    subject.clock.advance(refused.retry_after());
    assert!(take(&subject, &key, "2/10s", 2).await.is_allowed());
    subject.clock.rewind(Duration::from_secs(11));
    assert!(take(&subject, &key, "2/10s", 2).await.is_allowed(), "a step of more than a window voids the counter");
}
