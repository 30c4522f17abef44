//! Denials that are known to last: until when, so that nobody need be asked before.
//!
//! A store that denies names the first instant at which its answer can change. Until then this process answers by itself:
//! a flood of one key costs the store nothing. What other processes free meanwhile, by a refund or a reset, cannot be seen
//! from here, so after a while it is asked all the same. What this process frees is forgotten here at once.
//!
//! Only a denial is ever remembered, so nobody is admitted by this. And only one that stays true in all it says: a call that
//! wants one permit more than there is. For one that wants several more, permits come back before it fits.

use std::hash::BuildHasher;
use std::time::Duration;

use crate::algorithm::CounterKind;
use crate::clock::{Clock, Moment};
use crate::request::{Request, StoreReply};
use crate::sync::process::{self, read_at_home, write_at_home};
use crate::sync::{AtomicU64, Ordering, RwLock, RwLockWriteGuard, Seed, fence};
use crate::{Key, Limit};

/// A fixed number of slots, each for the denials of one count: of those that share it, the latest.
///
/// What every call looks at is apart from what only those write who hear from the store, so that no line of it goes to and
/// fro between threads while nobody is denied.
#[derive(Debug)]
pub(crate) struct DenialCache {
    /// The hash of the count that is denied, so that others need no lock; 0 if none is.
    tags: Box<[AtomicU64]>,
    /// How often a count has changed: what was asked before that may no longer be true.
    versions: Box<[AtomicU64]>,
    /// Of one count, by several limits and costs.
    denials: Box<[RwLock<Vec<Denial>>]>,
    hasher: Seed,
    clock: Clock,
    /// The max_age time for which the store is not asked.
    max_age: Duration,
    /// The process that made it. In a child of that, what is locked counts as unknown.
    home: u32,
}

#[derive(Debug)]
struct Denial {
    key: Key,
    limit: Limit,
    cost: u32,
    sent_at: Moment,
    /// When the answer can change, at the earliest: the store may have decided as soon as it was asked.
    until: Moment,
    /// When it has changed, at the latest: it has decided before it was heard.
    retry: Moment,
    reset: Moment,
    remaining: u32,
}

/// When the store was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheVersion {
    sent_at: Moment,
    changes: u64,
}

/// Few where loom watches each of them.
const SLOTS: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 4096 };
/// Denials of one count.
const MAX_DENIALS_PER_SLOT: usize = 8;

impl DenialCache {
    /// Remembers denials for so long, at most.
    pub(crate) fn new(max_age: Duration, clock: Clock) -> Self {
        let slots = if max_age.is_zero() { 0 } else { SLOTS };
        let numbers = || (0..slots).map(|_| AtomicU64::new(EMPTY)).collect();
        let denials = (0..slots).map(|_| RwLock::new(Vec::new())).collect();
        Self {
            tags: numbers(),
            versions: numbers(),
            denials,
            hasher: Seed::default(),
            clock,
            max_age,
            home: process::id(),
        }
    }

    /// The store's denial of this very request, if it still stands.
    pub(crate) fn get(&self, requests: &[Request<'_>]) -> Option<StoreReply> {
        let [request] = requests else { return None };
        let (slot, tag) = self.slot(request)?;
        if self.tags[slot].load(Ordering::Acquire) != tag {
            return None;
        }
        let now = self.clock.now();
        let denials = read_at_home(&self.denials[slot], self.home)?;
        let known = denials.iter().find(|denial| denial.is_of(request) && denial.stands(now, self.max_age))?;
        Some(known.answer(now))
    }

    /// Something was taken or given back, or may have been: what was said of these counts before is forgotten.
    pub(crate) fn invalidate(&self, requests: &[Request<'_>]) {
        for (slot, _) in requests.iter().filter_map(|request| self.slot(request)) {
            self.versions[slot].fetch_add(1, Ordering::AcqRel);
            // Whoever notes a denial just now sees the change after that, or is seen here.
            fence(Ordering::SeqCst);
            if self.tags[slot].load(Ordering::Acquire) != EMPTY
                && let Some(mut denials) = self.lock(slot)
            {
                self.clear(slot, &mut denials);
            }
        }
    }

    fn clear(&self, slot: usize, denials: &mut Vec<Denial>) {
        denials.clear();
        self.tags[slot].store(EMPTY, Ordering::Release);
    }

    /// Where the denials of a count are, or would be, and its hash.
    fn slot(&self, request: &Request<'_>) -> Option<(usize, u64)> {
        if self.tags.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one((request.key.head(), CounterKind::from(request.limit))).max(EMPTY + 1);
        Some((usize::try_from(hash % self.tags.len() as u64).unwrap_or(0), hash))
    }

    fn lock(&self, slot: usize) -> Option<RwLockWriteGuard<'_, Vec<Denial>>> {
        write_at_home(&self.denials[slot], self.home)
    }
}

#[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "without it no store is asked"))]
impl DenialCache {
    /// To be called before the store is asked: from then on its answer counts.
    pub(crate) fn version(&self, request: &Request<'_>) -> Option<CacheVersion> {
        let (slot, _) = self.slot(request)?;
        Some(CacheVersion { sent_at: self.clock.now(), changes: self.versions[slot].load(Ordering::Acquire) })
    }

