//! The circuit breaker of one server. Callers read it before they send a call to the worker.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::sync::{Mutex, lock};

/// Closed while the server is up or was never tried. Open while it is known to be down, or too slow to be of use.
///
/// It opens when the connection is lost, and when calls wait for a whole deadline and none gets a reply. That is a failure
/// rate of 100 %. No rate between 0 and 100 % is ever seen: on one connection replies come in the order of the calls, so a
/// server that is too late for one is too late for those behind it. One caller's bad key, missing permission or short
/// deadline does not open it.
///
/// The task that reconnects closes it. Its attempts are the probes, one at a time. A server that does not reply to a probe
/// within the deadline is still down.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    is_open: AtomicBool,
    cause: Mutex<Option<Error>>,
}

impl Breaker {
    /// The error of a call while the breaker is open. It does no I/O and runs on the caller's thread.
    pub(crate) fn open_error(&self) -> Option<Error> {
        if !self.is_open.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.cause).clone()
    }

    pub(crate) fn open(&self, cause: Error) {
        *lock(&self.cause) = Some(cause);
        self.is_open.store(true, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }
}
