//! The cache of denials by a shared store.
//!
//! A denial states the first instant at which the store's decision can change. Until then this process denies the same
//! call from the cache, so a flood of one key costs the store nothing. A refund or a reset by another process is not
//! visible here, so an entry also expires at a maximum age. A refund or a reset by this process invalidates the entry
//! at once.
//!
//! Only denials are cached, so the cache never allows a call. A denial is cached only if its `remaining` stays correct:
//! the call's cost is one more than the permits that are left. A call that lacks several permits is not cached: some of
//! them come back before it is allowed. The denial of a blocked key holds for each cost.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::block::BlockRef;
use crate::clock::{Clock, Moment};
use crate::local::counter_hash::{CounterHash, Table};
use crate::request::sharing;
use crate::request::{Request, StoreReply};
use crate::sync::{AtomicBool, AtomicU64, Ordering, RwLock, fence, next_id, read, write};
use crate::{Key, Limit};

/// A fixed number of slots, each with the denials of one counter. If several counters share a slot, it holds the
/// latest.
///
/// The tags, which most calls read, are apart from the data that only replies of the store write. So the tags' cache
/// lines stay shared while no call is denied.
#[derive(Debug)]
pub(crate) struct DenialCache {
    /// The hash of each slot's counter, or [`EMPTY`]. A call with another hash takes no lock.
    tags: Box<[AtomicU64]>,
    /// The number of changes to the counters of each slot. A reply to a request from before a change is not cached.
    versions: Box<[AtomicU64]>,
    /// The denials of each slot's counter, for several limits and costs.
    denials: Box<[RwLock<Vec<Arc<Denial>>>]>,
    clock: Clock,
    /// The longest time for which a denial is used.
    max_age: Duration,
    /// Different for each cache of this process.
    id: u64,
}

impl Table {
    pub(crate) const DENIALS: Self = Self::new(0x243F_6A88_85A3_08D3);
}

#[derive(Debug)]
struct Denial {
    /// The id of its cache.
    cache: u64,
    /// Set under the lock of its slot when the denial is removed. Threads that used the denial may still have it.
    is_removed: AtomicBool,
    key: Key,
    limit: Limit,
    cost: u32,
    /// The block of the request's rule.
    block: Option<BlockRef>,
    /// The key is blocked.
    is_blocked: bool,
    sent_at: Moment,
    /// The earliest instant at which the decision can change, if the store decided as soon as the request was sent. It is
    /// at most the maximum age after `sent_at`.
    valid_until: Moment,
    /// The latest instant at which the decision changes, if the store decided just before its reply arrived.
    retry_at: Moment,
    reset_at: Moment,
    remaining: u32,
    /// The time by which the store's clock is ahead of this process's, modulo 2^64: the difference when the reply arrived.
    clock_lead: u64,
}

/// The state of a slot at the time when a request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheVersion {
    counter: CounterHash,
    sent_at: Moment,
    version: u64,
}

thread_local! {
    /// The denial that this thread used last, of any cache. A thread that calls one denied key takes no lock, which other
    /// threads would write to as well. The denial is used only while it is in its slot.
    static RECENT: Cell<Option<Arc<Denial>>> = const { Cell::new(None) };
}

/// The number of slots. One under loom, which tracks each of them.
const SLOTS: usize = if IS_LOOM { 1 } else { 4096 };
const MAX_DENIALS_PER_SLOT: usize = 8;
/// The longest use of a denial of a block that attempts extend.
const EXTENSION_TIME: Duration = Duration::from_secs(1);
/// The tag of a slot without denials.
const EMPTY: u64 = 0;
const IS_LOOM: bool = cfg!(all(test, limiter_loom));

impl DenialCache {
    /// A cache that uses each denial for at most `max_age`.
    pub(crate) fn new(max_age: Duration, clock: Clock) -> Self {
        let slots = if max_age.is_zero() { 0 } else { SLOTS };
        let numbers = || (0..slots).map(|_| AtomicU64::new(EMPTY)).collect();
        let denials = (0..slots).map(|_| RwLock::new(Vec::new())).collect();
        Self { tags: numbers(), versions: numbers(), denials, clock, max_age, id: next_id() }
    }

    /// Returns the store's denial of this request, if it is still valid. `counter` returns the hash of its counter.
    #[inline]
    pub(crate) fn get_lone(&self, request: &Request<'_>, counter: impl FnOnce() -> CounterHash) -> Option<StoreReply> {
        if self.is_disabled() {
            return None;
        }
        if let Some(reply) = self.reply_of_recent(request) {
            return Some(reply);
        }
        let (slot, tag) = self.slot_and_tag(counter());
        if self.tags[slot].load(Ordering::Acquire) != tag {
            return None;
        }
        let now = self.clock.now();
        let denial = self.find(slot, request, now)?;
        let reply = denial.reply(now);
        set_recent(denial);
        Some(reply)
    }

