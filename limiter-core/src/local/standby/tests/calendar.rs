//! Periods of the calendar, which the store ends by the zone of another process.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

/// A standby limiter at this hour of a day of UTC.
fn standby_at(hour: u64) -> (Standby, ManualClock) {
    let (standby, clock) = standby(1_000);
    let until_midnight = hours(24) - Duration::from_secs(clock.now().as_secs() % 86_400);
    clock.advance(until_midnight + hours(hour));
    (standby, clock)
}

fn reply(reset_after: Duration) -> StoreReply {
    StoreReply { reset_after, ..StoreReply::ALLOWED }
}

#[test]
fn a_period_ends_in_the_mirror_as_in_the_store() {
    let (standby, clock) = standby_at(4);
    let (key, limit) = (Key::new("a"), "2/day@UTC".parse().expect("a limit"));
    let requests = [Request::new(&key, limit, 1)];
    let slotted = SlottedRequests::in_slot_0(&requests);
    assert!(standby.reconcile(slotted, Duration::ZERO, None, &reply(hours(8))).is_ok());
    assert!(standby.reconcile_batch(&requests[0], 0, hours(8)).is_some());
    assert_eq!(decide(&standby, &requests).retry_after, Some(hours(8)));
    clock.advance(hours(8));
    let next = decide(&standby, &requests);
    assert_eq!((next.allowed, next.reset_after), (true, hours(12)), "a half is left, which is a period");
}

/// The own day ends at midnight, hours before or after the stored one.
#[test]
fn the_standby_limiter_is_consulted_to_the_end_of_the_stored_period_of_a_failure() {
    for reset_after in [hours(8), hours(26)] {
        let (standby, clock) = standby_at(4);
        let (key, limit) = (Key::new("a"), "2/day@UTC".parse().expect("a limit"));
        let requests = [Request::new(&key, limit, 1)];
        let slotted = SlottedRequests::in_slot_0(&requests);
        assert!(standby.reconcile(slotted, Duration::ZERO, None, &reply(reset_after)).is_ok());
        standby.calls_failed(requests);
        clock.advance(reset_after - MILLISECOND);
        assert!(standby.is_consulted(slotted), "{reset_after:?}");
        clock.advance(MILLISECOND);
        assert!(!standby.is_consulted(slotted), "{reset_after:?}");
        // Another key has no stored end.
        let other = Key::new("b");
        let others = [Request::new(&other, limit, 1)];
        standby.calls_failed(others);
        let until = hours(24) - Duration::from_secs(clock.now().as_secs() % 86_400);
        clock.advance(until - MILLISECOND);
        assert!(standby.is_consulted(SlottedRequests::in_slot_0(&others)));
        clock.advance(MILLISECOND);
        assert!(!standby.is_consulted(SlottedRequests::in_slot_0(&others)));
    }
}

/// The stored period began on the day before, of which the mirror has no record.
#[test]
fn a_failure_before_the_own_midnight_counts_to_the_end_of_the_stored_period() {
    let (standby, clock) = standby_at(20);
    let (key, limit) = (Key::new("a"), "2/day@UTC".parse().expect("a limit"));
    let requests = [Request::new(&key, limit, 1)];
    let slotted = SlottedRequests::in_slot_0(&requests);
    standby.calls_failed(requests);
    clock.advance(hours(5));
    assert!(!standby.is_consulted(slotted), "by its own clock");
    assert!(standby.reconcile(slotted, Duration::ZERO, None, &reply(hours(14))).is_ok());
    assert!(standby.is_consulted(slotted), "the store's period began before the failure");
    clock.advance(hours(14));
    assert!(!standby.is_consulted(slotted));
}

#[test]
fn a_reserved_call_ends_the_period_as_in_the_store() {
    let (standby, clock) = standby_at(4);
    let (key, limit) = (Key::new("a"), "2/day@UTC".parse().expect("a limit"));
    let requests = [Request::new(&key, limit, 1)];
    let slotted = SlottedRequests::in_slot_0(&requests);
    standby.calls_failed(requests);
    let reservation = standby.reserve(slotted, Duration::ZERO).expect("room").expect("consulted");
    assert!(standby.reconcile(slotted, Duration::ZERO, Some(&reservation), &reply(hours(8))).is_ok());
    assert_eq!(decide(&standby, &requests).reset_after, hours(8));
    clock.advance(hours(8));
    assert!(!standby.is_consulted(slotted));
}

#[test]
fn a_decision_about_several_limits_ends_the_period_that_its_reply_describes() {
    let (standby, _) = standby_at(4);
    let key = Key::new("a");
    let requests = ["9/10s", "2/day@UTC"].map(|limit| Request::new(&key, limit.parse().expect(limit), 1));
    let slotted = SlottedRequests::in_slot_0(&requests);
    let described = StoreReply { request_index: 1, ..reply(hours(8)) };
    assert!(standby.reconcile(slotted, Duration::ZERO, None, &described).is_ok());
    assert_eq!(decide(&standby, &requests[1..]).reset_after, hours(8));
}
