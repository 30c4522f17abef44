//! One call, as its caller saw it.

use std::time::Duration;

use limiter_testkit::history::Admission;

/// The decider of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, or a cached denial of the store.
    Store,
    /// A lease: permits that the store has granted ahead.
    Lease,
    /// The standby limiter: alone, or by a denial while it is consulted beside the store.
    Standby,
    /// No counter: the call failed, or a policy decided.
    NoCounter,
}

/// One call. Instants are since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The start of the call.
    pub start: Duration,
    /// The end of the call.
    pub end: Duration,
    /// True if the call was admitted.
    pub admitted: bool,
    /// The decider of the call.
    pub decided_by: DecidedBy,
    /// The index of the call's key among the workload's keys.
    pub key: usize,
}

impl Call {
    pub(super) fn duration(&self) -> Duration {
        self.end - self.start
    }

    /// Returns true if the store has decided the call, maybe ahead by a lease.
    pub(super) fn is_decided_by_store(&self) -> bool {
        matches!(self.decided_by, DecidedBy::Store | DecidedBy::Lease)
    }

    /// Returns true if the call was admitted without the store.
    pub(super) fn is_admitted_without_store(&self) -> bool {
        self.admitted && !self.is_decided_by_store()
    }

    pub(super) fn is_admitted_by_store(&self) -> bool {
        self.admitted && self.is_decided_by_store()
    }

    pub(super) fn admission(&self) -> Option<Admission> {
        self.admitted.then_some(Admission { start: self.start, end: self.end, cost: 1 })
    }
}
