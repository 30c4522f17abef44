//! Panics on any thread of this process.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

/// The panics since the last [`take`].
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Starts to note panics, and goes on to print them.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current().name().unwrap_or("a thread without a name").to_owned();
            SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(format!("a panic on {thread}: {info}"));
            before(info);
        }));
    });
}

/// Returns the panics since the last time.
pub(super) fn take() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap_or_else(PoisonError::into_inner))
}
