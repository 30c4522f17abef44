//! Observers of decisions and failures: callbacks that cannot change a decision. Their panics are caught.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::overflow::{Overflows, Report};
use crate::{Allowed, Decision, Denied, Error, Overflow, TARGET};

type Observer<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The observers of a limiter. Each kind runs in the order of registration, on the caller's own thread.
#[derive(Default)]
pub(crate) struct Observers {
    allowed: Vec<Observer<Allowed>>,
    denied: Vec<Observer<Denied>>,
    shadowed: Vec<Observer<Denied>>,
    failed: Vec<Observer<Error>>,
    overflowed: Vec<Observer<Overflow>>,
    overflows: Option<Arc<Overflows>>,
}

impl Observers {
    pub(crate) fn on_allowed(&mut self, observer: impl Fn(&Allowed) + Send + Sync + 'static) {
        self.allowed.push(Box::new(observer));
    }

    pub(crate) fn on_denied(&mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) {
        self.denied.push(Box::new(observer));
    }

    pub(crate) fn on_shadowed(&mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) {
        self.shadowed.push(Box::new(observer));
    }

    pub(crate) fn on_failed(&mut self, observer: impl Fn(&Error) + Send + Sync + 'static) {
        self.failed.push(Box::new(observer));
    }

    pub(crate) fn on_overflow(&mut self, observer: impl Fn(&Overflow) + Send + Sync + 'static) {
        self.overflowed.push(Box::new(observer));
    }

    /// Attaches a counter of overflows. Each decision then also reports its overflows, if a report is due.
    pub(crate) fn attach_overflow(&mut self, overflows: Arc<Overflows>) {
        self.overflows = Some(overflows);
    }

    /// Returns whether any observer receives allowed calls.
    #[inline]
    pub(crate) fn observe_allowed(&self) -> bool {
        !self.allowed.is_empty()
    }

    /// Calls the observers of a decision, and reports an overflow if that is due.
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        match decision {
            Decision::Allowed(allowed) => call_each(&self.allowed, allowed),
            Decision::Denied(denied) => call_each(&self.denied, denied),
        }
        self.report_overflow();
    }

    /// Calls the observers of a decision, and reports an overflow if that is due. The observers of an allowed one get
    /// each of its reports, or the decision itself if it has none.
    #[inline(always)]
    pub(crate) fn decided_each(&self, decision: &mut Decision, reports: impl FnOnce(&mut Allowed) -> Vec<Allowed>) {
        match decision {
            Decision::Allowed(allowed) if self.observe_allowed() => match &reports(allowed)[..] {
                [] => call_all(&self.allowed, allowed),
                reports => reports.iter().for_each(|report| call_all(&self.allowed, report)),
            },
            Decision::Allowed(_) => {}
            Decision::Denied(denied) => call_each(&self.denied, denied),
        }
        self.report_overflow();
    }

    /// Reports overflows to the observers and the log, if a report is due.
    #[inline]
    pub(crate) fn report_overflow(&self) {
        if let Some(report) = self.overflows.as_ref().and_then(|overflows| overflows.take_due_report()) {
            self.overflowed(&report);
        }
    }

    pub(crate) fn denied(&self, denied: &Denied) {
        call_each(&self.denied, denied);
    }

    pub(crate) fn shadowed(&self, denied: &Denied) {
        call_each(&self.shadowed, denied);
    }

    pub(crate) fn failed(&self, error: &Error) {
        call_each(&self.failed, error);
    }

    #[cold]
    fn overflowed(&self, Report { overflow, to_log }: &Report) {
        call_each(&self.overflowed, overflow);
        if *to_log {
            tracing::warn!(
                target: TARGET,
                max_keys = overflow.max_keys(),
                source = ?overflow.source(),
                "the map of rate limit keys in this process is full: new keys share counters and may be denied early"
            );
        }
    }
}

#[inline]
fn call_each<T>(observers: &[Observer<T>], event: &T) {
    if !observers.is_empty() {
        call_all(observers, event);
    }
}

#[cold]
fn call_all<T>(observers: &[Observer<T>], event: &T) {
    for observer in observers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer(event))) {
            // Dropping the payload may panic as well.
            std::mem::forget(panic);
            tracing::error!(target: TARGET, "an observer of the rate limiter panicked; the decision stands");
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("allowed", &self.allowed.len())
            .field("denied", &self.denied.len())
            .field("failed", &self.failed.len())
            .field("overflowed", &self.overflowed.len())
            .finish_non_exhaustive()
    }
}
