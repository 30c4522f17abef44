//! The sliding counter: two fixed windows, of which the older is weighted by its overlap with the sliding window.
//!
//! The permits used are `current + previous * (window - elapsed) / window`, rounded up, as if those of the older window
//! had been taken evenly. If they all came at its end, a sliding window admits up to nearly `2 * max` permits, as a
//! fixed window does. Source: Cloudflare, "How we built rate limiting capable of scaling to millions of domains", 2017.
//!
//! A window's length and its edges are whole milliseconds, and the time within it is rounded down. So the older window
//! counts a little too much, never too little. If the clock steps back before the newer window, time stands still at
//! that window's start. If it steps back by more than a window, the counter is void.

use crate::algorithm::{AlgorithmInput, Outcome};

/// The permits taken in two consecutive windows. Instants are in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowPair {
    /// The start of the newer window.
    start: u64,
    /// The instant of the first take that either window counts.
    since: u64,
    current: u32,
    previous: u32,
}

impl WindowPair {
    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        let (window, view) = (input.kind.window, self.view(input));
        let taken = view.used_at(input) + u64::from(input.pending);
        let remaining = u32::try_from(u64::from(input.max).saturating_sub(taken)).unwrap_or(0);
        let allowed = input.cost <= remaining || input.cost == 0;
        let reset_at = match (view.current, view.previous) {
            (0, 0) => input.floor,
            (0, _) => view.start + window,
            _ => view.start + 2 * window,
        };
        let retry_at = if allowed { Some(input.floor) } else { view.fits_at(input) };
        Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
    }

    /// The permits that count now.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u64 {
        self.view(input).used_at(input)
    }

    /// The permits of a view of now that count.
    fn used_at(&self, input: &AlgorithmInput) -> u64 {
        let window = input.kind.window;
        let elapsed = input.floor.saturating_sub(self.start);
        u64::from(self.current) + proportion(window - elapsed, self.previous, window, u128::div_ceil)
    }

    pub(super) fn record(&mut self, input: &AlgorithmInput) {
        let view = self.view(input);
        let since = if view.is_empty() { input.floor } else { self.since };
        *self = Self { since, current: view.current.saturating_add(input.cost), ..view };
    }

    /// Returns permits to the window of `stamp`. All permits of a window count alike.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        let mut view = self.view(input);
        let window = stamp - stamp % input.kind.window;
        if stamp < view.since || view.is_empty() {
            return;
        }
        if window == view.start {
            view.current = view.current.saturating_sub(input.cost);
        } else if window + input.kind.window == view.start {
            view.previous = view.previous.saturating_sub(input.cost);
        }
        *self = view;
    }

    pub(super) fn expires_at(&self, window: u64) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.start + window,
            _ => self.start + 2 * window,
        }
    }

    /// Returns the two windows as of now.
    fn view(&self, input: &AlgorithmInput) -> Self {
        let window = input.kind.window;
        let begun = input.floor - input.floor % window;
        if self.is_empty() {
            Self { start: begun, ..Self::default() }
        } else if self.start == begun || (self.start > input.floor && self.start - input.floor <= window) {
            self.clone()
        } else if self.start < begun && begun - self.start == window {
            Self { start: begun, since: self.since, current: 0, previous: self.current }
        } else {
            Self { start: begun, ..Self::default() }
        }
    }

    /// Returns the first millisecond at which the cost fits; `None` if it never does.
    fn fits_at(&self, input: &AlgorithmInput) -> Option<u64> {
        let window = input.kind.window;
        let room = input.max.checked_sub(input.pending)?.checked_sub(input.cost)?;
        // A window's permits expire over the window after it. This selects the first of the two that must expire in
        // part.
        let (start, fading, room) = match room.checked_sub(self.current) {
            Some(left) => (self.start, self.previous, left),
            None => (self.start + window, self.current, room),
        };
        Some(start + window - proportion(window, room, fading.into(), u128::div_euclid).min(window))
    }

    fn is_empty(&self) -> bool {
        self.current == 0 && self.previous == 0
    }
}

/// Returns `part * count / whole`, where the product may exceed 64 bits; 0 if `whole` is 0.
fn proportion(part: u64, count: u32, whole: u64, divide: fn(u128, u128) -> u128) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from(divide(u128::from(part) * u128::from(count), whole.into())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