    /// Returns the denial that this thread used last, if it is one of this request and still valid. It takes neither a
    /// hash nor a lock.
    #[inline]
    fn reply_of_recent(&self, request: &Request<'_>) -> Option<StoreReply> {
        let denial = take_recent()?;
        if denial.is_removed.load(Ordering::Acquire) {
            return None;
        }
        if denial.cache != self.id || !denial.matches(request) {
            set_recent(denial);
            return None;
        }
        let now = self.clock.now();
        // One that is over leaves the thread.
        let reply = denial.is_valid(now).then(|| denial.reply(now))?;
        set_recent(denial);
        Some(reply)
    }

    /// Looks a valid denial of a request up in its slot.
    #[inline(never)]
    fn find(&self, slot: usize, request: &Request<'_>, now: Moment) -> Option<Arc<Denial>> {
        let denials = read(&self.denials[slot]);
        denials.iter().find(|denial| denial.matches(request) && denial.is_valid(now)).cloned()
    }

    /// Removes the denials of these counters, because permits were taken or given back, or may have been.
    pub(crate) fn invalidate(&self, requests: &[Request<'_>]) {
        if !self.is_disabled() {
            requests.iter().for_each(|request| self.invalidate_counter(CounterHash::of(request)));
        }
    }

    fn invalidate_counter(&self, counter: CounterHash) {
        let (slot, _) = self.slot_and_tag(counter);
        self.versions[slot].fetch_add(1, Ordering::AcqRel);
        // A concurrent insertion either sees the new version after it, or its tag is seen here.
        fence(Ordering::SeqCst);
        if self.tags[slot].load(Ordering::Acquire) != EMPTY {
            self.clear(slot, &mut write(&self.denials[slot]));
        }
    }

    fn clear(&self, slot: usize, denials: &mut Vec<Arc<Denial>>) {
        denials.drain(..).for_each(|denial| denial.set_removed());
        self.tags[slot].store(EMPTY, Ordering::Release);
    }

    /// Returns whether it caches nothing.
    #[inline]
    fn is_disabled(&self) -> bool {
        self.tags.is_empty()
    }

    /// The slot and the tag of a counter, unless the cache is disabled.
    #[inline]
    fn slot_and_tag(&self, counter: CounterHash) -> (usize, u64) {
        counter.place_and_tag(Table::DENIALS, self.tags.len())
    }
}

impl DenialCache {
    /// Returns the store's denial of this request, if it is still valid. A decision about several requests that are not
    /// observed is not cached.
    pub(crate) fn get(&self, requests: &[Request<'_>]) -> Option<StoreReply> {
        let request = sharing::lone(requests)?;
        self.get_lone(request, || CounterHash::of(request))
    }

    /// Returns the version of a request's slot. The caller reads it before it sends the request, for
    /// [`update`](Self::update).
    pub(crate) fn version(&self, request: &Request<'_>) -> Option<CacheVersion> {
        if self.is_disabled() { None } else { self.version_of(CounterHash::of(request)) }
    }

    /// Returns the version of a counter's slot, as [`version`](Self::version) does.
    pub(crate) fn version_of(&self, counter: CounterHash) -> Option<CacheVersion> {
        if self.is_disabled() {
            return None;
        }
        let (slot, _) = self.slot_and_tag(counter);
        let sent_at = self.clock.now();
        Some(CacheVersion { counter, sent_at, version: self.versions[slot].load(Ordering::Acquire) })
    }

    /// Updates the cache by the store's replies to identical requests that were sent together, the allowed ones first.
    ///
    /// If the counter `has_changed`, because a request was allowed or permits were returned, older denials are
    /// invalidated. A denial that stays correct is inserted. It is used for at most `longest`, if that is given.
    pub(crate) fn update(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        has_changed: bool,
        denial: Option<&StoreReply>,
        longest: Option<Duration>,
    ) {
        let Some(version) = version else { return };
        let own_changes = u64::from(has_changed);
        if has_changed {
            self.invalidate_counter(version.counter);
        }
        if let Some(denial) = denial {
            let version = CacheVersion { version: version.version.wrapping_add(own_changes), ..version };
            self.insert(request, version, denial, longest);
        }
    }

    /// Inserts a denial, unless its slot has changed since `version`.
    fn insert(&self, request: &Request<'_>, version: CacheVersion, reply: &StoreReply, longest: Option<Duration>) {
        let Some(retry_after) = reply.retry_after else { return };
        let (slot, tag) = self.slot_and_tag(version.counter);
        if !reply.is_blocked && reply.remaining.checked_add(1) != Some(request.cost) {
            return;
        }
        // Each second one attempt extends the block in the store.
        let longest = match request.block {
            Some(block) if reply.is_blocked && block.block().is_extended() => Some(EXTENSION_TIME),
            _ => longest,
        };
        let received_at = self.clock.now();
        let denial = Denial {
            cache: self.id,
            is_removed: AtomicBool::new(false),
            key: request.key.clone(),
            limit: request.limit,
            cost: request.cost,
            block: request.block,
            is_blocked: reply.is_blocked,
            sent_at: version.sent_at,
            valid_until: version.sent_at.after(retry_after.min(longest.unwrap_or(self.max_age)).min(self.max_age)),
            retry_at: received_at.after(retry_after),
            reset_at: received_at.after(reply.reset_after),
            // None is left during a block, whatever is left of the limit that began it.
            remaining: if reply.is_blocked { 0 } else { reply.remaining },
            clock_lead: reply.stamp.wrapping_sub(received_at.micros()),
        };
        let mut denials = write(&self.denials[slot]);
        let has_changed = || self.versions[slot].load(Ordering::Acquire) != version.version;
        if has_changed() {
            return;
        }
        denials.retain(|denial| {
            let is_kept = request.has_counter(&denial.key, denial.limit)
                && !denial.matches(request)
                && denial.is_valid(version.sent_at);
            if !is_kept {
                denial.set_removed();
            }
            is_kept
        });
        if denials.len() == MAX_DENIALS_PER_SLOT {
            denials.remove(0).set_removed();
        }
        // In most slots it is the only one.
        denials.reserve_exact(1);
        denials.push(Arc::new(denial));
        self.tags[slot].store(tag, Ordering::Release);
        fence(Ordering::SeqCst);
        if has_changed() {
            self.clear(slot, &mut denials);
        }
    }
}

/// Takes the denial that this thread used last. `None` while the thread ends.
#[inline]
fn take_recent() -> Option<Arc<Denial>> {
    // Under loom all threads of a model are one.
    if IS_LOOM { None } else { RECENT.try_with(Cell::take).ok()? }
}

#[inline]
fn set_recent(denial: Arc<Denial>) {
    if !IS_LOOM {
        let _ = RECENT.try_with(|recent| recent.set(Some(denial)));
    }
}

impl Denial {
    fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    #[inline]
    fn matches(&self, request: &Request<'_>) -> bool {
        self.limit == request.limit
            && (self.cost == request.cost || self.is_blocked)
            && self.block == request.block
            && self.key == *request.key
    }

