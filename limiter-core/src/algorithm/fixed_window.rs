//! The fixed window: at most `max` permits in each of the consecutive windows that start at the clock's origin.
//!
//! It is the classic counter, and the smallest state of all algorithms. Around the edge of two windows up to `2 * max`
//! permits can be taken at once; the sliding window has no such burst. Unlike with the usual `INCR`, a denied call does
//! not count.
//!
//! A window's length and its edges are whole milliseconds, so nothing is rounded. If the clock steps back before the
//! current window, time stands still at that window's start. If it steps back by more than a window, the counter is
//! void.

use crate::algorithm::{AlgorithmInput, Outcome};

/// The permits taken in one window. Instants are in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowCounter {
    /// The start of the window.
    start: u64,
    /// The instant of its first take.
    since: u64,
    count: u32,
}

impl WindowCounter {
    pub(super) fn peek(&self, input: &AlgorithmInput) -> Outcome {
        let (start, used) = self.view(input);
        let remaining = input.max.saturating_sub(used).saturating_sub(input.pending);
        let end = start + input.kind.window;
        let needed = u64::from(input.pending) + u64::from(input.cost);
        let (allowed, retry_at) = if input.cost <= remaining || input.cost == 0 {
            (true, Some(input.floor))
        } else {
            (false, (needed <= u64::from(input.max)).then_some(end))
        };
        Outcome { allowed, remaining, retry_at, reset_at: if used == 0 { input.floor } else { end }, delay: 0 }
    }

    /// The permits that count now.
    pub(super) fn used(&self, input: &AlgorithmInput) -> u32 {
        self.view(input).1
    }

    pub(super) fn record(&mut self, input: &AlgorithmInput) {
        let (start, used) = self.view(input);
        if used == 0 {
            self.since = input.floor;
        }
        (self.start, self.count) = (start, used.saturating_add(input.cost));
    }

    /// Returns permits to the window of `stamp`, if that is the current one. All permits of a window expire together.
    pub(super) fn refund(&mut self, input: &AlgorithmInput, stamp: u64) {
        let (start, used) = self.view(input);
        if stamp >= self.since && stamp - stamp % input.kind.window == start {
            (self.start, self.count) = (start, used.saturating_sub(input.cost));
        }
    }

    /// The first millisecond at which no permit counts; 0 if none was taken.
    pub(super) fn expires_at(&self, window: u64) -> u64 {
        if self.count == 0 { 0 } else { self.start + window }
    }

    /// Returns the start of the current window and the permits taken in it.
    fn view(&self, input: &AlgorithmInput) -> (u64, u32) {
        let begun = input.floor - input.floor % input.kind.window;
        let behind = self.start > input.floor && self.start - input.floor <= input.kind.window;
        if self.count > 0 && (self.start == begun || behind) { (self.start, self.count) } else { (begun, 0) }
    }
}

#[cfg(test)]
mod tests;
