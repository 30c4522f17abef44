//! Leases: permits of hot keys that this process has taken ahead.
//!
//! The store grants a lease in a script call that the process makes anyway. It stamps the permits at the end of the time
//! in which they may be used, so they count at least as long as if they were taken one by one. Until then a call takes
//! them here. Permits that are left at the end are given back.
//!
//! A permit must not be used after the end of its own lease. So each lease is an object of its own, which no other lease
//! replaces: a call looks at the key, the limit and the end of the object from which it takes the permits. Two leases may
//! have the same end and the same number of permits left, so comparing those would not be enough.
//!
//! A lease is ended by one atomic swap, whose result is the number of unused permits. So they are given back once. A call
//! that still has the object takes nothing afterwards. A call that has just found too few permits may hide some at that
//! moment. They count as used.

use std::cell::Cell;
use std::hint;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::local::counter_hash::{CounterHash, Table};
use crate::local::recent_failures::Slots;
use crate::request::{ChargeReply, CountedReply, DecisionReply, Request, StoreReply};
use crate::sync::{AtomicU64, Ordering, RwLock, RwLockWriteGuard, next_id, read, unless_blocked};
use crate::{Key, Limit, Source};

mod lease;
mod limits;
mod setting;
mod ending;
mod granting;
mod renewal;

#[cfg(all(test, feature = "redis"))]
pub(crate) use renewal::SentRenewal;
pub(crate) use renewal::SideEffects;

pub(crate) use lease::{EndedLease, Lease, LeaseId, NewLease};

/// A fixed number of places, each for the lease of one counter. They are allocated with the first lease.
///
/// Calls read it, and the worker installs leases.
#[derive(Debug)]
pub(crate) struct Leases {
    table: OnceLock<LeaseTable>,
    places: usize,
    clock: Clock,
    /// Different for each table of this process.
    id: u64,
}

/// The places, with a tag for each. The tags are apart, so that calls without a lease read no cache line that a lock
/// changes.
#[derive(Debug)]
struct LeaseTable {
    /// The hash of the counter of each place, or [`EMPTY`]. A call with another hash takes no lock.
    tags: Box<[AtomicU64]>,
    places: Box<[LeasePlace]>,
}

/// A place of one lease. The lock is held for the move of a pointer, and an empty place is small.
type LeasePlace = RwLock<Option<Arc<Lease>>>;

impl Table {
    pub(crate) const LEASES: Self = Self::new(0x1319_8A2E_0370_7344);
    /// The worker's table of the demand for leases.
    pub(crate) const DEMANDS: Self = Self::new(0xA409_3822_299F_31D0);
}

impl CounterHash {
    /// Returns the index of the demand for leases of the counter, in a table of so many places.
    pub(crate) fn place_of_demand(self, places: usize) -> usize {
        self.place_and_tag(Table::DEMANDS, places).0
    }
}

/// The number of places. One under loom, which tracks each of them.
const PLACES: usize = if IS_LOOM { 1 } else { 4096 };
/// The tag of a place without a lease in force.
const EMPTY: u64 = 0;
/// The number of attempts to lock a place whose readers finish. A reader that the system has stopped is not awaited.
const WRITE_ATTEMPTS: usize = if IS_LOOM { 2 } else { 200 };
const IS_LOOM: bool = cfg!(all(test, limiter_loom));

impl Leases {
    pub(crate) fn new(clock: Clock) -> Self {
        Self::with_places(PLACES, clock)
    }

    /// Leases in so many places.
    pub(crate) fn with_places(places: usize, clock: Clock) -> Self {
        Self { table: OnceLock::new(), places, clock, id: next_id() }
    }

    /// Takes the permits of a request from the lease of its counter.
    #[cfg(test)]
    pub(crate) fn take(&self, request: &Request<'_>, needs_receipt: bool) -> Option<LocalGrant> {
        self.take_from(request, || CounterHash::of(request), needs_receipt)
    }

    /// Takes the permits of a request from the lease of its counter and limit. `None` if it has none in force, or one
    /// with too few permits. A call never waits here. `counter` returns the hash of the counter, if it is needed.
    #[inline]
    pub(crate) fn take_from(
        &self,
        request: &Request<'_>,
        counter: impl FnOnce() -> CounterHash,
        needs_receipt: bool,
    ) -> Option<LocalGrant> {
        if request.cost == 0 {
            return None;
        }
        let take = |lease: &mut RecentLease, now| lease.take_permits(request.cost, now, needs_receipt);
        self.with_lease_in_force(request, counter, take)
    }

