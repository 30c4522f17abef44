//! When the store last failed, and for whom.

use std::hash::BuildHasher;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::request::Request;
use crate::store::naming::Naming;
use crate::sync::{AtomicU64, Ordering, Seed};

/// The last failure, in milliseconds of the clock: of a server, for all the slots that it serves, and of single calls,
/// for their keys.
#[derive(Debug)]
pub(crate) struct RecentFailures {
    /// The latest of all: while it is long ago, nothing else is looked at.
    latest: AtomicU64,
    /// One for each slot of a cluster; one for everything where there are no slots.
    slots: Box<[AtomicU64]>,
    /// One for many keys each: a failure of one call is remembered for a few others too.
    keys: Box<[AtomicU64]>,
    seed: Seed,
    naming: Arc<Naming>,
}

/// Whose keys a failure is about, where a server fails.
pub(crate) type Slots = [RangeInclusive<u16>];

const NEVER: u64 = 0;
/// Few where loom watches each of them.
const KEYS: usize = if cfg!(all(test, limiter_loom)) { 2 } else { 4096 };

impl RecentFailures {
    /// For a store whose keys are spread over so many slots by their names.
    pub(crate) fn new(slots: u16, naming: Arc<Naming>) -> Self {
        let never = |marks: usize| (0..marks).map(|_| AtomicU64::new(NEVER)).collect();
        Self {
            latest: AtomicU64::new(NEVER),
            slots: never(slots.max(1).into()),
            keys: never(KEYS),
            seed: Seed::default(),
            naming,
        }
    }

    /// A server failed.
    pub(crate) fn server_failed(&self, slots: &Slots, now: u64) {
        for slot in slots.iter().cloned().flatten() {
            if let Some(mark) = self.slots.get(usize::from(slot)) {
                raise(mark, now);
            }
        }
        raise(&self.latest, now);
    }

    /// A call failed.
    pub(crate) fn call_failed(&self, requests: &[Request<'_>], now: u64) {
        for request in requests {
            raise(self.key(request), now);
        }
        raise(&self.latest, now);
    }

    /// Whether a permit of any of these counts may be from before a failure, or from a time when the stand-in decided.
    pub(crate) fn any_within_window(&self, requests: &[Request<'_>], now: u64) -> bool {
        let recent = |mark: &AtomicU64, request: &Request<'_>| match mark.load(Ordering::Acquire) {
            NEVER => false,
            failed_at => failed_at.saturating_add(request.limit.memory_millis()) > now,
        };
        requests.iter().any(|request| {
            recent(&self.latest, request) && (recent(self.slot(request), request) || recent(self.key(request), request))
        })
    }

    /// Returns whether the server of any of these counts has failed since an instant in milliseconds. It may have lost what it
    /// had counted by then.
    pub(crate) fn has_server_failed_since(&self, requests: &[Request<'_>], since: u64) -> bool {
        let since = since.max(NEVER + 1);
        requests.iter().any(|request| self.slot(request).load(Ordering::Acquire) >= since)
    }

    fn slot(&self, request: &Request<'_>) -> &AtomicU64 {
        if self.slots.len() == 1 {
            &self.slots[0]
        } else {
            &self.slots[usize::from(self.naming.slot(request)) % self.slots.len()]
        }
    }

    fn key(&self, request: &Request<'_>) -> &AtomicU64 {
        let hash = self.seed.hash_one(request.key.head());
        &self.keys[usize::try_from(hash % KEYS as u64).unwrap_or(0)]
    }
}

/// Of several failures at once the latest stands.
fn raise(mark: &AtomicU64, now: u64) {
    let now = now.max(NEVER + 1);
    // Where many calls fail in one millisecond, their threads only read what all of them share.
    if mark.load(Ordering::Acquire) < now {
        mark.fetch_max(now, Ordering::AcqRel);
    }
}
