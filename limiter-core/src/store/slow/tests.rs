use crate::Key;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::*;
use crate::{Builder, Decision, Limiter, ManualClock, OnError, Source};

const DELAY: Duration = Duration::from_millis(40);

fn slow(clock: &ManualClock) -> Builder {
    Limiter::builder().slow(DELAY).clock(clock.clone())
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polls a future until the clock has moved by `time`, and asserts that it is ready then and not before.
fn ready_after<F: Future>(clock: &ManualClock, time: Duration, future: F) -> F::Output {
    let mut future = pin!(future);
    assert!(poll_once(future.as_mut()).is_none(), "ready at once");
    clock.advance(time - Duration::from_millis(1));
    assert!(poll_once(future.as_mut()).is_none(), "ready before {time:?}");
    clock.advance(Duration::from_millis(1));
    poll_once(future).expect("ready")
}

fn allowed(decision: Result<Decision, Error>) -> crate::Allowed {
    decision.expect("decides").into_result().expect("allowed")
}

#[test]
fn each_call_takes_the_delay_and_is_decided_in_memory() {
    let clock = ManualClock::new();
    let (limiter, key, limit) = (slow(&clock).build().expect("builds"), Key::new("a"), "2/h".parse().expect("a limit"));
    let first = allowed(ready_after(&clock, DELAY, limiter.check(&key, &limit)));
    assert_eq!((first.remaining(), first.source()), (1, Source::Store));
    let both = [(&key, &limit, 1), (&key, &limit, 1)];
    assert!(ready_after(&clock, DELAY, limiter.check_all(&both)).expect("decides").is_denied());
    ready_after(&clock, DELAY, limiter.refund(&first)).expect("refunds");
    assert_eq!(allowed(ready_after(&clock, DELAY, limiter.check_all(&both))).remaining(), 0);
    assert!(ready_after(&clock, DELAY, limiter.check(&key, &limit)).expect("decides").is_denied());
    ready_after(&clock, DELAY, limiter.reset(&key, &limit)).expect("resets");
    assert_eq!(allowed(ready_after(&clock, DELAY, limiter.peek(&key, &limit))).remaining(), 2);
}

#[test]
fn a_delay_beyond_the_deadline_is_a_timeout_at_the_deadline_that_the_policy_decides() {
    let (key, limit) = (Key::new("a"), "1/h".parse().expect("a limit"));
    let deadline = DELAY - Duration::from_millis(1);
    for (policy, expected) in [
        (OnError::Open, Ok((true, Source::Policy))),
        (OnError::Closed, Ok((false, Source::Policy))),
        (OnError::Standby, Ok((true, Source::Standby))),
        (OnError::Raise, Err(ErrorKind::Timeout)),
    ] {
        let clock = ManualClock::new();
        let limiter = slow(&clock).deadline(deadline).on_error(policy).build().expect("builds");
        let decision = ready_after(&clock, deadline, limiter.check(&key, &limit));
        let seen = decision.map(|decision| (decision.is_allowed(), decision.source())).map_err(|error| error.kind());
        assert_eq!(seen, expected, "{policy:?}");
        let error = ready_after(&clock, deadline, limiter.reset(&key, &limit)).expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}

#[test]
fn a_delay_of_the_deadline_is_within_it() {
    let (clock, key, limit) = (ManualClock::new(), Key::new("a"), "1/h".parse().expect("a limit"));
    let limiter = slow(&clock).deadline(DELAY).on_error(OnError::Raise).build().expect("builds");
    allowed(ready_after(&clock, DELAY, limiter.check(&key, &limit)));
}

#[test]
fn without_a_manual_clock_the_delay_is_real_time() {
    let (limiter, started_at) = (Limiter::slow(DELAY), Instant::now());
    let decision = limiter.check_blocking(&Key::new("a"), &"1/h".parse().expect("a limit"));
    assert_eq!(allowed(decision).source(), Source::Store);
    assert!(started_at.elapsed() >= DELAY);
}

#[test]
fn each_call_of_a_failing_limiter_fails_with_its_kind() {
    let (key, limit) = (Key::new("a"), "1/h".parse().expect("a limit"));
    for kind in [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::OutOfMemory, ErrorKind::Forked] {
        let limiter = Limiter::builder().failing(kind).on_error(OnError::Raise).build().expect("builds");
        let wait = limiter.wait_blocking(&key, &limit, Duration::from_secs(60));
        for decision in [limiter.check_blocking(&key, &limit), limiter.peek_blocking(&key, &limit), wait] {
            let error = decision.expect_err("fails");
            assert_eq!(
                (error.kind(), error.to_string()),
                (kind, format!("the store of this test fails with `{kind}`"))
            );
        }
        assert_eq!(limiter.reset_blocking(&key, &limit).expect_err("fails").kind(), kind);
    }
}

#[test]
fn the_policy_decides_about_the_calls_of_a_failing_limiter() {
    let (key, limit) = (Key::new("a"), "1/h".parse().expect("a limit"));
    let decide = |limiter: &Limiter| {
        let decision = limiter.check_blocking(&key, &limit).expect("decides");
        (decision.is_allowed(), decision.source())
    };
    let with = |kind, policy| Limiter::builder().failing(kind).on_error(policy).build().expect("builds");
    assert_eq!(decide(&with(ErrorKind::Loading, OnError::Open)), (true, Source::Policy));
    assert_eq!(decide(&with(ErrorKind::Loading, OnError::Closed)), (false, Source::Policy));
    assert_eq!(decide(&with(ErrorKind::Overloaded, OnError::Open)), (true, Source::Standby), "a flood can cause it");
    assert_eq!(decide(&with(ErrorKind::Forked, OnError::Standby)), (false, Source::Policy));
    let standby = Limiter::failing(ErrorKind::Unavailable);
    assert_eq!([decide(&standby), decide(&standby)], [(true, Source::Standby), (false, Source::Standby)]);
}

#[test]
fn options_out_of_their_range_are_rejected() {
    for builder in [Limiter::builder().failing(ErrorKind::Timeout), Limiter::builder().slow(DELAY)] {
        let error = builder.deadline(Duration::ZERO).build().expect_err("no limiter");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
