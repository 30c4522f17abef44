//! The leaky bucket as a queue: permits pass one at a time, evenly spaced, and up to `burst` of them may be queued.
//!
//! A call's turn comes when all permits taken before it have passed. A call without `max_wait` is allowed only if its
//! turn is now. A call with `max_wait` is allowed immediately, with the delay until its turn, if that delay is at most
//! `max_wait` and the queue has room. So permits pass `window / max` apart, and at most `max` start in any window. A
//! call of a higher cost passes as a whole and delays the calls behind it by that many turns. With it, at most
//! `max + cost - 1` permits start in a window. Source: Turner, "New directions in communications", 1986; the queue is
//! the variant that delays instead of dropping.
//!
//! The arithmetic is that of [`bucket`](super::bucket).

use crate::algorithm::bucket::{Bucket, units};
use crate::algorithm::{AlgorithmInput, Outcome};

pub(super) fn peek(bucket: &Bucket, input: &AlgorithmInput) -> Outcome {
    let level = bucket.level(input);
    let free = level.debt == 0;
    let turn = if free { input.micros } else { level.shrinks_to(0) };
    let remaining = if free { input.burst.saturating_sub(input.pending) } else { 0 };
    // One permit passes while `burst` are queued.
    let room = units(u64::from(input.burst) + 1, input);
    let needed = u64::from(input.pending) + u64::from(input.cost);
    let delay = turn.saturating_sub(input.micros);
    let (allowed, retry_at, delay) = if input.cost == 0 {
        (true, Some(input.micros), 0)
    } else if needed > u64::from(input.burst) {
        (false, None, 0)
    } else if free || (delay <= input.max_wait && level.debt + units(needed, input) <= room) {
        (true, Some(input.micros), delay)
    } else {
        (false, Some(turn), 0)
    };
    Outcome { allowed, remaining, retry_at, reset_at: turn, delay }
}

/// Returns turns of the last call that was granted any, and of no earlier one. Later turns keep their instants, so the
/// turns that an earlier refund frees would coincide with them. The rest of the call's turns can be returned later.
pub(super) fn refund(bucket: &mut Bucket, input: &AlgorithmInput, stamp: u64) {
    if bucket.ends_with(stamp) {
        bucket.shorten_last_take(units(input.cost.into(), input), input);
    }
}

#[cfg(test)]
mod tests;
