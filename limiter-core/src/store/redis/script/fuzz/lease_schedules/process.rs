//! One process of a schedule, with the worker's rules of leases.

use std::time::Duration;

use limiter_testkit::Random;

use crate::clock::{Clock, ManualClock, Moment};
use crate::local::leases::{Leases, NewLease};
use crate::request::{LeaseId, Request};
use crate::store::redis::script::command::ReturnedPermits;
use crate::store::redis::script::reply::LeaseReply;
use crate::store::redis::worker::lease_lifecycle::usable_time;

/// The rules by which the processes of a schedule use their leases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseRules {
    /// Those of `worker/lease_lifecycle.rs`.
    Worker,
    /// A reset leaves the process's own lease in force. That is no mistake: the store keeps those permits.
    LeaseOutlivesReset,
    /// The time of a lease begins with the reply.
    EndFromReply,
    /// Permits are given back while calls may still take them.
    EarlyReturn,
}

/// Permits that a process may refund.
pub(super) struct SimulatedReceipt {
    /// The judge's number.
    pub(super) admission: usize,
    pub(super) permits: u32,
    pub(super) taken_from: PermitSource,
}

#[derive(Clone, Copy)]
pub(super) enum PermitSource {
    Lease(LeaseId),
    /// The store, at this time of its clock in microseconds.
    Store(u64),
}

/// A process. Its clock has an origin of its own, and is a little faster or slower than real time.
pub(super) struct SimulatedProcess {
    clock: ManualClock,
    /// Nanoseconds of its clock in a millisecond.
    nanos_per_milli: u64,
    /// Nanoseconds by which its clock has moved.
    moved_nanos: u64,
    rules: LeaseRules,
    pub(super) leases: Leases,
    /// The lease that was installed last.
    latest: Option<NewLease>,
    /// Permits that go back with the next call.
    kept: Option<ReturnedPermits>,
    pub(super) receipts: Vec<SimulatedReceipt>,
    /// The real time until which it stands still.
    pub(super) paused_until: u64,
}

impl SimulatedProcess {
    pub(super) fn new(rules: LeaseRules, random: &mut Random) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_micros(random.below(1_000_000_000)));
        Self {
            leases: Leases::new(Clock::Manual(clock.clone())),
            clock,
            nanos_per_milli: random.between(999_100, 1_000_900),
            moved_nanos: 0,
            rules,
            latest: None,
            kept: None,
            receipts: Vec::new(),
            paused_until: 0,
        }
    }

    /// Moves its clock on to an instant of real time.
    pub(super) fn advance_to(&mut self, real_micros: u64) {
        let nanos = real_micros * self.nanos_per_milli / 1_000;
        self.clock.advance(Duration::from_nanos(nanos - self.moved_nanos));
        self.moved_nanos = nanos;
    }

    pub(super) fn now(&self) -> Moment {
        Clock::Manual(self.clock.clone()).now_with_suspend()
    }

    /// Returns the unused permits that the next call carries.
    pub(super) fn permits_to_return(&mut self, request: &Request<'_>) -> Option<ReturnedPermits> {
        if self.rules == LeaseRules::EarlyReturn
            && self.kept.is_none()
            && let Some(lease) = self.latest.take()
            && let Some(ended) = self.leases.end(request, lease.id)
            && ended.unused > 0
        {
            let returned = ReturnedPermits { permits: ended.unused, id: ended.id };
            let _ = self.install(NewLease { permits: ended.unused, ..lease });
            return Some(returned);
        }
        self.kept.take()
    }

    /// Puts the lease of a reply in force, as `complete_lease` does. Returns the time until its end, and the permits
    /// that go back in a call of their own.
    pub(super) fn complete_lease(
        &mut self,
        request: &Request<'_>,
        sent_at: Moment,
        reply: LeaseReply,
    ) -> Option<(LeaseId, Duration, Option<ReturnedPermits>)> {
        let (Some(id), permits @ 1..) = (reply.id, reply.permits) else { return None };
        let begins_at = if self.rules == LeaseRules::EndFromReply { self.now() } else { sent_at };
        let ends_at = begins_at.after(usable_time(request.limit));
        let mut returned = None;
        if let Some(ended) = self.leases.end_counter(request.key, request.limit)
            && ended.unused > 0
        {
            let unused = Some(ReturnedPermits { permits: ended.unused, id: ended.id });
            if self.kept.is_none() {
                self.kept = unused;
            } else {
                returned = unused;
            }
        }
        let lease = NewLease {
            key: request.key.clone(),
            limit: request.limit,
            slot: 0,
            id,
            permits,
            ends_at,
            remaining: 0,
            reset_at: ends_at,
            mirror_stamp: 0,
            renew_below: 0,
        };
        Some((id, self.install(lease), returned))
    }

    /// Installs a lease. Returns the time until its end.
    fn install(&mut self, lease: NewLease) -> Duration {
        self.latest = Some(lease.clone());
        let wait = self.now().until(lease.ends_at);
        let replaced = self.leases.install(lease);
        assert!(matches!(replaced, Ok(None)), "the earlier lease was ended, and no call holds its place");
        wait
    }

    /// Ends a lease whose time has passed. Returns the permits that go back in a call of their own.
    pub(super) fn end_lease(&mut self, request: &Request<'_>, id: LeaseId) -> Option<ReturnedPermits> {
        match self.leases.end(request, id) {
            Some(ended) => Some(ReturnedPermits { permits: ended.unused, id }).filter(|returned| returned.permits > 0),
            None => self.kept.take_if(|kept| kept.id == id),
        }
    }

    /// Ends its lease before a reset. Returns the permits that go back before it.
    pub(super) fn begin_reset(&mut self, request: &Request<'_>) -> Option<ReturnedPermits> {
        if self.rules == LeaseRules::LeaseOutlivesReset {
            return None;
        }
        let ended = self.leases.end_counter(request.key, request.limit)?;
        Some(ReturnedPermits { permits: ended.unused, id: ended.id }).filter(|returned| returned.permits > 0)
    }
}