    fn is_valid(&self, now: Moment) -> bool {
        // A test may move its clock back. The request was then sent in the future.
        self.sent_at <= now && now < self.valid_until
    }

    fn reply(&self, now: Moment) -> StoreReply {
        StoreReply {
            allowed: false,
            request_index: 0,
            remaining: self.remaining,
            retry_after: Some(now.until(self.retry_at)),
            reset_after: now.until(self.reset_at),
            // So that each reply states the same instants by the store's clock.
            stamp: now.micros().wrapping_add(self.clock_lead),
            delay: Duration::ZERO,
            is_blocked: self.is_blocked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Longer than any pause of a test.
    const LONG: Duration = Duration::from_secs(3_600);

    const DENIED: StoreReply = StoreReply {
        allowed: false,
        request_index: 0,
        remaining: 0,
        retry_after: Some(LONG),
        reset_after: LONG,
        stamp: 0,
        delay: Duration::ZERO,
        is_blocked: false,
    };

    #[test]
    fn a_denial_of_a_request_from_before_a_change_is_not_cached() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        let cache = DenialCache::new(LONG, Clock::System);
        let version = cache.version(&request[0]);
        cache.invalidate(&request);
        cache.update(&request[0], version, false, Some(&DENIED), None);
        assert!(cache.get(&request).is_none());
        cache.update(&request[0], cache.version(&request[0]), false, Some(&DENIED), None);
        assert!(cache.get(&request).is_some());
        cache.update(&request[0], cache.version(&request[0]), true, None, None);
        assert!(cache.get(&request).is_none());
    }

    #[test]
    fn a_denial_after_admissions_of_the_same_batch_is_cached_unless_another_change_came_between() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        let cache = DenialCache::new(LONG, Clock::System);
        let version = cache.version(&request[0]);
        cache.update(&request[0], version, true, Some(&DENIED), None);
        assert!(cache.get(&request).is_some());
        let version = cache.version(&request[0]);
        cache.invalidate(&request);
        cache.update(&request[0], version, true, Some(&DENIED), None);
        assert!(cache.get(&request).is_none());
    }

