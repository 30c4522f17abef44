//! One lease: its permits, and the forms that it has before and after its time.

use crate::clock::Moment;
use crate::request::{CountedReply, RefundInfo, Request, StoreReply};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::{Key, Limit, Source};

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
    /// The instant of `reset_at`, in microseconds of the store's clock.
    pub(crate) store_reset_at: u64,
    /// The time at which the mirror took the permits, in microseconds of its clock.
    pub(crate) mirror_stamp: u64,
    /// The number of permits below which one call is to request the next lease.
    pub(crate) renew_below: u32,
}

impl NewLease {
    /// The form that it has without a call that used it.
    pub(super) fn into_unused(self) -> EndedLease {
        let unused = self.permits;
        self.into_ended(unused)
    }

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
    /// The permits that calls have used, and those that a pending take has hidden.
    pub(crate) used: u32,
    /// The permits that no call can use any more. They are to be given back.
    pub(crate) unused: u32,
}

/// A lease from which calls take permits. Only the two atomics change. Receipts share it.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(super) granted: NewLease,
    /// The table in which it was installed.
    table_id: u64,
    left: PermitsLeft,
    renewal_requested: AtomicBool,
}

/// The permits of a lease that are left.
///
/// A call subtracts its cost by one atomic operation, whose result shows whether there were enough permits. If not, it
/// adds the cost again. Until then other calls find too few permits, never too many. If the lease ends meanwhile, the
/// hidden permits count as used. A compare-and-swap loop loads the number first, which transfers the cache line twice
/// when several threads take permits.
///
/// The rest of the lease is in other cache lines, since each call reads it. Processors load lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct PermitsLeft(AtomicU64);

/// The value without permits of a lease that was not ended. Each permit adds 1.
const OPEN: u64 = 1 << 62;
/// The value of a lease that was ended.
const CLOSED: u64 = 1 << 61;
/// Between the two. A thread with a pending subtraction changes a value by 2^32 at most, far less than the distance.
const LOWEST_OPEN: u64 = OPEN - (1 << 60);

impl PermitsLeft {
    fn new(permits: u32) -> Self {
        Self(AtomicU64::new(OPEN + u64::from(permits)))
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) < LOWEST_OPEN
    }

    /// Takes permits. Returns how many are left; `None` if there were too few, or if it is closed.
    ///
    /// `may_be_too_few` reads the number first, so that a call which cannot be served hides no permits from others.
    #[inline]
    fn take(&self, permits: u32, may_be_too_few: bool) -> Option<u32> {
        let enough = OPEN + u64::from(permits);
        if may_be_too_few && self.0.load(Ordering::Acquire) < enough {
            return None;
        }
        let before = self.0.fetch_sub(permits.into(), Ordering::AcqRel);
        let left = before.checked_sub(enough).and_then(|left| u32::try_from(left).ok());
        if left.is_none() {
            self.0.fetch_add(permits.into(), Ordering::AcqRel);
        }
        left
    }

    /// Puts permits back, so that there are at most `max`. Returns false if there would be more, if it is closed, or if
    /// a subtraction is pending that finds too few.
    fn put_back(&self, permits: u32, max: u32) -> bool {
        let add = |value| {
            let sum = value + u64::from(permits);
            (value >= OPEN && sum <= OPEN + u64::from(max)).then_some(sum)
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    /// Returns the permits that are left, to one caller only. None are taken or put back afterwards.
    fn close(&self) -> Option<u32> {
        let before = self.0.swap(CLOSED, Ordering::AcqRel);
        (before >= LOWEST_OPEN).then(|| u32::try_from(before.saturating_sub(OPEN)).unwrap_or(0))
    }
}

impl Lease {
    pub(super) fn new(granted: NewLease, table_id: u64) -> Self {
        let left = PermitsLeft::new(granted.permits);
        Self { granted, table_id, left, renewal_requested: AtomicBool::new(false) }
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

    /// Returns whether calls with this request, of the limiter with this table, may use the lease while its time lasts.
    #[inline]
    pub(super) fn may_be_used(&self, table_id: u64, request: &Request<'_>) -> bool {
        self.table_id == table_id && self.is_for(request)
    }

    pub(super) fn has_counter(&self, key: &Key, limit: Limit) -> bool {
        Request::new(&self.granted.key, self.granted.limit, 0).has_counter(key, limit)
    }

    #[inline]
    pub(super) fn is_before_end(&self, now: Moment) -> bool {
        now < self.granted.ends_at
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.left.is_closed()
    }

    /// Takes `cost` permits. Returns how many are left. The caller has found the current time before the end of this lease.
    ///
    /// `seen` is the number of permits that this thread has left here last, or 0. Below an eighth of the lease they may
    /// be too few.
    #[inline]
    pub(super) fn take(&self, cost: u32, seen: &mut u32) -> Option<u32> {
        let permits = self.granted.permits;
        if cost > permits {
            return None;
        }
        let may_be_too_few = *seen < cost.saturating_add(permits / 8);
        let left = self.left.take(cost, may_be_too_few);
        *seen = left.unwrap_or(0);
        left
    }

    /// Returns true for one call of each lease: the first after which fewer than `renew_below` permits are left.
    #[inline]
    pub(super) fn needs_renewal(&self, left: u32) -> bool {
        left < self.granted.renew_below && self.request_renewal()
    }

    /// The request of a call that holds `cost` permits of it.
    pub(crate) fn request(&self, cost: u32) -> Request<'_> {
        Request::new(&self.granted.key, self.granted.limit, cost)
    }

    /// The data for a refund of its permits.
    pub(crate) fn refund_info(&self) -> RefundInfo {
        RefundInfo::from_lease(self.granted.id, self.granted.mirror_stamp)
    }

    /// Puts permits back that a call has taken. Returns false if the lease was ended, or cannot have them now.
    pub(super) fn put_back(&self, permits: u32) -> bool {
        self.left.put_back(permits, self.granted.permits)
    }

    /// Ends the lease. `None` if another thread has ended it.
    pub(super) fn end(&self) -> Option<EndedLease> {
        // A receipt of an earlier lease with the same id may have put permits back during a pending subtraction.
        let unused = self.left.close()?.min(self.granted.permits);
        Some(self.granted.clone().into_ended(unused))
    }

    /// Returns true to one caller only.
    fn request_renewal(&self) -> bool {
        // Calls after the first one only read the shared cache line.
        !self.renewal_requested.load(Ordering::Relaxed) && !self.renewal_requested.swap(true, Ordering::Relaxed)
    }
}

// The identity of a lease, in the stamps of permits and the data for their refund.

/// The identity of a lease in its counter: the mark of the store's log, and the end of the lease in milliseconds of the
/// store's clock. The end is also the stamp of the lease's permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseId {
    pub(crate) mark: u32,
    pub(crate) end: u64,
}

