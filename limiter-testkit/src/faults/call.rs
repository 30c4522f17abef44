//! One call, as its caller saw it.

use std::time::Duration;

use crate::history::Admission;

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The store, just now or by a denial that still holds.
    Store,
    /// The stand-in: alone, or (a denial) because it has a say while the store comes back.
    Standby,
    /// Nobody: there was an error, or a policy.
    Nobody,
}

/// One call. Instants are since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Read before the limiter was asked.
    pub start: Duration,
    /// Read after its answer.
    pub end: Duration,
    /// Whether it was let in.
    pub admitted: bool,
    /// Who decided.
    pub by: By,
    /// Which of the subject's keys it was for.
    pub key: usize,
}

impl Call {
    pub(super) fn took(&self) -> Duration {
        self.end - self.start
    }

    /// Let in by the stand-in, which nobody else has agreed to.
    pub(super) fn is_admitted_by_stand_in(&self) -> bool {
        self.admitted && self.by != By::Store
    }

    pub(super) fn is_admitted_by_store(&self) -> bool {
        self.admitted && self.by == By::Store
    }

    pub(super) fn admission(&self) -> Option<Admission> {
        self.admitted.then_some(Admission { start: self.start, end: self.end, cost: 1 })
    }
}
