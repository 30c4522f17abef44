//! The times of the store's last failures, for each slot and key.

use std::cell::LazyCell;
use std::ops::RangeInclusive;

use crate::local::counter_hash::{CounterHash, Table};
use crate::request::{Request, SlottedRequests};
use crate::sync::{AtomicU64, Ordering};

/// The times of the last failures, in milliseconds of the clock.
///
/// The failure of a server is recorded for all slots that it serves, the failure of a call for its keys.
#[derive(Debug)]
pub(crate) struct RecentFailures {
    /// The latest failure of all. While it is long ago, no other time is read.
    latest: AtomicU64,
    /// One time for each slot of a cluster; a single one for a store without slots.
    slots: Box<[AtomicU64]>,
    /// Times of failed calls, by the hash of the key. A failure of one call counts for a few other keys as well.
    keys: Box<[AtomicU64]>,
}

/// The part of the store that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecentFailure {
    /// Calls alone, such as one that was late. The server has its counters.
    Calls,
    /// The server, which may have lost its counters.
    Server,
}

/// The slots of a failed server.
pub(crate) type Slots = [RangeInclusive<u16>];

impl Table {
    pub(crate) const FAILURES: Self = Self::new(0x082E_FA98_EC4E_6C89);
}

const NEVER: u64 = 0;
/// Entries for failed calls. Two under loom, which tracks each of them.
const KEY_ENTRIES: usize = if cfg!(all(test, limiter_loom)) { 2 } else { 4096 };

impl RecentFailures {
    /// A table for a store with `slots` slots.
    pub(crate) fn new(slots: u16) -> Self {
        let never = |count: usize| (0..count).map(|_| AtomicU64::new(NEVER)).collect();
        Self { latest: AtomicU64::new(NEVER), slots: never(slots.max(1).into()), keys: never(KEY_ENTRIES) }
    }

    /// Records the failure of the server of these slots.
    pub(crate) fn server_failed(&self, slots: &Slots, now: u64) {
        for slot in slots.iter().cloned().flatten() {
            if let Some(failed_at) = self.slots.get(usize::from(slot)) {
                record(failed_at, now);
            }
        }
        record(&self.latest, now);
    }

    /// Records the failure of a call about this request.
    pub(crate) fn call_failed(&self, request: &Request<'_>, now: u64) {
        record(self.key_failure(request), now);
        record(&self.latest, now);
    }

    /// Returns the greatest failure of the store for any of these requests within the time for which its permits count: for a
    /// limit of the calendar since the start of its present period. The clock and the starts are read only if it has failed
    /// before.
    pub(crate) fn within_window(
        &self,
        requests: SlottedRequests<'_>,
        now: impl FnOnce() -> u64,
        period_start: impl Fn(&Request<'_>) -> Option<u64>,
    ) -> Option<RecentFailure> {
        if self.latest.load(Ordering::Acquire) == NEVER {
            return None;
        }
        let now = now();
        let failure = |(request, slot): (&Request<'_>, u16)| {
            let period_start = LazyCell::new(|| period_start(request));
            let is_recent = |failed_at: &AtomicU64| match (failed_at.load(Ordering::Acquire), request.limit) {
                (NEVER, _) => false,
                (failed_at, limit) if limit.calendar_periods().is_some() => {
                    period_start.is_none_or(|start| start <= failed_at)
                }
                (failed_at, limit) => failed_at.saturating_add(limit.memory_millis()) > now,
            };
            if !is_recent(&self.latest) {
                return None;
            }
            let of_server = is_recent(self.slot_failure(slot)).then_some(RecentFailure::Server);
            of_server.or_else(|| is_recent(self.key_failure(request)).then_some(RecentFailure::Calls))
        };
        requests.iter().filter_map(failure).max()
    }

    /// Returns whether the server of any of these requests has failed since an instant in milliseconds. It may then
    /// have lost the permits that it had counted by that instant.
    pub(crate) fn has_server_failed_since(&self, requests: SlottedRequests<'_>, since: u64) -> bool {
        let since = since.max(NEVER + 1);
        requests.iter().any(|(_, slot)| self.slot_failure(slot).load(Ordering::Acquire) >= since)
    }

    /// The time of the last failure of a server of this slot.
    pub(crate) fn last_server_failure(&self, slot: u16) -> Option<u64> {
        Some(self.slot_failure(slot).load(Ordering::Acquire)).filter(|failed_at| *failed_at != NEVER)
    }

    fn slot_failure(&self, slot: u16) -> &AtomicU64 {
        &self.slots[usize::from(slot) % self.slots.len()]
    }

    fn key_failure(&self, request: &Request<'_>) -> &AtomicU64 {
        let (entry, _) = CounterHash::of_key(request.key).place_and_tag(Table::FAILURES, KEY_ENTRIES);
        &self.keys[entry]
    }
}

/// Records a failure. The latest of several concurrent ones is kept.
fn record(failed_at: &AtomicU64, now: u64) {
    let now = now.max(NEVER + 1);
    // If many calls fail in one millisecond, most of their threads only read the shared cache line.
    if failed_at.load(Ordering::Acquire) < now {
        failed_at.fetch_max(now, Ordering::AcqRel);
    }
}