impl LeaseId {
    /// The stamp of its permits, in microseconds of the store's clock.
    pub(crate) fn stamp(self) -> u64 {
        self.end.saturating_mul(1000)
    }
}

impl CountedReply {
    pub(crate) fn from_lease(reply: StoreReply, id: LeaseId, mirror_stamp: u64) -> Self {
        Self { source: Source::Lease, ..Self::from_store(reply, mirror_stamp).with_lease(id) }
    }

    /// Returns it with the stamp that the store gave the permits, if that is `newest`: the newest stamp of a log with
    /// leases, which is ahead of the clock. A refund by the time of the call would remove permits of an earlier lease.
    pub(crate) fn stamped_at(self, newest: Option<LeaseId>) -> Self {
        let Some(id) = newest.filter(|_| self.is_store_admission()) else { return self };
        self.with_lease(id)
    }

    /// Returns it with permits that the store stamped at the end of a lease.
    fn with_lease(self, id: LeaseId) -> Self {
        Self { permits_stamp: id.stamp(), log_mark: Some(id.mark), ..self }
    }
}

impl RefundInfo {
    /// The data for permits of a lease that no call has taken. The mirror is reset after their refund.
    pub(crate) fn from_lease(id: LeaseId, mirror_stamp: u64) -> Self {
        Self { source: Source::Lease, log_mark: Some(id.mark), mirror_stamp, ..Self::from_store(id.stamp()) }
    }

    /// The lease from which the permits were taken, or at whose end the store stamped them.
    pub(crate) fn lease(&self) -> Option<LeaseId> {
        self.log_mark.map(|mark| LeaseId { mark, end: self.stamp / 1000 })
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_take_that_finds_too_few_permits_leaves_them() {
        for may_be_too_few in [false, true] {
            let left = PermitsLeft::new(5);
            assert_eq!(left.take(3, may_be_too_few), Some(2));
            assert_eq!(left.take(3, may_be_too_few), None);
            assert_eq!(left.take(2, may_be_too_few), Some(0));
            assert_eq!(left.close(), Some(0));
            assert_eq!((left.take(1, may_be_too_few), left.close(), left.is_closed()), (None, None, true));
        }
    }

    /// The first step of a take that finds too few permits.
    fn begin_take(left: &PermitsLeft, permits: u64) {
        left.0.fetch_sub(permits, Ordering::AcqRel);
    }

    fn undo_take(left: &PermitsLeft, permits: u64) {
        left.0.fetch_add(permits, Ordering::AcqRel);
    }

    #[test]
    fn a_pending_take_hides_permits_and_adds_none() {
        let left = PermitsLeft::new(5);
        assert_eq!(left.take(3, false), Some(2));
        begin_take(&left, 4);
        assert!(!left.is_closed() && left.take(1, false).is_none() && left.take(1, true).is_none());
        assert!(!left.put_back(3, 5), "the store gets them");
        undo_take(&left, 4);
        assert!(left.put_back(3, 5) && !left.put_back(1, 5));
        begin_take(&left, 6);
        assert_eq!(left.close(), Some(0), "they count as used");
        undo_take(&left, 6);
        assert!(left.is_closed() && !left.put_back(1, 5) && left.take(1, false).is_none() && left.close().is_none());
    }
}

#[cfg(all(test, limiter_loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::{model, thread};

    use super::*;

    /// One of two permits is taken. A call finds too few, the permit is put back, and the lease ends.
    #[test]
    fn permits_of_a_lease_are_not_used_twice_while_it_ends() {
        model(|| {
            let left = Arc::new(PermitsLeft::new(2));
            assert_eq!(left.take(1, false), Some(1));
            let [taking, putting_back] = [left.clone(), left.clone()];
            let taking = thread::spawn(move || taking.take(2, false).map_or(0, |_| 2));
            let putting_back = thread::spawn(move || u32::from(putting_back.put_back(1, 2)));
            let unused = left.close().expect("no other thread ends it");
            let taken = taking.join().expect("no panic");
            let held = 1 - putting_back.join().expect("no panic");
            assert!(taken + held + unused <= 2);
            assert!(left.is_closed() && left.close().is_none() && left.take(1, false).is_none());
        });
    }
}
