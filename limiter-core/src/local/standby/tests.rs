use crate::Key;
use limiter_testkit::Random;

use super::*;
use crate::local::leases::EndedLease;
use crate::local::leases::LeaseId;
use crate::request::Role;
use crate::{Algorithm, Limit, ManualClock};

const WINDOW_MILLIS: u64 = 1_000;
const WINDOW_ALGORITHMS: [Algorithm; 3] = [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingCounter];

fn standby(max_keys: usize) -> (Standby, ManualClock) {
    let clock = ManualClock::new();
    let config = StandbyConfig { max_keys, instances: Instances::set(1), slots: 1, is_in_child: false };
    (Standby::new(&config, Clock::Manual(clock.clone())), clock)
}

/// A standby limiter of one of so many instances.
fn standby_of(instances: u32) -> (Standby, ManualClock) {
    let clock = ManualClock::new();
    let config = StandbyConfig { max_keys: 1_000, instances: Instances::set(instances), slots: 1, is_in_child: false };
    (Standby::new(&config, Clock::Manual(clock.clone())), clock)
}

fn limit(max: u32, algorithm: Algorithm) -> Limit {
    Limit::new(max, Duration::from_millis(WINDOW_MILLIS)).expect("a limit").with_algorithm(algorithm)
}

fn admit_by_store(standby: &Standby, request: Request<'_>) {
    standby
        .reconcile(SlottedRequests::in_slot_0(&[request]), Duration::ZERO, None, &StoreReply::ALLOWED)
        .expect("the store decides alone");
}

fn decide(standby: &Standby, requests: &[Request<'_>]) -> StoreReply {
    standby.decide(requests, Duration::ZERO)
}

fn take_all(standby: &Standby, request: Request<'_>) -> u32 {
    let mut taken = 0;
    while decide(standby, &[request]).allowed {
        taken += request.cost;
    }
    taken
}

/// A window of the mirror's own clock began between the store's admissions and the failure. The store's window did not
/// end: its clock has another origin.
#[test]
fn a_window_edge_of_the_mirrors_clock_frees_no_permit() {
    for max_keys in [1, 1_000] {
        for algorithm in WINDOW_ALGORITHMS {
            let (standby, clock) = standby(max_keys);
            let (key, other) = (Key::new("a"), Key::new("resident"));
            let request = Request::new(&key, limit(5, algorithm), 1);
            // With `max_keys` of 1 the key shares an overflow counter.
            admit_by_store(&standby, Request::new(&other, limit(5, algorithm), 1));
            let until_edge = WINDOW_MILLIS - 1;
            clock.advance(Duration::from_millis(until_edge));
            (0..5).for_each(|_| admit_by_store(&standby, request));
            clock.advance(Duration::from_millis(until_edge));
            standby.calls_failed([request]);
            let denial = decide(&standby, &[request]);
            assert!(!denial.allowed, "{algorithm:?}, {max_keys} keys");
            assert_eq!(denial.retry_after, Some(Duration::from_millis(1)), "{algorithm:?}, {max_keys} keys");
            clock.advance(Duration::from_millis(1));
            assert_eq!(take_all(&standby, request), 5, "{algorithm:?}, {max_keys} keys");
        }
    }
}

/// A window of the store may begin at any instant of the mirror's clock.
#[test]
fn permits_of_two_store_windows_count_until_each_is_a_window_old() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingCounter] {
        let (standby, clock) = standby(1_000);
        let key = Key::new("a");
        let request = Request::new(&key, limit(5, algorithm), 1);
        for _ in 0..2 {
            (0..5).for_each(|_| admit_by_store(&standby, request));
            clock.advance(Duration::from_millis(WINDOW_MILLIS / 2));
        }
        standby.calls_failed([request]);
        assert_eq!(take_all(&standby, request), 0, "the newer five fill the limit");
        clock.advance(Duration::from_millis(WINDOW_MILLIS / 2));
        assert_eq!(take_all(&standby, request), 5, "{algorithm:?}");
    }
}

