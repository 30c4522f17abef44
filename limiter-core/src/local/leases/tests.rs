use std::cell::Cell;
use std::thread;
use std::time::Duration;

use super::*;
use crate::request::CountedReply;
use crate::sync::AtomicBool;
use crate::{ManualClock, Source};

const LEASE_TIME: Duration = Duration::from_millis(10);
/// The instant at which all permits are free, by the store's clock.
const STORE_RESET_AT: u64 = 5_000_000;
const ID: LeaseId = LeaseId { mark: 7, end: 1_000 };

fn leases(places: usize) -> (Leases, ManualClock) {
    let clock = ManualClock::new();
    (Leases::with_places(places, Clock::Manual(clock.clone())), clock)
}

fn request<'k>(key: &'k Key, limit: &str, cost: u32) -> Request<'k> {
    Request::new(key, limit.parse().expect("a limit"), cost)
}

/// Returns a lease of 5 permits of a request's counter that begins now.
fn lease(leases: &Leases, request: &Request<'_>) -> NewLease {
    let now = leases.clock.now_with_suspend();
    NewLease {
        key: request.key.clone(),
        limit: request.limit,
        slot: 3,
        id: ID,
        permits: 5,
        ends_at: now.after(LEASE_TIME),
        remaining: 100,
        reset_at: now.after(Duration::from_secs(1)),
        store_reset_at: STORE_RESET_AT,
        mirror_stamp: 42,
        renew_below: 0,
    }
}

fn install(leases: &Leases, request: &Request<'_>) {
    assert!(leases.install(lease(leases, request)).expect("the place is free").is_none());
}

fn used_and_unused(ended: Option<EndedLease>) -> Option<(u32, u32)> {
    ended.map(|ended| (ended.used, ended.unused))
}

#[test]
fn permits_of_a_lease_are_taken_until_too_few_are_left() {
    let (leases, clock) = leases(PLACES);
    let key = Key::new("a");
    let two = request(&key, "10000/1s", 2);
    assert!(leases.take(&two, false).is_none(), "no lease was installed");
    install(&leases, &two);
    clock.advance(Duration::from_millis(1));
    for left in [3, 1] {
        let permits = leases.take(&two, true).expect("permits are left");
        assert_eq!((permits.id, permits.mirror_stamp, permits.needs_renewal), (ID, 42, false));
        assert_eq!((permits.remaining, permits.reset_after), (100 + left, 999_000));
        let lease = permits.token.as_ref().expect("the call needs a receipt");
        assert_eq!(lease.request(2), two);
        assert_eq!(lease.refund_info().lease(), Some(ID));
        let counted = permits.into_counted();
        let refund_info = counted.refund_info();
        assert_eq!((refund_info.stamp, refund_info.lease()), (ID.stamp(), Some(ID)));
        let CountedReply { reply, source, mirror_stamp, .. } = counted;
        assert_eq!((reply.allowed, reply.remaining, reply.retry_after), (true, 100 + left, Some(Duration::ZERO)));
        assert_eq!((reply.reset_after, reply.stamp), (Duration::from_millis(999), STORE_RESET_AT - 999_000));
        assert_eq!((source, mirror_stamp), (Source::Lease, 42));
    }
    assert!(leases.take(&two, false).is_none(), "one permit is left");
    assert!(leases.take(&Request { cost: u32::MAX, ..two }, false).is_none());
    assert!(leases.take(&Request { cost: 0, ..two }, false).is_none(), "a call without a cost takes nothing");
    assert!(leases.take(&Request { cost: 1, ..two }, false).is_some());
    assert_eq!(used_and_unused(leases.end(&two, ID)), Some((5, 0)));
}

/// Takes a permit, and returns its receipt's reference to the lease.
fn take_with_receipt(leases: &Leases, request: &Request<'_>) -> GrantToken {
    leases.take(request, true).and_then(|permits| permits.token).expect("permits are left, and a receipt was asked for")
}

/// The references are those of the table, of the thread and of receipts.
#[test]
fn receipts_of_calls_one_after_the_other_share_a_reference() {
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    install(&leases, &one);
    for _ in 0..3 {
        assert_eq!(Arc::strong_count(&take_with_receipt(&leases, &one)), 3);
    }
    let first = take_with_receipt(&leases, &one);
    let second = take_with_receipt(&leases, &one);
    assert_eq!((Arc::strong_count(&first), Arc::as_ptr(&first)), (4, Arc::as_ptr(&second)));
    drop(second);
    assert_eq!(Arc::strong_count(&first), 4, "the thread keeps one as its spare reference");
    thread::scope(|scope| scope.spawn(move || drop(first)).join()).expect("no panic");
    assert_eq!(used_and_unused(leases.end(&one, ID)), Some((5, 0)));
}

