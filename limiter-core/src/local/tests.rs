use crate::Key;

use super::counter_hash::Table;
use super::leases::NewLease;
use super::recent_failures::RecentFailures;
use super::*;
use crate::instances::Instances;
use crate::local::leases::LeaseId;
use crate::request::SlottedRequests;
use crate::{Limit, ManualClock, Source};

const LONG: Duration = Duration::from_secs(3_600);
const DENIED: StoreReply =
    StoreReply { allowed: false, retry_after: Some(LONG), reset_after: LONG, ..StoreReply::ALLOWED };

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

/// Returns a state under a clock that stands still.
fn local(max_keys: usize, slots: u16) -> (Arc<Local>, Clock) {
    local_of(1, max_keys, slots)
}

/// Returns the state of one of so many instances.
fn local_of(instances: u32, max_keys: usize, slots: u16) -> (Arc<Local>, Clock) {
    let clock = Clock::Manual(ManualClock::new());
    let standby = StandbyConfig { max_keys, instances: Instances::set(instances), slots, is_in_child: false };
    let overflows = Overflows::new(Source::Standby, standby.max_keys, clock.clone());
    let options = LocalOptions { standby, remember_denials: LONG, clock: clock.clone(), overflows };
    (options.new_local(), clock)
}

/// Returns a lease of all permits of a request.
fn lease(request: &Request<'_>, slot: u16, clock: &Clock) -> NewLease {
    let now = clock.now_with_suspend();
    NewLease {
        key: request.key.clone(),
        limit: request.limit,
        slot,
        id: LeaseId { mark: 1, end: 1 },
        permits: request.limit.max(),
        ends_at: now.after(Duration::from_millis(10)),
        remaining: 0,
        reset_at: now,
        store_reset_at: 0,
        mirror_stamp: 0,
        renew_below: 0,
    }
}

/// All but one of the permits that the mirror counts are unused when the server fails, and may then be granted here.
#[test]
fn a_failed_server_ends_leases_before_the_standby_limiter_decides() {
    let (local, clock) = local(10, 2);
    let keys = ["a", "b"].map(Key::new);
    let [lost, kept] = keys.each_ref().map(|key| Request::new(key, limit("5/1s"), 1));
    for (slot, request) in [(0, lost), (1, kept)] {
        let mirror_stamp = local.standby.record(&[Request { cost: 5, ..request }]);
        let lease = NewLease { mirror_stamp, ..lease(&request, slot, &clock) };
        assert!(local.leases.install(lease).expect("the place is free").is_none());
        assert!(local.leases.take(&request, false).is_some());
    }
    local.server_failed(&[0..=0]);
    assert!(local.leases.take(&lost, false).is_none());
    assert!(local.leases.take(&kept, false).is_some());
    let admitted_by_standby = |request| {
        let decide = || local.standby.decide(&[request], Duration::ZERO).allowed;
        (0..10).filter(|_| decide()).count()
    };
    assert_eq!([lost, kept].map(admitted_by_standby), [4, 0]);
}

// Floods of keys that collide in one table. An attacker may find such keys by the times of its calls.

/// The places of each table.
const PLACES: usize = 4096;

/// Returns the keys whose place in a table is this key's. `hash` is the table's hash of a key.
fn colliding(with: &Key, table: Table, hash: impl Fn(&Key) -> CounterHash) -> Vec<Key> {
    // As many as evict any counter of the table.
    const KEYS: usize = 64;
    let place = |key: &Key| hash(key).place_and_tag(table, PLACES).0;
    let expected = place(with);
    (0..).map(|index: u32| Key::new("k").part(index)).filter(|key| place(key) == expected).take(KEYS).collect()
}

const TABLES: [Table; 4] = [Table::DENIALS, Table::LEASES, Table::DEMANDS, Table::FAILURES];

