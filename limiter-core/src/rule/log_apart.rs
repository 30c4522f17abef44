//! Log events about rules.

use std::thread;

use crate::run::run_contained;

/// Logs on the thread of a call. A panic of the subscriber must not end the call.
pub(crate) fn log_in_call(log: impl FnOnce()) {
    run_contained(log);
}

/// Logs on a thread of its own. The default limiter of the process may be under construction, and a subscriber that
/// calls a rate-limited function would wait for it for ever.
pub(crate) fn log_apart(log: impl FnOnce() + Send + 'static) {
    // Without a thread the event is lost: nothing depends on it.
    drop(thread::Builder::new().name("rate-limited-log".to_owned()).spawn(log));
}
