//! Leases in every interleaving: no permit is used twice or given back twice, and each is of its own lease.

use super::*;
use crate::local::leases::LeaseId;
use crate::local::leases::{EndedLease, NewLease};

const LIMIT: &str = "2/1m";
const ID: LeaseId = LeaseId { mark: 1, end: 1 };

/// Returns a lease of two permits.
fn lease(clock: &Clock, key: &str, mirror_stamp: u64) -> NewLease {
    let ends_at = clock.now_with_suspend().after(Duration::from_millis(10));
    NewLease {
        key: Key::new(key),
        limit: limit(LIMIT),
        slot: 0,
        id: ID,
        permits: 2,
        ends_at,
        remaining: 0,
        reset_at: ends_at,
        store_reset_at: 0,
        mirror_stamp,
        renew_below: 2,
    }
}

/// Returns leases with one of two permits of the key `a`.
fn leases_with_one() -> (Arc<Leases>, Clock) {
    let clock = clock();
    let leases = Arc::new(Leases::new(clock.clone()));
    assert!(leases.install(lease(&clock, "a", 0)).expect("the place is free").is_none());
    (leases, clock)
}

/// Takes a permit of the key `a`. Returns the number of permits taken.
fn take(leases: &Leases) -> u32 {
    leases.take(&request(&Key::new("a"), LIMIT), false).is_some().into()
}

/// Takes two permits of the key `a`, if there are as many.
fn take_two(leases: &Leases) -> bool {
    let key = Key::new("a");
    let two = Request { cost: 2, ..request(&key, LIMIT) };
    leases.take(&two, false).is_some()
}

fn end(leases: &Leases, key: &str) -> Option<EndedLease> {
    leases.end(&request(&Key::new(key), LIMIT), ID)
}

fn in_thread<R: 'static>(leases: &Arc<Leases>, run: impl FnOnce(&Leases) -> R + 'static) -> thread::JoinHandle<R> {
    let leases = Arc::clone(leases);
    thread::spawn(move || run(&leases))
}

#[test]
fn a_permit_is_taken_from_a_lease_or_unused_at_its_end() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        let taking = in_thread(&leases, take);
        let ended = end(&leases, "a").expect("no other thread ends it");
        let taken = taking.join().expect("no panic");
        assert_eq!((ended.used, ended.unused), (taken, 2 - taken));
        assert_eq!(take(&leases), 0, "it was ended");
    });
}

#[test]
fn two_calls_take_different_permits_of_a_lease_and_one_of_them_requests_the_next() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        let take =
            |leases: &Leases| leases.take(&request(&Key::new("a"), LIMIT), false).map(|permits| permits.needs_renewal);
        let other = in_thread(&leases, take);
        let [this, other] = [take(&leases), other.join().expect("no panic")].map(|taken| taken.expect("two permits"));
        assert!(this != other, "one of the two");
        assert!(take(&leases).is_none(), "both permits are taken");
        let ended = end(&leases, "a").expect("in force");
        assert_eq!((ended.used, ended.unused), (2, 0));
    });
}

/// Two calls have one permit between them, so that the second one sees that it is taken.
#[test]
fn two_calls_never_take_the_same_permit_of_a_lease() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        assert_eq!(take(&leases), 1);
        let other = in_thread(&leases, take);
        let taken = take(&leases) + other.join().expect("no panic");
        assert_eq!(taken, 1);
    });
}

/// A call that finds too few permits adds its cost again. A lease that is ended before that has fewer unused permits,
/// and never more.
#[test]
fn a_call_that_finds_too_few_permits_leaves_them_to_others() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        assert_eq!(take(&leases), 1);
        let taking = in_thread(&leases, take_two);
        let taken = take(&leases);
        assert!(!taking.join().expect("no panic"));
        assert_eq!(take(&leases), 1 - taken, "the permit is not lost");
        assert_eq!(take(&leases), 0);
    });
    model(|| {
        let (leases, _clock) = leases_with_one();
        assert_eq!(take(&leases), 1);
        let taking = in_thread(&leases, take_two);
        let ended = end(&leases, "a").expect("no other thread ends it");
        assert!(!taking.join().expect("no panic"));
        assert!(ended.unused <= 1 && ended.used + ended.unused == 2);
        assert_eq!((take(&leases), end(&leases, "a").is_none()), (0, true), "it stays ended");
    });
}

#[test]
fn a_permit_is_put_back_while_a_call_finds_too_few() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        assert_eq!(take(&leases), 1);
        let taking = in_thread(&leases, take_two);
        let put_back = leases.put_back(&request(&Key::new("a"), LIMIT), ID);
        let taken = if taking.join().expect("no panic") { 2 } else { 0 };
        let held = 1 - u32::from(put_back);
        let ended = end(&leases, "a").expect("in force");
        assert_eq!((ended.used, ended.unused), (held + taken, 2 - held - taken));
    });
}

