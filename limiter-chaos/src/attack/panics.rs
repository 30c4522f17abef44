//! Records panics on all threads of this process.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

/// The panics since the last [`take`].
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Starts to record panics, which are still printed.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current().name().unwrap_or("a thread without a name").to_owned();
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("a panic on {thread}: {info}"));
            previous_hook(info);
        }));
    });
}

/// Returns the panics since the last call.
pub(super) fn take() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}