    #[test]
    fn a_denial_that_this_thread_used_before_is_invalidated_like_others() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        let cache = || DenialCache::new(LONG, Clock::System);
        let (cache, other) = (cache(), cache());
        let insert = |cache: &DenialCache, reset_after| {
            let denial = StoreReply { reset_after, ..DENIED };
            cache.update(&request[0], cache.version(&request[0]), false, Some(&denial), None);
        };
        insert(&cache, LONG);
        insert(&other, 2 * LONG);
        for _ in 0..2 {
            assert!(cache.get(&request).is_some_and(|denial| denial.reset_after <= LONG));
            assert!(other.get(&request).is_some_and(|denial| denial.reset_after > LONG), "it is of another limiter");
        }
        assert!(cache.get(&request).is_some());
        cache.invalidate(&request);
        assert!(cache.get(&request).is_none());
        // The slot has a denial again, which is not the one that this thread used.
        let costly = [Request { cost: 2, ..request[0] }];
        let denial = StoreReply { remaining: 1, ..DENIED };
        cache.update(&costly[0], cache.version(&costly[0]), false, Some(&denial), None);
        assert!(cache.get(&request).is_none());
        assert!(cache.get(&costly).is_some());
        assert!(cache.get(&request).is_none(), "it has another cost");
    }

    #[test]
    fn a_denial_that_another_thread_used_before_is_invalidated() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let [request, costly] = [1, 2].map(|cost| [Request::new(&key, limit, cost)]);
        let cache = DenialCache::new(LONG, Clock::System);
        cache.update(&request[0], cache.version(&request[0]), false, Some(&DENIED), None);
        let (used, invalidated) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let has_denial = scope.spawn(|| {
                let before = cache.get(&request).is_some();
                used.wait();
                invalidated.wait();
                (before, cache.get(&request).is_some())
            });
            used.wait();
            cache.invalidate(&request);
            let denial = StoreReply { remaining: 1, ..DENIED };
            cache.update(&costly[0], cache.version(&costly[0]), false, Some(&denial), None);
            invalidated.wait();
            assert_eq!(has_denial.join().expect("no panic"), (true, false));
        });
    }

    #[test]
    fn a_denial_that_was_replaced_is_not_used() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        let cache = DenialCache::new(LONG, Clock::System);
        let insert = |longest| cache.update(&request[0], cache.version(&request[0]), false, Some(&DENIED), longest);
        insert(None);
        assert!(cache.get(&request).is_some());
        insert(Some(Duration::ZERO));
        assert!(cache.get(&request).is_none(), "the new one is over");
    }

    /// The store's clock is not that of this process.
    #[cfg(feature = "test-util")]
    #[test]
    fn a_cached_denial_states_the_instants_of_the_store() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        for stamp in [1, 7_000_000_000_000_000] {
            let clock = crate::ManualClock::new();
            let cache = DenialCache::new(LONG, Clock::Manual(clock.clone()));
            let denial = StoreReply { stamp, reset_after: 2 * LONG, ..DENIED };
            cache.update(&request[0], cache.version(&request[0]), false, Some(&denial), None);
            for _ in 0..3 {
                let cached = cache.get(&request).expect("it is valid");
                let instant = |after| Duration::from_micros(cached.stamp) + after;
                let expected = Duration::from_micros(stamp) + LONG;
                assert_eq!(cached.retry_after.map(instant), Some(expected));
                assert_eq!(instant(cached.reset_after), expected + LONG);
                clock.advance(Duration::from_micros(700_001));
            }
        }
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn a_denial_is_not_used_after_the_clock_is_moved_back() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request::new(&key, limit, 1)];
        let clock = crate::ManualClock::new();
        let cache = DenialCache::new(LONG, Clock::Manual(clock.clone()));
        cache.update(&request[0], cache.version(&request[0]), false, Some(&DENIED), None);
        assert!(cache.get(&request).is_some());
        clock.rewind(Duration::from_millis(1));
        assert!(cache.get(&request).is_none());
    }

    #[test]
    fn one_counter_has_a_bounded_number_of_denials_and_the_latest_is_kept() {
        let key = Key::new("a");
        let cache = DenialCache::new(LONG, Clock::System);
        let limit = |max: u32| Limit::checked(max, 1000).expect("a limit");
        for max in 1..100 {
            let request = [Request::new(&key, limit(max), 1)];
            cache.update(&request[0], cache.version(&request[0]), false, Some(&DENIED), None);
            assert!(max > 1 || cache.get(&request).is_some());
        }
        let is_cached = |max| cache.get(&[Request::new(&key, limit(max), 1)]).is_some();
        assert_eq!((1..100).filter(|max| is_cached(*max)).count(), MAX_DENIALS_PER_SLOT);
        assert!(is_cached(99), "the latest");
    }
}
