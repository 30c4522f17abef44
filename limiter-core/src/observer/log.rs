//! Log events of denials. Without a subscriber for them a denial costs one comparison.

use std::cell::Cell;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::contain::run_contained;
use crate::{Denied, TARGET};

/// Writes an event about a denial. Its name is part of a static. A final denial has no time of a retry.
macro_rules! event {
    ($name:literal, $denied:expr) => {
        tracing::debug!(
            name: $name,
            target: TARGET,
            rule = $denied.name(),
            limit = %$denied.limit(),
            remaining = $denied.remaining(),
            retry_after_ms = $denied.retry_after_millis(),
            source = $denied.source().as_str(),
            $name
        )
    };
}

/// Logs a denied call. A panic of the subscriber does not end the call.
#[inline]
pub(super) fn denied(denied: &Denied) {
    if is_logged() {
        log(|| event!("denied", denied));
    }
}

/// Logs a call that a rule in shadow mode would deny.
#[inline]
pub(super) fn shadowed(denied: &Denied) {
    if is_logged() {
        log(|| event!("shadowed", denied));
    }
}

#[inline]
fn is_logged() -> bool {
    Level::DEBUG <= LevelFilter::current()
}

thread_local! {
    /// True while the subscriber of this thread runs.
    static IS_LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `write`, unless it is called inside of itself: a subscriber that is rate limited itself may be denied.
#[cold]
#[inline(never)]
fn log(write: impl FnOnce()) {
    if IS_LOGGING.try_with(|is_logging| is_logging.replace(true)).unwrap_or(true) {
        return;
    }
    run_contained(write);
    let _ = IS_LOGGING.try_with(|is_logging| is_logging.set(false));
}