#[test]
fn a_flood_of_denied_keys_evicts_in_the_cache_of_denials_only() {
    let (key, limit) = (Key::new("victim"), limit("9/1m"));
    let victim = Request::new(&key, limit, 1);
    for table in TABLES {
        let (local, clock) = local(2, 1);
        let deny = |key: &Key| {
            let requests = [Request::new(key, limit, 1)];
            let sent =
                local.begin(SlottedRequests::in_slot_0(&requests), CounterHash::of(&requests[0]), Duration::ZERO);
            assert!(!sent.expect("no failure").settle(DENIED.into()).reply.allowed);
        };
        deny(&key);
        local.standby.record(&[Request { cost: 4, ..victim }]);
        assert!(local.leases.install(lease(&victim, 0, &clock)).is_ok());
        colliding(&key, table, |key| CounterHash::of(&Request::new(key, limit, 1))).iter().for_each(deny);
        assert_eq!(local.denials.get(&[victim]).is_none(), table == Table::DENIALS, "{table:?}");
        assert!(local.leases.take(&victim, false).is_some(), "{table:?}");
        // The mirror has room for one more key.
        let other = Key::new("other");
        local.standby.record(&[Request::new(&other, limit, 1)]);
        let left = |key| left(&local, &Request::new(key, limit, 1));
        assert_eq!((left(&key), left(&other)), (5, 8), "{table:?}");
    }
}

#[test]
fn a_flood_of_leased_keys_occupies_places_of_leases_only() {
    let (key, limit) = (Key::new("victim"), limit("9/1m"));
    let victim = Request::new(&key, limit, 1);
    for table in TABLES {
        let (local, clock) = local(2, 1);
        local.denials.update(&victim, local.denials.version(&victim), false, Some(&DENIED), None);
        let install = |key: &Key| local.leases.install(lease(&Request::new(key, limit, 1), 0, &clock)).is_ok();
        let flood = colliding(&key, table, |key| CounterHash::of(&Request::new(key, limit, 1)));
        assert!(flood.iter().filter(|key| install(key)).count() > 0, "{table:?}");
        assert_eq!(install(&key), table != Table::LEASES, "{table:?}");
        assert!(local.denials.get(&[victim]).is_some(), "{table:?}");
    }
}

/// Failures are found by the key alone, since a call may have failed for other limits of it.
#[test]
fn a_failure_counts_for_each_limit_of_its_key_and_for_those_that_collide_with_it_alone() {
    let (key, limit) = (Key::new("victim"), limit("9/1m"));
    let failures = RecentFailures::new(1);
    failures.call_failed(&Request::new(&key, limit, 1), 5);
    let is_recent = |key: &Key, limit| {
        let request = [Request::new(key, limit, 1)];
        failures.within_window(SlottedRequests::in_slot_0(&request), || 6, |_| None).is_some()
    };
    assert!(is_recent(&key, limit) && is_recent(&key, Limit::WIDEST));
    for table in TABLES {
        let flood = colliding(&key, table, CounterHash::of_key);
        let recent = flood.iter().filter(|key| is_recent(key, limit)).count();
        if table == Table::FAILURES {
            assert_eq!(recent, flood.len());
        } else {
            assert!(recent < 4, "{table:?}: {recent}");
        }
    }
}

#[test]
fn equal_hashes_do_not_decide() {
    let (local, clock) = local(10, 1);
    let keys = ["a", "b"].map(Key::new);
    let [one, other] = keys.each_ref().map(|key| Request::new(key, limit("9/1m"), 1));
    let (hash, longer) = (CounterHash::of(&one), Request { limit: limit("9/1h"), ..one });
    local.denials.update(&one, local.denials.version(&one), false, Some(&DENIED), None);
    assert!(local.denials.get_lone(&one, || hash).is_some());
    assert!([other, longer].iter().all(|request| local.denials.get_lone(request, || hash).is_none()));
    assert!(local.leases.install(lease(&one, 0, &clock)).is_ok());
    assert!([other, longer].iter().all(|request| local.leases.take_from(request, || hash, false).is_none()));
    assert!(local.leases.take_from(&one, || hash, false).is_some());
}

/// The permits of a request that the mirror has left.
fn left(local: &Local, request: &Request<'_>) -> u32 {
    local.standby.peek(&[*request]).remaining
}