    /// Takes the permits of a request, or none, from the lease of its counter, and returns its level. `None` if it has none
    /// in force, or one with too few permits.
    pub(crate) fn charge(&self, request: &Request<'_>) -> Option<LocalGrant> {
        let take = |lease: &mut RecentLease, now| lease.take_permits(request.cost, now, false);
        self.with_lease_in_force(request, || CounterHash::of(request), take)
    }

    /// Puts the permits of a request back into the lease from which they were taken. Returns false if that lease is no
    /// longer in force, or cannot have them now: then they are to be refunded to the store.
    pub(crate) fn put_back(&self, request: &Request<'_>, id: LeaseId) -> bool {
        let put_back = |lease: &mut RecentLease, _| (lease.id() == id && lease.put_back(request.cost)).then_some(());
        self.with_lease_in_force(request, || CounterHash::of(request), put_back).is_some()
    }

    /// Calls a function with the lease of a request and the current time, if that is before the end.
    #[inline]
    fn with_lease_in_force<R>(
        &self,
        request: &Request<'_>,
        counter: impl FnOnce() -> CounterHash,
        use_lease: impl Fn(&mut RecentLease, Moment) -> Option<R>,
    ) -> Option<R> {
        let table = self.table.get()?;
        // A thread that calls one busy key needs no other look-up.
        if let Some(mut recent) = RecentLease::take().filter(|lease| lease.may_be_used(self.id, request)) {
            let used = self.use_in_force(&mut recent, &use_lease);
            if used.is_some() || !recent.is_closed() {
                recent.keep();
                return used;
            }
        }
        self.use_found(table, request, counter(), &use_lease)
    }

    /// Calls a function with the lease of a request in the table and the current time, if that is before the end.
    #[inline(never)]
    fn use_found<R>(
        &self,
        table: &LeaseTable,
        request: &Request<'_>,
        counter: CounterHash,
        use_lease: &impl Fn(&mut RecentLease, Moment) -> Option<R>,
    ) -> Option<R> {
        let mut lease = RecentLease::new(self.find(table, request, counter)?);
        let used = self.use_in_force(&mut lease, use_lease);
        lease.keep();
        used
    }

    /// Calls a function with a lease and the current time, if that is before the lease's end.
    #[inline]
    fn use_in_force<R>(
        &self,
        lease: &mut RecentLease,
        use_lease: &impl Fn(&mut RecentLease, Moment) -> Option<R>,
    ) -> Option<R> {
        let now = self.clock.now_with_suspend();
        if lease.is_before_end(now) { use_lease(lease, now) } else { None }
    }

    /// Looks a lease up in the table.
    #[inline(never)]
    fn find(&self, table: &LeaseTable, request: &Request<'_>, counter: CounterHash) -> Option<Arc<Lease>> {
        let (index, tag) = counter.place_and_tag(Table::LEASES, self.places);
        if table.tags[index].load(Ordering::Acquire) != tag {
            return None;
        }
        let place = unless_blocked(table.places[index].try_read())?;
        place.as_ref().filter(|lease| lease.may_be_used(self.id, request) && !lease.is_closed()).cloned()
    }

    /// Ends the lease of a counter, because the counter is reset. The `max` of the limit does not matter.
    pub(crate) fn end_counter(&self, key: &Key, limit: Limit) -> Option<EndedLease> {
        let (index, _) = self.index_and_tag(key, limit);
        self.end_if(index, |lease| lease.has_counter(key, limit))
    }

    /// Ends a lease when its time has passed. `None` if it was ended or replaced before.
    pub(crate) fn end(&self, request: &Request<'_>, id: LeaseId) -> Option<EndedLease> {
        let (index, _) = self.index_and_tag(request.key, request.limit);
        self.end_if(index, |lease| lease.id() == id && lease.is_for(request))
    }

    /// Ends the leases of a failed server, which has these slots. No call takes a permit of them afterwards.
    pub(crate) fn end_slots(&self, slots: &Slots) -> Vec<EndedLease> {
        let places = self.table.get().map_or(0, |table| table.places.len());
        let is_concerned = |lease: &Lease| slots.iter().any(|range| range.contains(&lease.slot()));
        (0..places).filter_map(|index| self.end_if(index, is_concerned)).collect()
    }

