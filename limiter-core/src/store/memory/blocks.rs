//! Decisions about requests whose denials block their keys.
//!
//! The blocks are beside the counters, under locks of their own. A call that another one overtakes between the look at its
//! block and its decision counts as the earlier one.

use std::time::Duration;

use super::{EntryId, MemoryReply, MemoryStore};
use crate::algorithm::Outcome;
use crate::block::BlockRef;
use crate::clock::Moment;
use crate::request::{Request, StoreReply};

impl MemoryStore {
    /// Decides one request whose denial blocks the key.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_one_or_block(&self, request: &Request<'_>, block: BlockRef, max_wait: u64) -> MemoryReply {
        let now = self.clock.now();
        if let Some(end) = self.blocked_keys.end(request.key, block, now, true) {
            return MemoryReply::blocked(0, end, now, None);
        }
        let reply = self.decide_unblocked(request, max_wait, |reply| *reply);
        // The permits of a shared counter are those of other keys too.
        if !begins_block(&reply.outcome) || reply.is_shared {
            return reply;
        }
        let end = self.blocked_keys.begin(request.key, block, reply.now);
        MemoryReply::blocked(reply.outcome.remaining, end, reply.now, reply.entry)
    }

    /// Returns the denial of requests of which one has a blocked key: that of the block that ends last. An attempt that takes
    /// permits may extend a block.
    pub(crate) fn blocked(&self, requests: &[Request<'_>], takes: bool) -> Option<StoreReply> {
        if requests.iter().all(|request| request.block.is_none()) {
            return None;
        }
        let now = self.clock.now();
        let end = |request: &Request<'_>| self.blocked_keys.end(request.key, request.block?, now, takes);
        let ends: Vec<_> = requests.iter().map(end).collect();
        let last = ends.iter().flatten().max()?;
        let index = ends.iter().position(|end| end.as_ref() == Some(last))?;
        Some(StoreReply::blocked(index, left(*last, now), now.micros()))
    }

    /// Begins the blocks of requests that a store denies. Returns the reply with them, about the request whose block ends
    /// last. A final denial begins none.
    pub(super) fn begin_blocks(
        &self,
        requests: &[Request<'_>],
        outcomes: &[Outcome],
        reply: StoreReply,
        now: Moment,
    ) -> StoreReply {
        if reply.retry_after.is_none() {
            return reply;
        }
        let denied = requests.iter().zip(outcomes).enumerate().filter(|(_, (_, outcome))| begins_block(outcome));
        let begin = |request: &Request<'_>| Some(self.blocked_keys.begin(request.key, request.block?, now));
        let begun: Vec<_> = denied.filter_map(|(index, (request, _))| Some((index, begin(request)?))).collect();
        let Some(last) = begun.iter().map(|(_, end)| *end).max() else { return reply };
        let of_last = |index: usize| begun.contains(&(index, last));
        let left = left(last, now);
        if of_last(reply.request_index) {
            let reset_after = reply.reset_after.max(left);
            return StoreReply { retry_after: Some(left), reset_after, is_blocked: true, ..reply };
        }
        let index = begun.iter().position(|(_, end)| *end == last).map_or(0, |at| begun[at].0);
        StoreReply::blocked(index, left, reply.stamp)
    }

    /// Records the block that another store has begun, which lasts for this time from now.
    pub(crate) fn record_block(&self, request: &Request<'_>, left: Duration) {
        if let Some(block) = request.block {
            let millis = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
            self.blocked_keys.record(request.key, block, self.clock.now(), millis);
        }
    }

    /// Ends the block of a request's key.
    pub(crate) fn forget_block(&self, request: &Request<'_>) {
        if let Some(block) = request.block {
            self.blocked_keys.forget(request.key, block);
        }
    }
}

/// Returns whether an outcome begins a block: a denial that is not final.
fn begins_block(outcome: &Outcome) -> bool {
    !outcome.allowed && outcome.retry_at.is_some()
}

/// The time until the end of a block, in milliseconds of the clock.
fn left(end: u64, now: Moment) -> Duration {
    now.until_micros(end.saturating_mul(1000))
}

impl MemoryReply {
    /// The denial of a key that is blocked until a time in milliseconds.
    fn blocked(remaining: u32, end: u64, now: Moment, entry: Option<EntryId>) -> Self {
        let end = end.saturating_mul(1000);
        let outcome = Outcome { allowed: false, remaining, retry_at: Some(end), reset_at: end, delay: 0 };
        Self { outcome, now, entry, is_blocked: true, is_shared: false }
    }
}