    /// What the store said to calls of one kind that went together, the admitted ones first. Forgets what it said before
    /// an admission, and remembers a denial that lasts.
    pub(crate) fn update(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        has_admitted: bool,
        denial: Option<&StoreReply>,
    ) {
        let Some(CacheVersion { sent_at, changes }) = version else { return };
        let admissions = u64::from(has_admitted);
        if has_admitted {
            self.invalidate(&[*request]);
        }
        if let Some(answer) = denial {
            self.remember(request, CacheVersion { sent_at, changes: changes.wrapping_add(admissions) }, answer);
        }
    }

    fn remember(&self, request: &Request<'_>, version: CacheVersion, answer: &StoreReply) {
        let (Some(retry_after), Some((slot, tag))) = (answer.retry_after, self.slot(request)) else { return };
        if answer.remaining.checked_add(1) != Some(request.cost) {
            return;
        }
        let heard = self.clock.now();
        let denial = Denial {
            key: request.key.clone(),
            limit: request.limit,
            cost: request.cost,
            sent_at: version.sent_at,
            until: version.sent_at.after(retry_after),
            retry: heard.after(retry_after),
            reset: heard.after(answer.reset_after),
            remaining: answer.remaining,
        };
        let Some(mut denials) = self.lock(slot) else { return };
        let has_changed = || self.versions[slot].load(Ordering::Acquire) != version.changes;
        if has_changed() {
            return;
        }
        denials.retain(|known| {
            known.is_of_the_count(request) && !known.is_of(request) && known.stands(version.sent_at, self.max_age)
        });
        if denials.len() == MAX_DENIALS_PER_SLOT {
            denials.remove(0);
        }
        // Mostly it is the only one.
        denials.reserve_exact(1);
        denials.push(denial);
        self.tags[slot].store(tag, Ordering::Release);
        fence(Ordering::SeqCst);
        if has_changed() {
            self.clear(slot, &mut denials);
        }
    }
}

const EMPTY: u64 = 0;

impl Denial {
    fn is_of(&self, request: &Request<'_>) -> bool {
        self.limit == request.limit && self.cost == request.cost && self.key == *request.key
    }

    fn is_of_the_count(&self, request: &Request<'_>) -> bool {
        CounterKind::from(self.limit) == CounterKind::from(request.limit) && self.key == *request.key
    }

    fn stands(&self, now: Moment, max_age: Duration) -> bool {
        // By a clock that tests have moved back it was asked in the future.
        self.sent_at <= now && now < self.until && now < self.sent_at.after(max_age)
    }

    fn answer(&self, now: Moment) -> StoreReply {
        StoreReply {
            allowed: false,
            request_index: 0,
            remaining: self.remaining,
            retry_after: Some(now.until(self.retry)),
            reset_after: now.until(self.reset),
            stamp: 0,
            delay: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: StoreReply = StoreReply {
        allowed: false,
        request_index: 0,
        remaining: 0,
        retry_after: Some(Duration::from_millis(10)),
        reset_after: Duration::from_millis(20),
        stamp: 0,
        delay: Duration::ZERO,
    };

    #[test]
    fn an_answer_from_before_a_change_is_not_remembered() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request { key: &key, limit, cost: 1 }];
        let denied = DenialCache::new(Duration::from_secs(1), Clock::System);
        let asked = denied.version(&request[0]);
        denied.invalidate(&request);
        denied.update(&request[0], asked, false, Some(&DENIED));
        assert!(denied.get(&request).is_none());
        denied.update(&request[0], denied.version(&request[0]), false, Some(&DENIED));
        assert!(denied.get(&request).is_some());
        denied.update(&request[0], denied.version(&request[0]), true, None);
        assert!(denied.get(&request).is_none());
    }

    #[test]
    fn a_denial_after_admissions_of_the_same_call_is_remembered_unless_something_else_changed() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request { key: &key, limit, cost: 1 }];
        let denied = DenialCache::new(Duration::from_secs(1), Clock::System);
        let asked = denied.version(&request[0]);
        denied.update(&request[0], asked, true, Some(&DENIED));
        assert!(denied.get(&request).is_some());
        let asked = denied.version(&request[0]);
        denied.invalidate(&request);
        denied.update(&request[0], asked, true, Some(&DENIED));
        assert!(denied.get(&request).is_none());
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn what_was_asked_in_the_future_is_asked_again() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request { key: &key, limit, cost: 1 }];
        let clock = crate::ManualClock::new();
        let denied = DenialCache::new(Duration::from_secs(1), Clock::Manual(clock.clone()));
        denied.update(&request[0], denied.version(&request[0]), false, Some(&DENIED));
        assert!(denied.get(&request).is_some());
        clock.rewind(Duration::from_millis(1));
        assert!(denied.get(&request).is_none());
    }

    #[test]
    fn many_limits_of_one_count_are_no_more_than_a_few_places() {
        let key = Key::new("a");
        let denied = DenialCache::new(Duration::from_secs(1), Clock::System);
        let asks = |max: u32| Limit::checked(max, 1000).expect("a limit");
        for max in 1..100 {
            let request = [Request { key: &key, limit: asks(max), cost: 1 }];
            let answer = StoreReply { retry_after: Some(Duration::from_secs(60)), ..DENIED };
            denied.update(&request[0], denied.version(&request[0]), false, Some(&answer));
        }
        let known = |max| denied.get(&[Request { key: &key, limit: asks(max), cost: 1 }]).is_some();
        assert_eq!((1..100).filter(|max| known(*max)).count(), MAX_DENIALS_PER_SLOT);
        assert!(known(99), "the latest");
    }
}
