//! The leaky bucket as a queue: one permit passes at a time, evenly spaced, and up to `burst` may wait for their turn.
//!
//! A call's turn is when what was taken before it has passed. A call that has no max_wait is allowed only if that is
//! now; one that has is allowed at once, with the delay until its turn, if that comes in time and the queue has room.
//! So permits pass `window / max` apart: at most `max` begin in any window, or `max + cost - 1` where a call of a higher
//! cost begins, which passes as one and keeps those behind it waiting for as many turns. (Turner, "New directions in
//! communications", 1986, has the leaky bucket; the queue is its variant that delays instead of dropping.)
//!
//! The arithmetic is that of [`bucket`](super::bucket).

use crate::algorithm::bucket::{Bucket, units};
use crate::algorithm::{AlgorithmInput, Outcome};

pub(super) fn peek(bucket: &Bucket, ask: &AlgorithmInput) -> Outcome {
    let level = bucket.level(ask);
    let free = level.debt == 0;
    let turn = if free { ask.micros } else { level.shrinks_to(0) };
    let remaining = if free { ask.burst.saturating_sub(ask.pending) } else { 0 };
    // One passes while `burst` wait.
    let room = units(u64::from(ask.burst) + 1, ask);
    let needed = u64::from(ask.pending) + u64::from(ask.cost);
    let delay = turn.saturating_sub(ask.micros);
    let (allowed, retry_at, delay) = if ask.cost == 0 {
        (true, Some(ask.micros), 0)
    } else if needed > u64::from(ask.burst) {
        (false, None, 0)
    } else if free || (delay <= ask.max_wait && level.debt + units(needed, ask) <= room) {
        (true, Some(ask.micros), delay)
    } else {
        (false, Some(turn), 0)
    };
    Outcome { allowed, remaining, retry_at, reset_at: turn, delay }
}

/// Gives back the last turn that was given, and no other: whoever has a later one keeps it, so an earlier one that was
/// given back would come to be where a later one is.
pub(super) fn refund(bucket: &mut Bucket, ask: &AlgorithmInput, stamp: u64) {
    if bucket.ends_with(stamp) {
        bucket.put_back(units(ask.cost.into(), ask), ask);
    }
}

#[cfg(test)]
mod tests;
