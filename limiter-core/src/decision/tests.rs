use super::*;
use crate::{Key, Limiter, ManualClock};

fn denied(retry_after: Option<u64>) -> Denied {
    let details = Details { source: Source::Store, ..Details::of_request(DIRECT_CALL, 0, Limit::WIDEST) };
    Denied::new(details, retry_after)
}

#[test]
fn a_decision_has_the_details_of_its_allowed_or_denied_call() {
    let limiter = Limiter::builder().clock(ManualClock::new()).build().expect("builds");
    let (key, limit) = (Key::new("a"), "1/10s".parse().expect("valid"));
    let details = |decision: &Decision| {
        let name = decision.name().to_owned();
        (name, decision.limit(), decision.remaining(), decision.reset_after(), decision.source())
    };
    for is_allowed in [true, false] {
        let decision = limiter.check_blocking(&key, &limit).expect("decides");
        assert_eq!(decision.is_allowed(), is_allowed);
        let (name, own_limit, remaining, reset_after, source) = details(&decision);
        assert_eq!((&*name, own_limit, remaining, source), ("check", limit, 0, Source::Store));
        assert_eq!(reset_after, limit.window());
        let of_call = match &decision {
            Decision::Allowed(call) => (call.name(), call.limit(), call.remaining(), call.reset_after(), call.source()),
            Decision::Denied(call) => (call.name(), call.limit(), call.remaining(), call.reset_after(), call.source()),
        };
        assert_eq!((&*name, own_limit, remaining, reset_after, source), of_call);
    }
}

#[test]
fn seconds_until_a_retry_are_rounded_up_and_at_least_one() {
    let cases = [
        (Some(0), 1),
        (Some(1), 1),
        (Some(1_000_000), 1),
        (Some(1_000_999), 1),
        (Some(1_001_000), 2),
        (Some(59_999_999), 60),
        (Some(60_000_700), 60),
        (Some(u64::MAX), 18_446_744_073_710),
        (None, 4_294_967_295),
    ];
    for (micros, seconds) in cases {
        assert_eq!(denied(micros).retry_after_secs(), seconds, "{micros:?}");
    }
    assert_eq!(denied(None).retry_after_secs(), Denied::NEVER.as_secs());
}

#[test]
fn a_spread_is_between_the_exact_time_and_the_end_of_its_range() {
    let (exact, by) = (Duration::from_micros(250), Duration::from_micros(1_000));
    let denied = denied(Some(250));
    let spread: Vec<_> = (0..1_000).map(|_| denied.retry_after_spread(by)).collect();
    assert!(spread.iter().all(|pause| (exact..exact + by).contains(pause)), "{spread:?}");
    // Of 1 000 random values in 4 equal parts of the range each part has some.
    for part in 0..4 {
        let (from, to) = (exact + by / 4 * part, exact + by / 4 * (part + 1));
        assert!(spread.iter().any(|pause| (from..to).contains(pause)), "{part}");
    }
}

#[test]
fn a_spread_of_any_range_is_a_duration() {
    let zero = denied(Some(7)).retry_after_spread(Duration::ZERO);
    assert_eq!(zero, Duration::from_micros(7));
    assert!(denied(Some(u64::MAX)).retry_after_spread(Duration::MAX) >= denied(Some(u64::MAX)).retry_after());
    assert_eq!(denied(None).retry_after_spread(Duration::from_secs(5)), Denied::NEVER);
}