#[test]
fn the_mirror_keeps_only_the_used_permits_of_a_lease_that_ends() {
    let (key, limit) = (Key::new("a"), limit("9/1m"));
    let request = Request::new(&key, limit, 1);
    let ends: [fn(&Local, &Request<'_>, NewLease); 4] = [
        |local, request, _| assert!(local.end_lease_of(request.key, request.limit).is_some()),
        |local, request, lease| assert!(local.end_lease(request, lease.id).is_some()),
        |local, _, lease| assert!(local.install_lease(lease).expect("its place").is_some(), "it is replaced"),
        |local, _, _| local.server_failed(&[0..=0]),
    ];
    for end in ends {
        let (local, clock) = local(10, 1);
        let mirror_stamp = local.mirror_lease(&Request { cost: 9, ..request }, 0).expect("no failure");
        let lease = NewLease { mirror_stamp, ..lease(&request, 0, &clock) };
        assert!(local.install_lease(lease.clone()).expect("the place is free").is_none());
        let three = [Request { cost: 3, ..request }];
        assert!(local.take_leased(&three[0], CounterHash::of(&request)).is_some());
        assert!(local.put_back(&three, &RefundInfo::from_lease(lease.id, mirror_stamp).with_max_permits(1)));
        assert_eq!(left(&local, &request), 0);
        end(&local, &request, lease);
        assert_eq!(left(&local, &request), 7);
    }
}

#[test]
fn the_mirror_keeps_nothing_of_a_lease_whose_place_is_taken() {
    let (key, limit) = (Key::new("a"), limit("9/1m"));
    let (local, clock) = local(10, 1);
    let other = &colliding(&key, Table::LEASES, |key| CounterHash::of(&Request::new(key, limit, 1)))[0];
    let [first, second] = [&key, other].map(|key| Request::new(key, limit, 9));
    assert!(local.install_lease(lease(&first, 0, &clock)).is_ok());
    let mirror_stamp = local.mirror_lease(&second, 0).expect("no failure");
    assert!(local.install_lease(NewLease { mirror_stamp, ..lease(&second, 0, &clock) }).is_err());
    assert_eq!(left(&local, &second), 9);
}

#[test]
fn the_standby_limiter_counts_failed_calls_until_they_are_released_refunded_or_reset() {
    let (key, limit) = (Key::new("a"), limit("9/1m"));
    let (local, request) = (local(10, 1).0, [Request::new(&key, limit, 2)]);
    local.record(&request);
    let decide = || local.decide_by_standby(&request, &CallOptions::default(), None);
    let (released, refunded) = (decide(), decide());
    assert_eq!(left(&local, &request[0]), 3);
    local.release(&request, &released);
    assert_eq!(left(&local, &request[0]), 5);
    local.refund_by_standby(&request, &CountedReply::from_standby(refunded.reply).refund_info().with_max_permits(1));
    assert_eq!(left(&local, &request[0]), 6);
    local.reset(&Request::new(&key, limit, 0));
    assert_eq!(left(&local, &request[0]), 9);
}

/// The whole limit was checked for a call after a late one, and the server fails while it is under way.
#[test]
fn a_call_that_fails_with_a_reservation_is_decided_by_the_share() {
    let (key, limit) = (Key::new("a"), limit("9/1m"));
    let requests = [Request::new(&key, limit, 1)];
    let failed = |local: &Local| {
        local.fail(requests.iter().copied());
        let reserve = || local.standby.reserve(SlottedRequests::in_slot_0(&requests), Duration::ZERO);
        let reservations: Vec<_> = (0..9).map(|_| reserve().expect("the whole limit").expect("consulted")).collect();
        let decide = |reservation: StoreReply| {
            local.decide_by_standby(&requests, &CallOptions::default(), Some(reservation.into())).reply.allowed
        };
        reservations.into_iter().filter(|reservation| decide(*reservation)).count()
    };
    assert_eq!(failed(&local_of(1, 10, 1).0), 9);
    // Those that are under way hold permits above the share until they have failed.
    assert_eq!(failed(&local_of(3, 10, 1).0), 3);
}