/// The windows have the same length, so the counters differ in the algorithm alone.
#[test]
fn limits_of_different_algorithms_have_separate_counters() {
    let (standby, _clock) = standby(1_000);
    let key = Key::new("a");
    let both = WINDOW_ALGORITHMS.map(|algorithm| Request::new(&key, limit(5, algorithm), 1));
    let decided = (0..6).map(|_| decide(&standby, &both).allowed);
    assert_eq!(decided.collect::<Vec<_>>(), [true, true, true, true, true, false]);
    standby.refund(&both[..1], standby.clock.now().micros());
    assert_eq!(both.map(|request| take_all(&standby, request)), [1, 0, 0]);
}

#[test]
fn a_refund_of_a_reservation_or_a_record_gives_back_its_whole_cost() {
    for algorithm in WINDOW_ALGORITHMS {
        let (standby, clock) = standby(1_000);
        let key = Key::new("a");
        let request = Request::new(&key, limit(5, algorithm), 2);
        clock.advance(Duration::from_millis(WINDOW_MILLIS - 1));
        let stamp = standby.record(&[request]);
        clock.advance(Duration::from_millis(2));
        let reservation = decide(&standby, &[request]);
        let one = Request { cost: 1, ..request };
        assert_eq!(take_all(&standby, one), 1, "{algorithm:?}");
        standby.refund(&[request], reservation.stamp);
        standby.refund(&[request], stamp);
        assert_eq!(take_all(&standby, one), 4, "{algorithm:?}");
    }
}

#[test]
fn a_reserved_permit_counts_from_the_stores_reply() {
    for algorithm in WINDOW_ALGORITHMS {
        let (standby, clock) = standby(1_000);
        let key = Key::new("a");
        let request = Request::new(&key, limit(1, algorithm), 1);
        let reservation = decide(&standby, &[request]);
        clock.advance(Duration::from_millis(60));
        standby
            .reconcile(SlottedRequests::in_slot_0(&[request]), Duration::ZERO, Some(&reservation), &StoreReply::ALLOWED)
            .expect("both allow it");
        clock.advance(Duration::from_millis(WINDOW_MILLIS - 1));
        assert_eq!(take_all(&standby, request), 0, "{algorithm:?}");
        clock.advance(Duration::from_millis(1));
        assert_eq!(take_all(&standby, request), 1, "{algorithm:?}");
    }
}

/// The store may grant twice `max` around a window edge, and the mirror records all of it. The standby limiter grants
/// no permit on top.
#[test]
fn the_standby_limiter_grants_no_permit_in_a_full_window() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        for algorithm in WINDOW_ALGORITHMS {
            let (standby, clock) = standby(if seed % 2 == 0 { 1 } else { 1_000 });
            let key = Key::new("a");
            let max = u32::try_from(1 + random.below(6)).expect("few");
            let mut taken: Vec<(u64, u32)> = Vec::new();
            for _ in 0..200 {
                clock.advance(Duration::from_micros(random.below(300_000)));
                let now = standby.clock.now();
                let cost = u32::try_from(1 + random.below(2)).expect("few");
                let request = Request::new(&key, limit(max, algorithm), cost);
                if random.below(4) == 0 {
                    standby.record(&[request]);
                } else if decide(&standby, &[request]).allowed {
                    let since = now.floor_millis().saturating_sub(WINDOW_MILLIS);
                    let used: u32 =
                        taken.iter().filter(|(stamp, _)| *stamp > since || since == 0).map(|(_, cost)| cost).sum();
                    assert!(used + cost <= max, "seed {seed}, {algorithm:?}: {used} and {cost} of {max}");
                } else {
                    continue;
                }
                taken.push((now.ceil_millis(), cost));
            }
        }
    }
}

fn ended_lease(key: &Key, limit: Limit, mirror_stamp: u64, used: u32, unused: u32) -> EndedLease {
    let id = LeaseId { mark: 1, end: 1 };
    EndedLease { key: key.clone(), limit, id, mirror_stamp, used, unused }
}

