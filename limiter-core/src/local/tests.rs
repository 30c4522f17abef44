use std::num::NonZeroU32;

use super::leases::NewLease;
use super::*;
use crate::request::{LeaseId, Request};
use crate::{Key, Limit, ManualClock, Source};

/// All but one of the permits that the mirror counts are unused when the server fails, and may then be granted here.
#[test]
fn a_failed_server_ends_leases_before_the_standby_limiter_decides() {
    let clock = Clock::Manual(ManualClock::new());
    let standby = StandbyConfig { max_keys: 10, instances: NonZeroU32::MIN, slots: 2 };
    let overflows = Overflows::new(Source::Standby, standby.max_keys, clock.clone());
    let local = LocalOptions { standby, remember_denials: Duration::ZERO, clock: clock.clone(), overflows }.new_local();
    let limit: Limit = "5/1s".parse().expect("a limit");
    let keys = ["a", "b"].map(Key::new);
    let [lost, kept] = keys.each_ref().map(|key| Request::new(key, limit, 1));
    for (slot, request) in [(0, lost), (1, kept)] {
        let mirror_stamp = local.standby.record(&[Request { cost: 5, ..request }]);
        let now = clock.now_with_suspend();
        let lease = NewLease {
            key: request.key.clone(),
            limit,
            slot,
            id: LeaseId { mark: 1, end: 1 },
            permits: 5,
            ends_at: now.after(Duration::from_millis(10)),
            remaining: 0,
            reset_at: now,
            store_reset_at: 0,
            mirror_stamp,
            renew_below: 0,
        };
        assert!(local.leases.install(lease).expect("the place is free").is_none());
        assert!(local.leases.take(&request, false).is_some());
    }
    local.server_failed(&[0..=0]);
    assert!(local.leases.take(&lost, false).is_none());
    assert!(local.leases.take(&kept, false).is_some());
    let admitted_by_standby = |request| {
        let decide = || local.standby.decide(&[request], Duration::ZERO).expect("no lock is orphaned").allowed;
        (0..10).filter(|_| decide()).count()
    };
    assert_eq!([lost, kept].map(admitted_by_standby), [4, 0]);
}
