//! The fixed window: at most `max` permits in each of the windows that follow each other from the clock's origin on.
//!
//! The classic counter, in the smallest space there is. Around the edge of two windows up to `2 * max` permits fit into
//! a moment: whoever cannot have that takes the sliding window. Unlike the usual `INCR`, a denied call is not counted.
//!
//! A window's length and its edges are whole milliseconds, so nothing is rounded. A clock that has stepped back before
//! the window counted in stands still at that window's beginning; by more than a window, the count is void.

use crate::algorithm::{AlgorithmInput, Outcome};

/// What was taken in one window. All in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    /// When the window began.
    start: u64,
    /// When its first permit was taken.
    since: u64,
    count: u32,
}

impl Counter {
    pub(super) fn peek(&self, ask: &AlgorithmInput) -> Outcome {
        let (start, used) = self.view(ask);
        let remaining = ask.max.saturating_sub(used).saturating_sub(ask.pending);
        let end = start + ask.span.window;
        let needed = u64::from(ask.pending) + u64::from(ask.cost);
        let (allowed, retry_at) = if ask.cost <= remaining || ask.cost == 0 {
            (true, Some(ask.floor))
        } else {
            (false, (needed <= u64::from(ask.max)).then_some(end))
        };
        Outcome { allowed, remaining, retry_at, reset_at: if used == 0 { ask.floor } else { end }, delay: 0 }
    }

    pub(super) fn record(&mut self, ask: &AlgorithmInput) {
        let (start, used) = self.view(ask);
        if used == 0 {
            self.since = ask.floor;
        }
        (self.start, self.count) = (start, used.saturating_add(ask.cost));
    }

    /// Permits of one window come back together, so one is as good as another.
    pub(super) fn refund(&mut self, ask: &AlgorithmInput, stamp: u64) {
        let (start, used) = self.view(ask);
        if stamp >= self.since && stamp - stamp % ask.span.window == start {
            (self.start, self.count) = (start, used.saturating_sub(ask.cost));
        }
    }

    pub(super) fn expires_at(&self, window: u64) -> u64 {
        if self.count == 0 { 0 } else { self.start + window }
    }

    /// The window that counts now, by its beginning, and what was taken in it.
    fn view(&self, ask: &AlgorithmInput) -> (u64, u32) {
        let begun = ask.floor - ask.floor % ask.span.window;
        let behind = self.start > ask.floor && self.start - ask.floor <= ask.span.window;
        if self.count > 0 && (self.start == begun || behind) { (self.start, self.count) } else { (begun, 0) }
    }
}

#[cfg(test)]
mod tests;