#[test]
fn a_thread_keeps_no_reference_of_a_receipt_to_another_lease_than_its_last() {
    let (leases, _clock) = leases(PLACES);
    let (key, other_key) = (Key::new("a"), Key::new("b"));
    let [one, other] = [&key, &other_key].map(|key| request(key, "10000/1s", 1));
    install(&leases, &one);
    install(&leases, &other);
    let of_one = take_with_receipt(&leases, &one);
    let of_other = take_with_receipt(&leases, &other);
    let lease = Arc::downgrade(&of_one);
    drop(of_one);
    assert_eq!(lease.strong_count(), 1, "the table's own");
    assert_eq!(Arc::strong_count(&of_other), 3);
}

#[test]
fn no_permit_is_taken_or_put_back_from_the_end_of_a_lease_on() {
    let (leases, clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    install(&leases, &one);
    clock.advance(LEASE_TIME - Duration::from_micros(1));
    assert!(leases.take(&one, false).is_some());
    assert!(leases.take(&one, false).is_some());
    assert!(leases.put_back(&one, ID));
    clock.advance(Duration::from_micros(1));
    assert!(leases.take(&one, false).is_none());
    assert!(!leases.put_back(&one, ID));
    assert_eq!(used_and_unused(leases.end(&one, ID)), Some((1, 4)), "the permit that was put back is unused");
}

#[test]
fn a_call_with_another_key_max_or_window_finds_no_lease() {
    // One place, so that only the comparisons tell the counters apart.
    let (leases, _clock) = leases(1);
    let (key, other) = (Key::new("a"), Key::new("b"));
    let one = request(&key, "10000/1s", 1);
    install(&leases, &one);
    assert!(leases.take(&one, false).is_some());
    let others = [request(&other, "10000/1s", 1), request(&key, "10001/1s", 1), request(&key, "10000/2s", 1)];
    for request in others {
        assert!(leases.take(&request, false).is_none(), "{request:?}");
        assert!(!leases.put_back(&request, ID), "{request:?}");
        assert!(leases.end(&request, ID).is_none(), "{request:?}");
    }
    assert_eq!(used_and_unused(leases.end(&one, ID)), Some((1, 4)));
}

/// The lease that a thread used last is of another key, of another limiter, ended or replaced.
#[test]
fn a_call_uses_the_lease_of_its_own_counter_after_calls_with_another() {
    let (leases, _clock) = leases(PLACES);
    let (key, other_key) = (Key::new("a"), Key::new("b"));
    let [one, other] = [&key, &other_key].map(|key| request(key, "10000/1s", 1));
    let permits_left = |leases: &Leases, request| leases.take(request, false).map(|permits| permits.remaining - 100);
    install(&leases, &one);
    install(&leases, &other);
    for left in [4, 3] {
        assert_eq!((permits_left(&leases, &one), permits_left(&leases, &other)), (Some(left), Some(left)));
    }

    let (of_another_limiter, _clock) = self::leases(PLACES);
    assert_eq!(permits_left(&of_another_limiter, &other), None);
    install(&of_another_limiter, &other);
    assert_eq!(permits_left(&of_another_limiter, &other), Some(4));
    assert_eq!(permits_left(&leases, &other), Some(2));

    assert_eq!(used_and_unused(leases.end(&other, ID)), Some((3, 2)));
    assert_eq!(permits_left(&leases, &other), None);
    install(&leases, &other);
    assert_eq!(permits_left(&leases, &other), Some(4));
    let replaced = leases.install(lease(&leases, &other)).expect("the place has the same counter");
    assert_eq!(used_and_unused(replaced), Some((1, 4)));
    assert_eq!(permits_left(&leases, &other), Some(4));
}

/// Two keys may have the same hash.
#[test]
fn a_call_with_another_key_of_the_same_tag_finds_no_lease() {
    let (leases, _clock) = leases(PLACES);
    let [key, other] = ["a", "b"].map(|end| Key::new("k".repeat(1_000)).part(end));
    let [one, other] = [&key, &other].map(|key| request(key, "10000/1s", 1));
    install(&leases, &one);
    assert!(leases.take_from(&other, || CounterHash::of(&one), false).is_none());
    assert!(leases.take(&one, false).is_some());
}

#[test]
fn one_call_of_each_lease_requests_the_next_one() {
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    let requests =
        |leases: &Leases| (0..5).map(|_| leases.take(&one, false).expect("a permit").needs_renewal).collect::<Vec<_>>();
    for _ in 0..2 {
        let _ = leases.install(NewLease { renew_below: 3, ..lease(&leases, &one) }).expect("the place is free");
        assert_eq!(requests(&leases), [false, false, true, false, false]);
    }
    let _ = leases.install(NewLease { renew_below: 3, ..lease(&leases, &one) }).expect("the place is free");
    let three = Request { cost: 3, ..one };
    assert!(leases.take(&three, false).expect("permits").needs_renewal);
    assert!(leases.put_back(&three, ID));
    assert_eq!(requests(&leases), [false; 5], "it was requested before the permits were put back");
}

#[test]
fn permits_are_put_back_into_their_own_lease_alone() {
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let two = request(&key, "10000/1s", 2);
    assert!(!leases.put_back(&two, ID), "no lease was installed");
    install(&leases, &two);
    assert!(!leases.put_back(&two, ID), "nothing was taken");
    assert!(leases.take(&two, false).is_some());
    for id in [LeaseId { mark: 8, ..ID }, LeaseId { end: 1_001, ..ID }] {
        assert!(!leases.put_back(&two, id), "{id:?}");
    }
    assert!(leases.put_back(&two, ID));
    assert!(leases.take(&Request { cost: 5, ..two }, false).is_some());
    assert_eq!(used_and_unused(leases.end(&two, ID)), Some((5, 0)));
    assert!(!leases.put_back(&two, ID), "it was ended");
}

#[test]
fn a_lease_is_ended_once_and_gives_no_permit_afterwards() {
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    assert!(leases.end(&one, ID).is_none(), "no lease was installed");
    install(&leases, &one);
    assert!(leases.take(&one, false).is_some());
    assert!(leases.end(&one, LeaseId { mark: 8, ..ID }).is_none());
    let ended = leases.end(&one, ID).expect("in force");
    assert_eq!((&ended.key, ended.limit), (&key, one.limit));
    assert_eq!((ended.id, ended.mirror_stamp, ended.used, ended.unused), (ID, 42, 1, 4));
    assert!(leases.take(&one, false).is_none());
    assert!(leases.end(&one, ID).is_none());
    assert!(leases.end_counter(&key, one.limit).is_none());
    assert!(leases.end_slots(&[0..=16_383]).is_empty());
    install(&leases, &one);
    assert!(leases.take(&one, false).is_some(), "the next lease");
}

#[test]
fn a_lease_of_the_same_counter_replaces_one_in_force() {
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    let of_other_max = request(&key, "20000/1s", 1);
    install(&leases, &one);
    assert!(leases.take(&one, false).is_some());
    let next_id = LeaseId { end: 1_010, ..ID };
    let next = NewLease { id: next_id, ..lease(&leases, &one) };
    let replaced = leases.install(next).expect("the same counter").expect("it was in force");
    assert_eq!((replaced.id, replaced.used, replaced.unused), (ID, 1, 4));
    assert!(leases.end(&one, ID).is_none(), "it was replaced");
    assert!(!leases.put_back(&one, ID), "it was replaced");
    assert_eq!(leases.take(&one, false).map(|permits| permits.id), Some(next_id));
    assert!(leases.is_available(&of_other_max));
    let replaced = leases.install(lease(&leases, &of_other_max)).expect("the same counter").expect("it was in force");
    assert_eq!((replaced.id, replaced.limit, replaced.used, replaced.unused), (next_id, one.limit, 1, 4));
    assert!(leases.take(&one, false).is_none());
    assert!(leases.take(&of_other_max, false).is_some());
}

#[test]
fn a_lease_keeps_its_place_from_another_counter_until_it_is_ended() {
    let (leases, clock) = leases(1);
    let keys = ["a", "b", "c"].map(Key::new);
    let [first, second, third] = keys.each_ref().map(|key| request(key, "10000/1s", 1));
    assert!(leases.is_available(&second), "no lease was installed");
    install(&leases, &first);
    assert!(leases.is_available(&first) && !leases.is_available(&second));
    let refused = leases.install(lease(&leases, &second)).expect_err("the place is in use");
    assert_eq!((&refused.key, refused.used, refused.unused), (second.key, 0, 5));
    assert!(leases.take(&second, false).is_none());
    assert!(leases.take(&first, false).is_some());

    clock.advance(LEASE_TIME);
    assert!(!leases.is_available(&second), "its time has passed, but its unused permits were not returned");
    leases.install(lease(&leases, &second)).expect_err("the place is in use");
    let ended = leases.end(&first, ID).expect("it was not ended before");
    assert_eq!((&ended.key, ended.used, ended.unused), (first.key, 1, 4));
    assert!(leases.install(lease(&leases, &second)).expect("the place is free").is_none());
    assert!(leases.take(&first, false).is_none());
    assert!(leases.take(&second, false).is_some());

    assert!(leases.end(&second, ID).is_some());
    assert!(leases.is_available(&third), "it was ended");
    assert!(leases.install(lease(&leases, &third)).expect("the place is free").is_none(), "it was reported before");
    assert!(leases.take(&third, false).is_some());
}

#[test]
fn a_reset_ends_the_lease_of_a_counter_with_any_max() {
    let (leases, _clock) = leases(1);
    let (key, other) = (Key::new("a"), Key::new("b"));
    let one = request(&key, "10000/1s", 1);
    let limit = |text: &str| text.parse::<Limit>().expect("a limit");
    install(&leases, &one);
    assert!(leases.end_counter(&other, one.limit).is_none());
    assert!(leases.end_counter(&key, limit("10000/2s")).is_none());
    assert!(leases.take(&one, false).is_some());
    assert_eq!(used_and_unused(leases.end_counter(&key, limit("5/1s"))), Some((1, 4)));
    assert!(leases.take(&one, false).is_none());
}

#[test]
fn a_failed_server_ends_the_leases_of_its_slots() {
    let (leases, _clock) = leases(PLACES);
    assert!(leases.end_slots(&[0..=16_383]).is_empty(), "no lease was installed");
    let keys = ["a", "b", "c"].map(Key::new);
    let [first, second, third] = keys.each_ref().map(|key| request(key, "10000/1s", 1));
    for (slot, request) in [(5, first), (6, second), (9, third)] {
        assert!(leases.install(NewLease { slot, ..lease(&leases, &request) }).expect("the place is free").is_none());
        assert!(leases.take(&request, false).is_some());
    }
    assert!(leases.end_slots(&[]).is_empty());
    let mut ended: Vec<_> =
        leases.end_slots(&[0..=5, 8..=9]).into_iter().map(|ended| (ended.key.encoded(), ended.unused)).collect();
    ended.sort_unstable();
    assert_eq!(ended, [("a".to_owned(), 4), ("c".to_owned(), 4)]);
    assert_eq!([first, second, third].map(|request| leases.take(&request, false).is_some()), [false, true, false]);
}

/// The system may stop a call at any instant. The worker must not wait for it.
#[test]
fn the_worker_does_not_wait_for_a_call_that_was_stopped_in_a_place() {
    let (leases, _clock) = leases(1);
    let (key, other) = (Key::new("a"), Key::new("b"));
    let one = request(&key, "10000/1s", 1);
    install(&leases, &one);
    let stopped = leases.table.get().expect("a lease was installed").places[0].read().expect("no panic");
    for request in [one, request(&other, "10000/1s", 1)] {
        let refused = leases.install(lease(&leases, &request)).expect_err("the place is locked");
        assert_eq!((&refused.key, refused.used, refused.unused), (request.key, 0, 5));
    }
    assert!(leases.take(&one, false).is_some(), "the lease that was to be replaced is still found");
    assert_eq!(used_and_unused(leases.end(&one, ID)), Some((1, 4)), "an end does not wait either");
    drop(stopped);
    install(&leases, &one);
}

/// While calls are in a place, the worker hides its lease from others, and tries to replace it.
#[test]
fn a_reset_ends_a_lease_that_the_worker_tries_to_replace() {
    let (leases, _clock) = leases(1);
    let (key, other) = (Key::new("a"), Key::new("b"));
    let [one, of_other] = [&key, &other].map(|key| request(key, "10000/1s", 1));
    for _ in 0..20 {
        install(&leases, &one);
        let table = leases.table.get().expect("a lease was installed");
        let place = table.places[0].read().expect("no panic");
        let ended = thread::scope(|scope| {
            let installing = scope.spawn(|| (0..500).all(|_| leases.install(lease(&leases, &of_other)).is_err()));
            while table.tags[0].load(Ordering::Acquire) != EMPTY && !installing.is_finished() {}
            let ended = leases.end_counter(&key, one.limit);
            assert!(installing.join().expect("no panic"), "the place is locked");
            ended
        });
        assert_eq!(used_and_unused(ended), Some((0, 5)));
        drop(place);
    }
}

/// Calls take permits all the time while the worker replaces the lease.
#[test]
fn every_permit_is_either_used_or_unused_while_leases_are_replaced() {
    const ROUNDS: u32 = 2_000;
    let (leases, _clock) = leases(1);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    let is_done = AtomicBool::new(false);
    let take = || {
        (0..).take_while(|_| !is_done.load(Ordering::Relaxed)).filter(|_| leases.take(&one, false).is_some()).count()
    };
    let (taken, ended) = thread::scope(|scope| {
        let callers = [scope.spawn(take), scope.spawn(take)];
        let install = |_| leases.install(lease(&leases, &one)).unwrap_or_else(Some);
        let replaced: Vec<EndedLease> = (0..ROUNDS).filter_map(install).collect();
        let last = leases.end_counter(&key, one.limit);
        is_done.store(true, Ordering::Relaxed);
        let taken: usize = callers.into_iter().map(|caller| caller.join().expect("no panic")).sum();
        (taken, replaced.into_iter().chain(last))
    });
    let sums = ended.fold((0, 0), |(used, unused), ended| (used + ended.used, unused + ended.unused));
    assert_eq!((usize::try_from(sums.0).expect("few"), sums.0 + sums.1), (taken, 5 * ROUNDS));
}

/// Calls of several costs often find too few permits, and put some back.
#[test]
fn no_permit_is_used_twice_by_calls_of_several_costs_while_leases_are_replaced() {
    const ROUNDS: u32 = 2_000;
    let (leases, _clock) = leases(1);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    let is_done = AtomicBool::new(false);
    // A receipt may put permits into a later lease, which has the same id here.
    let calls = || {
        let (mut taken, mut put_back) = (0, 0);
        for number in 0.. {
            let request = Request { cost: 1 + number % 5, ..one };
            if is_done.load(Ordering::Relaxed) {
                break;
            }
            if leases.take(&request, false).is_some() {
                taken += request.cost;
                if number % 3 == 0 && leases.put_back(&request, ID) {
                    put_back += request.cost;
                }
            }
        }
        (taken, put_back)
    };
    let (taken, put_back, ended) = thread::scope(|scope| {
        let callers = [scope.spawn(calls), scope.spawn(calls), scope.spawn(calls)];
        let install = |_| leases.install(lease(&leases, &one)).unwrap_or_else(Some);
        let replaced: Vec<EndedLease> = (0..ROUNDS).filter_map(install).collect();
        let last = leases.end_counter(&key, one.limit);
        is_done.store(true, Ordering::Relaxed);
        let sums = callers.map(|caller| caller.join().expect("no panic"));
        let taken: u32 = sums.iter().map(|(taken, _)| taken).sum();
        let put_back: u32 = sums.iter().map(|(_, put_back)| put_back).sum();
        (taken, put_back, replaced.into_iter().chain(last))
    });
    let (used, unused) = ended.fold((0, 0), |(used, unused), ended| (used + ended.used, unused + ended.unused));
    assert_eq!(used + unused, 5 * ROUNDS);
    assert!(taken - put_back <= used, "{taken} taken, {put_back} put back, {used} used");
}

/// A program may keep a decision in a thread-local value, which is dropped while the thread ends.
#[test]
fn a_receipt_is_dropped_while_its_thread_ends() {
    thread_local! {
        static KEPT: Cell<Option<GrantToken>> = const { Cell::new(None) };
    }
    let (leases, _clock) = leases(PLACES);
    let key = Key::new("a");
    let one = request(&key, "10000/1s", 1);
    install(&leases, &one);
    let lease = Arc::downgrade(&take_with_receipt(&leases, &one));
    for is_first in [false, true] {
        let in_thread = || {
            // The value that is used first is dropped last.
            if is_first {
                KEPT.set(None);
            }
            KEPT.set(Some(take_with_receipt(&leases, &one)));
        };
        thread::scope(|scope| scope.spawn(in_thread).join()).expect("no panic");
    }
    assert_eq!(lease.strong_count(), 3, "those of the table and of this thread, with its spare one");
}

#[test]
fn the_clock_of_leases_follows_a_manual_clock_and_never_moves_back() {
    let (leases, clock) = leases(1);
    let before = leases.clock.now_with_suspend();
    clock.advance(LEASE_TIME);
    assert_eq!(before.until(leases.clock.now_with_suspend()), LEASE_TIME);
    let mut last = Clock::System.now_with_suspend();
    for _ in 0..10_000 {
        let now = Clock::System.now_with_suspend();
        assert!(last <= now);
        last = now;
    }
}
