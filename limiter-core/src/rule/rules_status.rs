//! The state of rules that a limiter reads again while the program runs.

use crate::metrics::RulesRefused;
use crate::sync::process::{id, lock};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::{Error, Origin};

/// The present error of a source of rules, and the number of all of them.
#[derive(Debug)]
pub(crate) struct RulesStatus {
    home: u32,
    errors: AtomicU64,
    error: Mutex<Option<Error>>,
    refused: RulesRefused,
}

impl RulesStatus {
    pub(crate) fn new(origin: Origin) -> Self {
        let refused = RulesRefused::new(origin.as_str());
        Self { home: id(), errors: AtomicU64::new(0), error: Mutex::new(None), refused }
    }

    /// The last set of rules, for the gauge. The limiter withdraws it.
    pub(crate) fn refused(&self) -> &RulesRefused {
        &self.refused
    }

    /// The number of errors since the start.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The present error. `None` if the rules in force are those of the source.
    pub(crate) fn error(&self) -> Option<Error> {
        self.lock()?.clone()
    }

    /// Sets the error. Returns true if it is another one than before.
    pub(crate) fn fail(&self, error: &Error) -> bool {
        let Some(mut present) = self.lock() else { return false };
        let is_new = present.as_ref().is_none_or(|present| present.to_string() != error.to_string());
        *present = Some(error.clone());
        if is_new {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Removes the error. Returns true if there was one.
    pub(crate) fn succeed(&self) -> bool {
        self.lock().is_some_and(|mut error| error.take().is_some())
    }

    /// Locks the error. `None` in a child of `fork` whose parent was changing it.
    fn lock(&self) -> Option<MutexGuard<'_, Option<Error>>> {
        lock(&self.error, self.home)
    }
}
