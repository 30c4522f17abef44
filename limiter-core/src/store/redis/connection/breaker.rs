//! The circuit breaker of one server: what callers look at before they ask.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::sync::Mutex;
use crate::sync::process::{forked, lock_at_home};

/// Closed while the server is there, or was never tried; open while it is known to be away, or too slow to be of use.
///
/// It opens when the connection is lost, and when a whole deadline passes in which calls waited and none was answered.
/// (That is a failure share of one. There is none between: on one connection answers come in the order of the calls, so
/// a server that is too late for one is too late for those behind it.) One caller's bad key, missing permission or short
/// deadline does not open it. The connection's keeper closes it: its attempts are the probes, one at a time, and a server that
/// does not answer a probe within the deadline is not back yet.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    open: AtomicBool,
    cause: Mutex<Option<Error>>,
}

impl Breaker {
    /// Why nothing need be asked, if so: costs no I/O, and is read on the caller's own thread. It was made in the process
    /// `home`; a child of that, where it is locked for good, has no use for the cause.
    pub(crate) fn refusal(&self, home: u32) -> Option<Error> {
        if !self.open.load(Ordering::Acquire) {
            return None;
        }
        lock_at_home(&self.cause, home).map_or_else(|| Some(forked()), |cause| cause.clone())
    }

    pub(crate) fn open(&self, cause: Error) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
        self.open.store(true, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}
