//! One lease: its permits, and the forms that it has before and after its time.

use std::time::Duration;

use crate::clock::Moment;
use crate::request::{CountedReply, LeaseId, Request, StoreReply};
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::{Key, Limit};

/// A lease that the store has granted.
#[derive(Clone, Debug)]
pub(crate) struct NewLease {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    /// The slot of the key in the store's cluster.
    pub(crate) slot: u16,
    pub(crate) id: LeaseId,
    pub(crate) permits: u32,
    /// The instant from which its permits must not be used, by [`Clock::now_with_suspend`].
    ///
    /// [`Clock::now_with_suspend`]: crate::clock::Clock::now_with_suspend
    pub(crate) ends_at: Moment,
    /// The permits that the store had left beside the lease.
    pub(crate) remaining: u32,
    /// The instant at which all permits are free again, by the clock of `ends_at`.
    pub(crate) reset_at: Moment,
    /// The time at which the mirror took the permits, in microseconds of its clock.
    pub(crate) mirror_stamp: u64,
    /// The number of permits below which one call is to request the next lease.
    pub(crate) renew_below: u32,
}

impl NewLease {
    fn into_ended(self, unused: u32) -> EndedLease {
        let Self { key, limit, id, permits, mirror_stamp, .. } = self;
        EndedLease { key, limit, id, mirror_stamp, used: permits - unused, unused }
    }
}

/// A lease that is over, or was ended.
#[derive(Debug)]
pub(crate) struct EndedLease {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) id: LeaseId,
    pub(crate) mirror_stamp: u64,
    /// The permits that calls have used.
    pub(crate) used: u32,
    /// The permits that no call can use any more. They are to be given back.
    pub(crate) unused: u32,
}

/// The permits of one call that a lease has allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedPermits {
    pub(crate) reply: StoreReply,
    pub(crate) id: LeaseId,
    pub(crate) mirror_stamp: u64,
    /// True for one call of each lease: the first after which fewer than `renew_below` permits are left.
    pub(crate) needs_renewal: bool,
}

impl LeasedPermits {
    /// The reply of the lease, with the data for a refund.
    pub(crate) fn into_counted(self) -> CountedReply {
        CountedReply::from_lease(self.reply, self.id, self.mirror_stamp)
    }
}

/// A lease from which calls take permits. Only the two atomics change.
#[derive(Debug)]
pub(super) struct Lease {
    granted: NewLease,
    /// The permits that are left, or [`CLOSED`].
    left: AtomicU32,
    renewal_requested: AtomicBool,
}

/// The value of `left` in a lease that was ended. The store leases at most a quarter of a limit, so no lease has as many
/// permits.
const CLOSED: u32 = u32::MAX;

impl Lease {
    pub(super) fn new(granted: NewLease) -> Self {
        let left = AtomicU32::new(granted.permits);
        Self { granted, left, renewal_requested: AtomicBool::new(false) }
    }

    pub(super) fn key(&self) -> &Key {
        &self.granted.key
    }

    pub(super) fn limit(&self) -> Limit {
        self.granted.limit
    }

    pub(super) fn id(&self) -> LeaseId {
        self.granted.id
    }

    pub(super) fn slot(&self) -> u16 {
        self.granted.slot
    }

    /// Returns whether calls with this request may use the lease. Those with another `max` must not.
    #[inline]
    pub(super) fn is_for(&self, request: &Request<'_>) -> bool {
        self.granted.limit == request.limit && self.granted.key == *request.key
    }

    pub(super) fn has_counter(&self, key: &Key, limit: Limit) -> bool {
        Request { key: &self.granted.key, limit: self.granted.limit, cost: 0 }.has_counter(key, limit)
    }

    #[inline]
    pub(super) fn is_before_end(&self, now: Moment) -> bool {
        now < self.granted.ends_at
    }

    pub(super) fn is_closed(&self) -> bool {
        self.left.load(Ordering::Acquire) == CLOSED
    }

    /// Takes `cost` permits. The caller has found `now` before the end, and still holds the lock under which it did.
    #[inline]
    pub(super) fn take(&self, cost: u32, now: Moment) -> Option<LeasedPermits> {
        let left = self.change_left(|left| left.checked_sub(cost))?.checked_sub(cost)?;
        let NewLease { id, remaining, reset_at, mirror_stamp, renew_below, .. } = self.granted;
        Some(LeasedPermits {
            reply: StoreReply {
                allowed: true,
                request_index: 0,
                remaining: remaining.saturating_add(left),
                retry_after: Some(Duration::ZERO),
                reset_after: now.until(reset_at),
                stamp: 0,
                delay: Duration::ZERO,
            },
            id,
            mirror_stamp,
            needs_renewal: left < renew_below && self.request_renewal(),
        })
    }

    /// Puts permits back that a call has taken. Returns false if the lease was ended.
    pub(super) fn put_back(&self, permits: u32) -> bool {
        let max = self.granted.permits;
        self.change_left(|left| left.checked_add(permits).filter(|left| *left <= max)).is_some()
    }

    /// Ends the lease. `None` if another thread has ended it.
    pub(super) fn end(&self) -> Option<EndedLease> {
        let unused = self.close()?;
        Some(self.granted.clone().into_ended(unused))
    }

    /// Ends a lease that no other thread can reach any more: see [`end`](Self::end).
    pub(super) fn into_ended(self) -> Option<EndedLease> {
        let unused = self.close()?;
        Some(self.granted.into_ended(unused))
    }

    /// Ends a lease that no call could reach.
    pub(super) fn into_unused(self) -> EndedLease {
        let permits = self.granted.permits;
        self.granted.into_ended(permits)
    }

    /// Changes the number of permits that are left, unless the lease was ended. Returns the number before.
    #[inline]
    fn change_left(&self, change: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let change = |left| if left == CLOSED { None } else { change(left) };
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).ok()
    }

    /// Returns the permits that are left, to one caller only. No call takes or puts back permits afterwards.
    fn close(&self) -> Option<u32> {
        let left = self.left.swap(CLOSED, Ordering::AcqRel);
        (left != CLOSED).then_some(left)
    }

    /// Returns true to one caller only.
    fn request_renewal(&self) -> bool {
        // Calls after the first one only read the shared cache line.
        !self.renewal_requested.load(Ordering::Relaxed) && !self.renewal_requested.swap(true, Ordering::Relaxed)
    }
}