/// The used permits may have been used just before the end of the lease.
#[test]
fn the_end_of_a_lease_frees_its_unused_permits_and_the_used_ones_count_from_then_on() {
    for (used, unused) in [(2, 3), (5, 0), (0, 5)] {
        let (standby, clock) = standby(1_000);
        let key = Key::new("a");
        let request = Request::new(&key, limit(6, Algorithm::SlidingWindow), 1);
        clock.advance(Duration::from_millis(5));
        standby.record(&[request]);
        clock.advance(Duration::from_millis(5));
        let stamp = standby.record(&[Request { cost: 5, ..request }]);
        clock.advance(Duration::from_millis(15));
        ended_lease(&key, request.limit, stamp, used, unused).settle(&standby);
        assert_eq!(take_all(&standby, request), unused, "{used} used");

        // All but the permit before the lease were taken at the end of the lease.
        clock.advance(Duration::from_millis(WINDOW_MILLIS - 20));
        assert_eq!(take_all(&standby, request), 1, "{used} used");
        clock.advance(Duration::from_millis(19));
        assert_eq!(take_all(&standby, request), 0, "{used} used");
        clock.advance(Duration::from_millis(1));
        assert_eq!(take_all(&standby, request), 5, "{used} used");
    }
}

/// The cost fits into the limit, but not into a share of it.
#[test]
fn an_observed_request_that_never_fits_makes_no_denial_final() {
    let standby = standby_of(2).0;
    let key = Key::new("a");
    let enforced = Request::new(&key, limit(5, Algorithm::SlidingWindow), 4);
    let observed = Request { limit: limit(3, Algorithm::SlidingWindow), role: Role::ADDED.observed(), ..enforced };
    for requests in [&[enforced][..], &[enforced, observed]] {
        let denial = decide(&standby, requests);
        assert_eq!((denial.allowed, denial.retry_after), (false, Some(part::UNKNOWN_RETRY_AFTER)));
    }
}

/// A call within the limit must not block its key for an hour because it is beyond the share of this instance.
#[test]
fn a_denial_by_the_share_alone_begins_no_block() {
    let standby = standby_of(2).0;
    let block = "1h".parse().expect("a block");
    let block = Some(crate::block::BlockRef::of_rule("share alone", block));
    let key = Key::new("a");
    let request = Request { block, ..Request::new(&key, limit(4, Algorithm::SlidingWindow), 1) };
    assert_eq!(take_all(&standby, request), 2);
    let denied = decide(&standby, &[request]);
    assert!(!denied.allowed && !denied.is_blocked);
    // Those that the store had admitted fill the limit.
    (0..2).for_each(|_| admit_by_store(&standby, request));
    let denied = decide(&standby, &[request]);
    assert!(denied.is_blocked && denied.retry_after == Some(Duration::from_secs(3_600)), "{denied:?}");
}

/// The permits that the store grants beside the standby limiter, which is consulted.
fn take_all_of_store(standby: &Standby, request: Request<'_>, max: u32) -> u32 {
    let requests = [request];
    let slotted = SlottedRequests::in_slot_0(&requests);
    let take = |_: &u32| match standby.reserve(slotted, Duration::ZERO) {
        Ok(reservation) => {
            standby.reconcile(slotted, Duration::ZERO, reservation.as_ref(), &StoreReply::ALLOWED).is_ok()
        }
        Err(_) => false,
    };
    u32::try_from((0..max).take_while(take).count()).expect("a few")
}

