//! The sliding counter: two fixed windows, of which the older counts as far as the sliding window still covers it.
//!
//! What counts as used is `current + previous * (window - elapsed) / window`, rounded up: as if the older window's
//! permits had been taken evenly. Where they were not, up to nearly `2 * max` fit into one window, as with a fixed one,
//! but only if the older ones all came at its end. Known from Cloudflare's "How we built rate limiting capable of
//! scaling to millions of domains" (2017).
//!
//! A window's length and its edges are whole milliseconds, and the time within it is rounded down: the older window
//! counts a little too much, never too little. A clock that has stepped back before the window counted in stands still
//! at that window's beginning; by more than a window, the count is void.

use crate::algorithm::{AlgorithmInput, Outcome};

/// What was taken in two windows that follow each other. Instants in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// When the newer window began.
    start: u64,
    /// When the first permit was taken that either count includes.
    since: u64,
    current: u32,
    previous: u32,
}

impl Counters {
    pub(super) fn peek(&self, ask: &AlgorithmInput) -> Outcome {
        let window = ask.span.window;
        let view = self.view(ask);
        let elapsed = ask.floor.saturating_sub(view.start);
        let used = u64::from(view.current) + share(window - elapsed, view.previous, window, u128::div_ceil);
        let taken = used + u64::from(ask.pending);
        let remaining = u32::try_from(u64::from(ask.max).saturating_sub(taken)).unwrap_or(0);
        let allowed = ask.cost <= remaining || ask.cost == 0;
        let reset_at = match (view.current, view.previous) {
            (0, 0) => ask.floor,
            (0, _) => view.start + window,
            _ => view.start + 2 * window,
        };
        let retry_at = if allowed { Some(ask.floor) } else { view.fits_at(ask) };
        Outcome { allowed, remaining, retry_at, reset_at, delay: 0 }
    }

    pub(super) fn record(&mut self, ask: &AlgorithmInput) {
        let view = self.view(ask);
        let since = if view.is_empty() { ask.floor } else { self.since };
        *self = Self { since, current: view.current.saturating_add(ask.cost), ..view };
    }

    /// Permits of one window count alike, so one is as good as another.
    pub(super) fn refund(&mut self, ask: &AlgorithmInput, stamp: u64) {
        let mut view = self.view(ask);
        let window = stamp - stamp % ask.span.window;
        if stamp < view.since || view.is_empty() {
            return;
        }
        if window == view.start {
            view.current = view.current.saturating_sub(ask.cost);
        } else if window + ask.span.window == view.start {
            view.previous = view.previous.saturating_sub(ask.cost);
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

    /// The counts as they are to be read now.
    fn view(&self, ask: &AlgorithmInput) -> Self {
        let window = ask.span.window;
        let begun = ask.floor - ask.floor % window;
        if self.is_empty() {
            Self { start: begun, ..Self::default() }
        } else if self.start == begun || (self.start > ask.floor && self.start - ask.floor <= window) {
            self.clone()
        } else if self.start < begun && begun - self.start == window {
            Self { start: begun, since: self.since, current: 0, previous: self.current }
        } else {
            Self { start: begun, ..Self::default() }
        }
    }

    /// The first millisecond when the cost fits into what the counts have become by then; `None` if it never does.
    fn fits_at(&self, ask: &AlgorithmInput) -> Option<u64> {
        let window = ask.span.window;
        let room = ask.max.checked_sub(ask.pending)?.checked_sub(ask.cost)?;
        // Each count fades over the window after its own: the first of the two that has to fade for the cost to fit.
        let (start, fades, room) = match room.checked_sub(self.current) {
            Some(left) => (self.start, self.previous, left),
            None => (self.start + window, self.current, room),
        };
        Some(start + window - share(window, room, fades.into(), u128::div_euclid).min(window))
    }

    fn is_empty(&self) -> bool {
        self.current == 0 && self.previous == 0
    }
}

/// `part * count / whole`, where the product may pass 64 bits; nothing where there is no whole.
fn share(part: u64, count: u32, whole: u64, divide: fn(u128, u128) -> u128) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from(divide(u128::from(part) * u128::from(count), whole.into())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
