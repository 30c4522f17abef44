//! The token bucket: `burst` permits at once, refilled at `max` a window.
//!
//! Any interval admits at most `burst` permits plus the refill within it: up to `burst + max` in a window. It is
//! equivalent to the generic cell rate algorithm of ATM networks (ITU-T I.371), with the arithmetic of
//! [`bucket`](super::bucket).

use crate::algorithm::bucket::{Bucket, units};
use crate::algorithm::{AlgorithmInput, Outcome};

pub(super) fn peek(bucket: &Bucket, input: &AlgorithmInput) -> Outcome {
    let level = bucket.level(input);
    let taken = level.debt.div_ceil(units(1, input)) + u128::from(input.pending);
    let remaining = u32::try_from(u128::from(input.burst).saturating_sub(taken)).unwrap_or(0);
    let room = input.burst.checked_sub(input.pending).and_then(|left| left.checked_sub(input.cost));
    let (allowed, retry_at) = if input.cost <= remaining || input.cost == 0 {
        (true, Some(input.micros))
    } else {
        (false, room.map(|room| level.shrinks_to(units(room.into(), input))))
    };
    let reset_at = if level.debt == 0 { input.micros } else { level.shrinks_to(0) };
    Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
}

/// Returns the permits that have not refilled since, of those that the call has held until now. Without the take the
/// bucket might have been full in between, and that refill would have been lost. Permits of a bucket that has become
/// void are not returned.
pub(super) fn refund(bucket: &mut Bucket, input: &AlgorithmInput, stamp: u64) {
    let now = bucket.level(input).now;
    if bucket.covers(stamp) && stamp <= now {
        let refilled = u128::from(now - stamp) * u128::from(input.max);
        let held = units(u64::from(input.cost) + u64::from(input.pending), input);
        bucket.refund_units(held.saturating_sub(refilled).min(units(input.cost.into(), input)), input);
    }
}

#[cfg(test)]
mod tests;