    /// Ends the lease of a place, if there is one for which `is_meant` holds.
    fn end_if(&self, index: usize, is_meant: impl Fn(&Lease) -> bool) -> Option<EndedLease> {
        let table = self.table.get()?;
        // The tag is not read: it is hidden while a lease is installed.
        let place = read(&table.places[index]);
        let ended = place.as_deref().filter(|lease| is_meant(lease))?.end()?;
        // No other lease can be installed while the lock is held, so the tag is still that of the ended one.
        table.tags[index].store(EMPTY, Ordering::Release);
        Some(ended)
    }

    /// Installs a lease, for the worker. Returns the lease of the same counter that it replaces, which is ended.
    ///
    /// # Errors
    /// The new lease, unused, if another counter's lease was not ended there, or if calls do not release the place in time.
    pub(crate) fn install(&self, lease: NewLease) -> Result<Option<EndedLease>, EndedLease> {
        let table = self.table.get_or_init(|| LeaseTable::new(self.places));
        let (index, tag) = self.index_and_tag(&lease.key, lease.limit);
        let Some(mut place) = table.write(index) else { return Err(lease.into_unused()) };
        if Self::is_in_use(place.as_deref(), &lease.key, lease.limit) {
            return Err(lease.into_unused());
        }
        let replaced = place.replace(Arc::new(Lease::new(lease, self.id)));
        table.tags[index].store(tag, Ordering::Release);
        drop(place);
        Ok(replaced.and_then(|lease| lease.end()))
    }

    /// Returns whether a lease of this request could be installed: its place has no lease of another counter.
    pub(crate) fn is_available(&self, request: &Request<'_>) -> bool {
        let Some(table) = self.table.get() else { return true };
        let (index, _) = self.index_and_tag(request.key, request.limit);
        let place = read(&table.places[index]);
        !Self::is_in_use(place.as_deref(), request.key, request.limit)
    }

    /// Returns whether the lease of a place is of another counter than this one, and was not ended. The worker ends each
    /// lease in time.
    fn is_in_use(lease: Option<&Lease>, key: &Key, limit: Limit) -> bool {
        lease.is_some_and(|lease| !lease.has_counter(key, limit) && !lease.is_closed())
    }

    /// Returns the index of a counter's place, and the counter's tag.
    #[inline]
    fn index_and_tag(&self, key: &Key, limit: Limit) -> (usize, u64) {
        CounterHash::of(&Request::new(key, limit, 0)).place_and_tag(Table::LEASES, self.places)
    }
}

impl LeaseTable {
    fn new(places: usize) -> Self {
        Self {
            tags: (0..places).map(|_| AtomicU64::new(EMPTY)).collect(),
            places: (0..places).map(|_| RwLock::new(None)).collect(),
        }
    }

    /// Locks a place for writing. `None` if a reader does not release it in time: it may have been stopped.
    fn write(&self, index: usize) -> Option<RwLockWriteGuard<'_, Option<Arc<Lease>>>> {
        let (tag, place) = (&self.tags[index], &self.places[index]);
        if let Some(place) = unless_blocked(place.try_write()) {
            return Some(place);
        }
        // The place of a busy key is never without a reader. So calls find no lease until the lock is taken.
        let hidden = tag.swap(EMPTY, Ordering::AcqRel);
        let locked = (0..WRITE_ATTEMPTS).find_map(|_| {
            hint::spin_loop();
            unless_blocked(place.try_write())
        });
        tag.store(hidden, Ordering::Release);
        locked
    }
}

// The lease that each thread used last.
//
// Calls of a busy key share one lease, on all threads. If each receipt had a new reference, all threads would write to
// the count of references, twice in each call. So a thread keeps two references: one by which its calls find the lease,
// and a spare one, which it lends to one receipt at a time.

thread_local! {
    /// The lease of any table.
    static RECENT: Cell<Option<RecentLease>> = const { Cell::new(None) };
}

/// A lease, as the thread has it that uses it.
#[derive(Debug)]
struct RecentLease {
    lease: Arc<Lease>,
    spare: Option<Arc<Lease>>,
    /// The number of permits that this thread has left there last, or 0.
    seen: u32,
}

