//! The token bucket: `burst` permits at once, and `max` a window after that.
//!
//! In any stretch of time at most `burst` permits and what flows back within it: up to `burst + max` in a window. It
//! is the generic cell rate algorithm of ATM networks (ITU-T I.371) in other words, with the arithmetic of
//! [`bucket`](super::bucket).

use crate::algorithm::bucket::{Bucket, units};
use crate::algorithm::{AlgorithmInput, Outcome};

pub(super) fn peek(bucket: &Bucket, ask: &AlgorithmInput) -> Outcome {
    let level = bucket.level(ask);
    let taken = level.debt.div_ceil(units(1, ask)) + u128::from(ask.pending);
    let remaining = u32::try_from(u128::from(ask.burst).saturating_sub(taken)).unwrap_or(0);
    let room = ask.burst.checked_sub(ask.pending).and_then(|left| left.checked_sub(ask.cost));
    let (allowed, retry_at) = if ask.cost <= remaining || ask.cost == 0 {
        (true, Some(ask.micros))
    } else {
        (false, room.map(|room| level.shrinks_to(units(room.into(), ask))))
    };
    let reset_at = if level.debt == 0 { ask.micros } else { level.shrinks_to(0) };
    Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
}

/// Gives back what has not come back by itself since: had the permits not been taken, the bucket might have been full
/// in between, and what flowed then would have been lost. Nothing of what was taken before the clock stepped back and
/// the bucket was void.
pub(super) fn refund(bucket: &mut Bucket, ask: &AlgorithmInput, stamp: u64) {
    let now = bucket.level(ask).now;
    if bucket.covers(stamp) && stamp <= now {
        let back = u128::from(now - stamp) * u128::from(ask.max);
        bucket.put_back(units(ask.cost.into(), ask).saturating_sub(back), ask);
    }
}

#[cfg(test)]
mod tests;
