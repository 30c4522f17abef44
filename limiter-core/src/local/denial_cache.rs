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

/// A fixed number of places, each for the denials of one count: of those that share it, the latest.
///
/// What every call looks at is apart from what only those write who hear from the store, so that no line of it goes to and
/// fro between threads while nobody is denied.
#[derive(Debug)]
pub(crate) struct DenialCache {
    /// The hash of the count that is denied, so that others need no lock; 0 if none is.
    whose: Box<[AtomicU64]>,
    /// How often a count has changed: what was asked before that may no longer be true.
    changes: Box<[AtomicU64]>,
    /// Of one count, by several limits and costs.
    denials: Box<[RwLock<Vec<Denial>>]>,
    hasher: Seed,
    clock: Clock,
    /// The longest time for which the store is not asked.
    longest: Duration,
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
const PLACES: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 4096 };
/// Denials of one count.
const MOST: usize = 8;

impl DenialCache {
    /// Remembers denials for so long, at most.
    pub(crate) fn new(longest: Duration, clock: Clock) -> Self {
        let places = if longest.is_zero() { 0 } else { PLACES };
        let numbers = || (0..places).map(|_| AtomicU64::new(NOBODY)).collect();
        let denials = (0..places).map(|_| RwLock::new(Vec::new())).collect();
        Self {
            whose: numbers(),
            changes: numbers(),
            denials,
            hasher: Seed::default(),
            clock,
            longest,
            home: process::id(),
        }
    }

    /// The store's denial of this very request, if it still stands.
    pub(crate) fn recall(&self, requests: &[Request<'_>]) -> Option<StoreReply> {
        let [request] = requests else { return None };
        let (place, whose) = self.place(request)?;
        if self.whose[place].load(Ordering::Acquire) != whose {
            return None;
        }
        let now = self.clock.now();
        let denials = read_at_home(&self.denials[place], self.home)?;
        let known = denials.iter().find(|denial| denial.is_of(request) && denial.stands(now, self.longest))?;
        Some(known.answer(now))
    }

    /// Something was taken or given back, or may have been: what was said of these counts before is forgotten.
    pub(crate) fn forget(&self, requests: &[Request<'_>]) {
        for (place, _) in requests.iter().filter_map(|request| self.place(request)) {
            self.changes[place].fetch_add(1, Ordering::AcqRel);
            // Whoever notes a denial just now sees the change after that, or is seen here.
            fence(Ordering::SeqCst);
            if self.whose[place].load(Ordering::Acquire) != NOBODY
                && let Some(mut denials) = self.lock(place)
            {
                self.clear(place, &mut denials);
            }
        }
    }

    fn clear(&self, place: usize, denials: &mut Vec<Denial>) {
        denials.clear();
        self.whose[place].store(NOBODY, Ordering::Release);
    }

    /// Where the denials of a count are, or would be, and its hash.
    fn place(&self, request: &Request<'_>) -> Option<(usize, u64)> {
        if self.whose.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one((request.key.head(), CounterKind::from(request.limit))).max(NOBODY + 1);
        Some((usize::try_from(hash % self.whose.len() as u64).unwrap_or(0), hash))
    }

    fn lock(&self, place: usize) -> Option<RwLockWriteGuard<'_, Vec<Denial>>> {
        write_at_home(&self.denials[place], self.home)
    }
}

#[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "without it no store is asked"))]
impl DenialCache {
    /// To be called before the store is asked: from then on its answer counts.
    pub(crate) fn version(&self, request: &Request<'_>) -> Option<CacheVersion> {
        let (place, _) = self.place(request)?;
        Some(CacheVersion { sent_at: self.clock.now(), changes: self.changes[place].load(Ordering::Acquire) })
    }

    /// What the store said to calls of one kind that went together, the admitted ones first. Forgets what it said before
    /// an admission, and remembers a denial that lasts.
    pub(crate) fn note(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        has_admitted: bool,
        denial: Option<&StoreReply>,
    ) {
        let Some(CacheVersion { sent_at, changes }) = version else { return };
        let admissions = u64::from(has_admitted);
        if has_admitted {
            self.forget(&[*request]);
        }
        if let Some(answer) = denial {
            self.remember(request, CacheVersion { sent_at, changes: changes.wrapping_add(admissions) }, answer);
        }
    }