/// The permits that a lease has granted one call, in this process.
#[derive(Debug)]
pub(crate) struct LocalGrant {
    pub(crate) remaining: u32,
    /// Microseconds until all permits are free again.
    pub(crate) reset_after: u64,
    /// The time of the decision, in microseconds of the store's clock.
    pub(crate) decided_at: u64,
    pub(crate) id: LeaseId,
    pub(crate) mirror_stamp: u64,
    /// Present if the call needs a receipt.
    pub(crate) token: Option<GrantToken>,
    /// True for one call of each lease: the first after which fewer than `renew_below` permits are left.
    pub(crate) needs_renewal: bool,
}

impl LocalGrant {
    pub(crate) const SOURCE: Source = Source::Lease;

    /// The reply of the lease, for a call that another thread made.
    pub(crate) fn into_counted(self) -> CountedReply {
        let Self { remaining, reset_after, decided_at: stamp, id, mirror_stamp, .. } = self;
        let reset_after = Duration::from_micros(reset_after);
        CountedReply::from_lease(StoreReply { remaining, reset_after, stamp, ..StoreReply::ALLOWED }, id, mirror_stamp)
    }

    /// The reply of the lease to a charge.
    pub(crate) fn into_charge(self) -> CountedReply {
        let (remaining, reset_after) = (self.remaining, Duration::from_micros(self.reset_after));
        let charge = ChargeReply { remaining, reset_after, ..ChargeReply::default() };
        CountedReply {
            source: Self::SOURCE,
            ..CountedReply::from_charge(DecisionReply::of_charges(vec![charge], self.decided_at), 0)
        }
    }
}

/// A receipt's token of permits that this process has granted: a reference to their lease.
#[derive(Clone, Debug)]
pub(crate) struct GrantToken(
    /// `None` while it is dropped.
    Option<Arc<Lease>>,
);

impl RecentLease {
    fn new(lease: Arc<Lease>) -> Self {
        // Under loom each call subtracts first.
        Self { lease, spare: None, seen: if IS_LOOM { u32::MAX } else { 0 } }
    }

    /// Takes the lease that this thread used last. `None` if it has none, or while the thread ends.
    #[inline]
    fn take() -> Option<Self> {
        // Under loom all threads of a model are one, and objects must not outlive a run.
        if IS_LOOM { None } else { RECENT.try_with(Cell::take).ok()? }
    }

    /// Keeps this lease as the one that this thread used last.
    #[inline]
    fn keep(self) {
        if !IS_LOOM {
            let _ = RECENT.try_with(|recent| recent.set(Some(self)));
        }
    }

    /// Takes permits. The caller has found `now` before the end of the lease.
    #[inline]
    fn take_permits(&mut self, cost: u32, now: Moment, needs_receipt: bool) -> Option<LocalGrant> {
        let left = self.lease.take(cost, &mut self.seen)?;
        let NewLease { remaining, reset_at, store_reset_at, id, mirror_stamp, .. } = self.lease.granted;
        let reset_after = reset_at.micros().saturating_sub(now.micros());
        Some(LocalGrant {
            remaining: remaining.saturating_add(left),
            reset_after,
            decided_at: store_reset_at.saturating_sub(reset_after),
            id,
            mirror_stamp,
            token: needs_receipt.then(|| self.reference()),
            needs_renewal: self.lease.needs_renewal(left),
        })
    }

    /// Returns a reference for a receipt: the spare one, or a new one.
    #[inline]
    fn reference(&mut self) -> GrantToken {
        GrantToken(Some(self.spare.take().unwrap_or_else(|| Arc::clone(&self.lease))))
    }
}

impl Deref for RecentLease {
    type Target = Arc<Lease>;

    #[inline]
    fn deref(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Deref for GrantToken {
    type Target = Arc<Lease>;

    fn deref(&self) -> &Arc<Lease> {
        self.0.as_ref().expect("a reference that is not dropped")
    }
}

impl Drop for GrantToken {
    /// Inlined into the drop of each decision, most of which have no lease.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(reference) = self.0.take() {
            return_to_thread(reference);
        }
    }
}

/// Makes a reference the spare one of this thread, if the thread has none and has used the same lease last.
#[inline(never)]
fn return_to_thread(reference: Arc<Lease>) {
    let Some(mut recent) = RecentLease::take() else { return };
    if recent.spare.is_none() && Arc::ptr_eq(&recent.lease, &reference) {
        recent.spare = Some(reference);
    }
    recent.keep();
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests;