/// Both leases have the same end and the same number of permits. The call may be stopped between its look at its own
/// lease and its take.
#[test]
fn a_call_takes_no_permit_of_another_counter_whose_lease_replaces_its_own() {
    model(|| {
        let (leases, clock) = leases_with_one();
        let taking = in_thread(&leases, take);
        let own = end(&leases, "a").expect("no other thread ends it");
        let installed = leases.install(lease(&clock, "b", 0));
        let taken = taking.join().expect("no panic");
        assert_eq!((own.used, own.unused), (taken, 2 - taken));
        match installed {
            Ok(replaced) => {
                assert!(replaced.is_none(), "it was ended before");
                let other = end(&leases, "b").expect("in force");
                assert_eq!((other.used, other.unused), (0, 2));
            }
            // The call was in the place.
            Err(refused) => assert_eq!((refused.used, refused.unused), (0, 2)),
        }
    });
}

/// The new lease has the id of the replaced one, as a grant of the same millisecond has.
#[test]
fn a_call_takes_a_permit_of_one_of_two_leases_of_its_counter() {
    model(|| {
        let (leases, clock) = leases_with_one();
        let taking = in_thread(&leases, take);
        let replaced = leases.install(lease(&clock, "a", 0)).unwrap_or_else(Some).expect("one of the two is over");
        let taken = taking.join().expect("no panic");
        let kept = end(&leases, "a").expect("in force");
        assert_eq!((replaced.used + kept.used, replaced.unused + kept.unused), (taken, 4 - taken));
    });
}

#[test]
fn a_permit_is_put_back_into_a_lease_or_used_at_its_end() {
    model(|| {
        let (leases, _clock) = leases_with_one();
        assert_eq!(take(&leases), 1);
        let putting_back = in_thread(&leases, |leases| leases.put_back(&request(&Key::new("a"), LIMIT), ID));
        let ended = end(&leases, "a").expect("no other thread ends it");
        let put_back = u32::from(putting_back.join().expect("no panic"));
        assert_eq!((ended.used, ended.unused), (1 - put_back, 1 + put_back));
        assert!(!leases.put_back(&request(&Key::new("a"), LIMIT), ID), "it was ended");
    });
}

/// A call resets the counter while the worker replaces the lease by one of another counter, which is over too.
#[test]
fn a_lease_that_is_ended_while_it_is_replaced_is_reported_once() {
    model(|| {
        let time = ManualClock::new();
        let clock = Clock::Manual(time.clone());
        let leases = Arc::new(Leases::new(clock.clone()));
        assert!(leases.install(lease(&clock, "a", 0)).expect("the place is free").is_none());
        time.advance(Duration::from_millis(10));
        let resetting = in_thread(&leases, |leases| leases.end_counter(&Key::new("a"), limit(LIMIT)).is_some());
        let replaced = leases.install(lease(&clock, "b", 0));
        let was_reset = resetting.join().expect("no panic");
        match replaced {
            Ok(replaced) => assert!(replaced.is_some() != was_reset, "one of the two"),
            // The reset was in the place.
            Err(refused) => assert!(was_reset && refused.key == Key::new("b")),
        }
    });
}

/// Returns the state of a process with a lease of two permits of the key `a`, which the mirror has recorded.
fn state_with_lease() -> std::sync::Arc<Local> {
    let clock = clock();
    let local = local(&clock);
    let mirror_stamp = local.standby().record(&[Request { cost: 2, ..request(&Key::new("a"), LIMIT) }]);
    assert!(local.leases().install(lease(&clock, "a", mirror_stamp)).expect("the place is free").is_none());
    local
}

/// The standby limiter is consulted as soon as the failure is recorded. So the leases have to end before the record.
#[test]
fn no_call_takes_a_permit_of_a_failed_server_while_the_standby_limiter_is_consulted() {
    model(|| {
        let local = state_with_lease();
        let calling = {
            let local = local.clone();
            thread::spawn(move || {
                let key = Key::new("a");
                let requests = SlottedRequests { requests: &[request(&key, LIMIT)], slots: &[0] };
                let is_consulted = local.standby().is_consulted(requests);
                let taken = take(local.leases());
                assert!(taken == 0 || !is_consulted, "a permit of a lease after the record of the failure");
            })
        };
        local.server_failed(&[0..=0]);
        calling.join().expect("no panic");
    });
}

/// The mirror has recorded both permits of the lease. After the failure the standby limiter grants those that no call has
/// used.
#[test]
fn calls_and_the_standby_limiter_use_no_permit_of_a_failed_server_twice() {
    model(|| {
        let (local, key) = (state_with_lease(), Key::new("a"));
        let has_failed = Arc::new(AtomicBool::new(false));
        let calling = {
            let (local, has_failed) = (local.clone(), Arc::clone(&has_failed));
            thread::spawn(move || {
                let had_failed = has_failed.load(Ordering::Acquire);
                let taken = take(local.leases());
                assert!(taken == 0 || !had_failed, "a permit after the failure");
                taken
            })
        };
        local.server_failed(&[0..=0]);
        has_failed.store(true, Ordering::Release);
        let decide = || local.standby().decide(&[request(&key, LIMIT)], Duration::ZERO).allowed;
        let granted: u32 = (0..3).map(|_| u32::from(decide())).sum();
        assert_eq!(granted + calling.join().expect("no panic"), 2);
    });
}