/// The counters of a server that is well have what other instances were granted.
#[test]
fn after_a_late_call_alone_the_whole_limit_is_checked() {
    for algorithm in WINDOW_ALGORITHMS {
        for used in [0, 3, 50] {
            let (standby, clock) = standby_of(10);
            let key = Key::new("a");
            let request = Request::new(&key, limit(100, algorithm), 1);
            (0..used).for_each(|_| admit_by_store(&standby, request));
            standby.calls_failed([request]);
            let by_standby = u32::from(decide(&standby, &[request]).allowed);
            assert_eq!(by_standby, u32::from(used < 10), "a late call is decided by the share");
            assert_eq!(
                take_all_of_store(&standby, request, 200),
                100 - used - by_standby,
                "{algorithm:?}, {used} used"
            );
            clock.advance(Duration::from_millis(2 * WINDOW_MILLIS));
            assert_eq!(take_all_of_store(&standby, request, 200), 200, "the store decides alone");
        }
    }
}

#[test]
fn after_a_failure_of_a_server_the_share_holds_for_a_window() {
    for algorithm in WINDOW_ALGORITHMS {
        for used in [0, 3, 50] {
            let (standby, clock) = standby_of(10);
            let key = Key::new("a");
            let request = Request::new(&key, limit(100, algorithm), 1);
            (0..used).for_each(|_| admit_by_store(&standby, request));
            standby.server_failed(&[0..=0]);
            let left = 10_u32.saturating_sub(used);
            assert_eq!(take_all_of_store(&standby, request, 200), left, "{algorithm:?}, {used} used");
            clock.advance(Duration::from_millis(2 * WINDOW_MILLIS));
            assert_eq!(take_all_of_store(&standby, request, 200), 200, "the store decides alone");
        }
    }
}

/// A server that fails while the reply to a call is on its way: the call is counted by the share, or not at all.
#[test]
fn permits_that_were_granted_before_a_failure_are_counted_by_the_share() {
    for failure in [RecentFailure::Calls, RecentFailure::Server] {
        let (standby, _) = standby_of(10);
        let key = Key::new("a");
        let request = Request::new(&key, limit(100, Algorithm::SlidingWindow), 1);
        match failure {
            RecentFailure::Calls => standby.calls_failed([request]),
            RecentFailure::Server => standby.server_failed(&[0..=0]),
        }
        let requests = [request];
        let settle = |_: &u32| {
            let requests = SlottedRequests::in_slot_0(&requests);
            standby.reconcile(requests, Duration::ZERO, None, &StoreReply::ALLOWED).is_ok()
        };
        let expected = if failure == RecentFailure::Calls { 100 } else { 10 };
        assert_eq!((0..200).take_while(settle).count(), expected, "{failure:?}");
    }
}

/// The whole limit was checked for calls after a late one, and the server fails before their replies.
#[test]
fn reservations_from_before_a_failure_of_the_server_are_counted_by_the_share() {
    let (standby, _) = standby_of(10);
    let key = Key::new("a");
    let requests = [Request::new(&key, limit(100, Algorithm::SlidingWindow), 1)];
    let slotted = SlottedRequests::in_slot_0(&requests);
    standby.calls_failed(requests);
    let reserve = || standby.reserve(slotted, Duration::ZERO).expect("the whole limit").expect("consulted");
    let reservations: Vec<_> = (0..50).map(|_| reserve()).collect();
    standby.server_failed(&[0..=0]);
    let settle = |reservation: &StoreReply| {
        standby.reconcile(slotted, Duration::ZERO, Some(reservation), &StoreReply::ALLOWED).is_ok()
    };
    let settled = reservations.iter().filter(|reservation| settle(reservation)).count();
    assert_eq!(settled, 10, "the share");
}

/// The mirror of a bucket refills by the share, so that a bucket that was in use stays within it.
#[test]
fn a_bucket_in_use_refills_by_the_share() {
    let (standby, clock) = standby_of(10);
    let key = Key::new("a");
    let request = Request::new(&key, limit(100, Algorithm::TokenBucket), 1);
    (0..10).for_each(|_| admit_by_store(&standby, request));
    clock.advance(Duration::from_millis(WINDOW_MILLIS / 2));
    standby.server_failed(&[0..=0]);
    assert_eq!(take_all(&standby, request), 5, "half of the share has refilled, and not ten times as much");
}

#[cfg(feature = "calendar")]
mod calendar;