    fn remember(&self, request: &Request<'_>, version: CacheVersion, answer: &StoreReply) {
        let (Some(retry_after), Some((place, whose))) = (answer.retry_after, self.place(request)) else { return };
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
        let Some(mut denials) = self.lock(place) else { return };
        let has_changed = || self.changes[place].load(Ordering::Acquire) != version.changes;
        if has_changed() {
            return;
        }
        denials.retain(|known| {
            known.is_of_the_count(request) && !known.is_of(request) && known.stands(version.sent_at, self.longest)
        });
        if denials.len() == MOST {
            denials.remove(0);
        }
        // Mostly it is the only one.
        denials.reserve_exact(1);
        denials.push(denial);
        self.whose[place].store(whose, Ordering::Release);
        fence(Ordering::SeqCst);
        if has_changed() {
            self.clear(place, &mut denials);
        }
    }
}

const NOBODY: u64 = 0;

impl Denial {
    fn is_of(&self, request: &Request<'_>) -> bool {
        self.limit == request.limit && self.cost == request.cost && self.key == *request.key
    }

    fn is_of_the_count(&self, request: &Request<'_>) -> bool {
        CounterKind::from(self.limit) == CounterKind::from(request.limit) && self.key == *request.key
    }

    fn stands(&self, now: Moment, longest: Duration) -> bool {
        // By a clock that tests have moved back it was asked in the future.
        self.sent_at <= now && now < self.until && now < self.sent_at.after(longest)
    }

    fn answer(&self, now: Moment) -> StoreReply {
        StoreReply {
            allowed: false,
            which: 0,
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
        which: 0,
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
        denied.forget(&request);
        denied.note(&request[0], asked, false, Some(&DENIED));
        assert!(denied.recall(&request).is_none());
        denied.note(&request[0], denied.version(&request[0]), false, Some(&DENIED));
        assert!(denied.recall(&request).is_some());
        denied.note(&request[0], denied.version(&request[0]), true, None);
        assert!(denied.recall(&request).is_none());
    }

    #[test]
    fn a_denial_after_admissions_of_the_same_call_is_remembered_unless_something_else_changed() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request { key: &key, limit, cost: 1 }];
        let denied = DenialCache::new(Duration::from_secs(1), Clock::System);
        let asked = denied.version(&request[0]);
        denied.note(&request[0], asked, true, Some(&DENIED));
        assert!(denied.recall(&request).is_some());
        let asked = denied.version(&request[0]);
        denied.forget(&request);
        denied.note(&request[0], asked, true, Some(&DENIED));
        assert!(denied.recall(&request).is_none());
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn what_was_asked_in_the_future_is_asked_again() {
        let (key, limit) = (Key::new("a"), Limit::WIDEST);
        let request = [Request { key: &key, limit, cost: 1 }];
        let clock = crate::ManualClock::new();
        let denied = DenialCache::new(Duration::from_secs(1), Clock::Manual(clock.clone()));
        denied.note(&request[0], denied.version(&request[0]), false, Some(&DENIED));
        assert!(denied.recall(&request).is_some());
        clock.rewind(Duration::from_millis(1));
        assert!(denied.recall(&request).is_none());
    }

    #[test]
    fn many_limits_of_one_count_are_no_more_than_a_few_places() {
        let key = Key::new("a");
        let denied = DenialCache::new(Duration::from_secs(1), Clock::System);
        let asks = |max: u32| Limit::checked(max, 1000).expect("a limit");
        for max in 1..100 {
            let request = [Request { key: &key, limit: asks(max), cost: 1 }];
            let answer = StoreReply { retry_after: Some(Duration::from_secs(60)), ..DENIED };
            denied.note(&request[0], denied.version(&request[0]), false, Some(&answer));
        }
        let known = |max| denied.recall(&[Request { key: &key, limit: asks(max), cost: 1 }]).is_some();
        assert_eq!((1..100).filter(|max| known(*max)).count(), MOST);
        assert!(known(99), "the latest");
    }
}
