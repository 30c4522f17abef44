//! Callbacks that watch decisions. They cannot change them, and their panics stay here.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::overflow::{Overflows, Report};
use crate::{Allowed, Decision, Denied, Error, Overflow, TARGET};

type Observer<T> = Box<dyn Fn(&T) + Send + Sync>;

/// Who is told of what; each in the order of registration, on the caller's own thread.
#[derive(Default)]
pub(crate) struct Observers {
    allowed: Vec<Observer<Allowed>>,
    denied: Vec<Observer<Denied>>,
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

    pub(crate) fn on_failed(&mut self, observer: impl Fn(&Error) + Send + Sync + 'static) {
        self.failed.push(Box::new(observer));
    }

    pub(crate) fn on_overflow(&mut self, observer: impl Fn(&Overflow) + Send + Sync + 'static) {
        self.overflowed.push(Box::new(observer));
    }

    /// From here on, decisions are also when the places for keys are looked after.
    pub(crate) fn look_after(&mut self, overflows: Arc<Overflows>) {
        self.overflows = Some(overflows);
    }

    /// Whether anybody is to be told of such decisions.
    #[inline]
    pub(crate) fn watch(&self, allowed: bool) -> bool {
        if allowed { !self.allowed.is_empty() } else { !self.denied.is_empty() }
    }

    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        if self.watch(decision.is_allowed()) {
            self.tell(decision);
        }
        self.overflowing();
    }

    #[cold]
    fn tell(&self, decision: &Decision) {
        match decision {
            Decision::Allowed(allowed) => tell(&self.allowed, allowed),
            Decision::Denied(denied) => self.denied(denied),
        }
    }

    /// Tells of an overflow, if that is due.
    #[inline]
    pub(crate) fn overflowing(&self) {
        if let Some(report) = self.overflows.as_ref().and_then(|overflows| overflows.take_due_report()) {
            self.overflowed(&report);
        }
    }

    pub(crate) fn denied(&self, denied: &Denied) {
        tell(&self.denied, denied);
    }

    pub(crate) fn failed(&self, error: &Error) {
        tell(&self.failed, error);
    }

    #[cold]
    fn overflowed(&self, Report { overflow, to_log }: &Report) {
        tell(&self.overflowed, overflow);
        if *to_log {
            tracing::warn!(
                target: TARGET,
                max_keys = overflow.max_keys(),
                source = ?overflow.source(),
                "every place for rate limit keys in this process is taken: new keys share counts and may be denied early"
            );
        }
    }
}

fn tell<T>(observers: &[Observer<T>], event: &T) {
    for observer in observers {
        if catch_unwind(AssertUnwindSafe(|| observer(event))).is_err() {
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
