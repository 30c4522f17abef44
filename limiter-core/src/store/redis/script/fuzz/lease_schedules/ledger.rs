//! The ledger of a schedule: the permits that the store may count for one key.
//!
//! It is an upper bound. Permits are in it from their grant to their expiry, unless they were returned: those of lost
//! replies, and those that processes use, too.

use std::collections::BTreeMap;
use std::mem::take;

use crate::local::leases::LeaseId;

/// The permits of one key, by their stamps. All times are in milliseconds of the server's clock.
pub(super) struct Ledger {
    window: u64,
    /// The longest time by which a stamp is ahead of the clock.
    lease_time: u64,
    permits: BTreeMap<PermitStamp, u64>,
    /// The permits that a reset has left. They cannot be returned.
    kept: BTreeMap<u64, u64>,
}

/// The stamp of permits, and the mark of their log if it is the end of a lease.
pub(super) type PermitStamp = (u64, Option<u32>);

/// The stamp of permits that were taken now, or at the newest stamp of a log with leases.
pub(super) fn permit_stamp(now: u64, newest: Option<LeaseId>) -> PermitStamp {
    newest.map_or((now, None), |LeaseId { mark, end }| (end, Some(mark)))
}

impl Ledger {
    pub(super) fn new(window: u64, lease_time: u64) -> Self {
        Self { window, lease_time, permits: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// Adds permits that the store has granted.
    pub(super) fn grant(&mut self, stamp: PermitStamp, permits: u32) {
        *self.permits.entry(stamp).or_default() += u64::from(permits);
    }

    /// Removes permits that a script call has returned, unless the store may refuse them.
    pub(super) fn take_back(&mut self, stamp: PermitStamp, permits: u32, now: u64) {
        // Permits that expire by the newest stamp are refused, and those from before a reset.
        if stamp.0 + self.window > now + self.lease_time
            && let Some(granted) = self.permits.get_mut(&stamp)
        {
            *granted = granted.checked_sub(permits.into()).expect("no permit is returned twice");
        }
    }

    /// Forgets the permits that a reset forgets: those stamped before the time, which is rounded down.
    pub(super) fn reset(&mut self, now: u64) {
        self.kept = self.kept.split_off(&now);
        for ((stamp, _), permits) in take(&mut self.permits).split_off(&(now, None)) {
            *self.kept.entry(stamp).or_default() += permits;
        }
    }

    /// Returns the most permits that the store may count.
    pub(super) fn bound(&mut self, now: u64) -> u64 {
        let oldest = (now + 1).saturating_sub(self.window);
        self.permits = self.permits.split_off(&(oldest, None));
        self.kept = self.kept.split_off(&oldest);
        self.permits.values().chain(self.kept.values()).sum()
    }
}

#[test]
fn a_ledger_has_permits_until_they_are_returned_or_expire() {
    let mut ledger = Ledger::new(100, 5);
    ledger.grant((10, None), 4);
    ledger.grant((15, Some(7)), 3);
    ledger.take_back((10, None), 1, 104);
    assert_eq!(ledger.bound(104), 6);
    ledger.take_back((10, None), 1, 105);
    assert_eq!(ledger.bound(109), 6, "the store may have refused them");
    assert_eq!(ledger.bound(110), 3);
    assert_eq!(ledger.bound(115), 0);
}

#[test]
fn a_reset_leaves_permits_whose_stamp_is_ahead_and_no_return_removes_them() {
    let mut ledger = Ledger::new(100, 5);
    ledger.grant((10, None), 4);
    ledger.grant((15, Some(7)), 3);
    ledger.reset(11);
    ledger.grant((15, Some(8)), 2);
    ledger.take_back((15, Some(7)), 3, 12);
    assert_eq!(ledger.bound(12), 5);
    ledger.take_back((15, Some(8)), 1, 12);
    assert_eq!(ledger.bound(12), 4);
    ledger.reset(16);
    assert_eq!(ledger.bound(16), 0);
}
