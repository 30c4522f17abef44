//! One process of a schedule, with the worker's rules of leases.

use std::time::Duration;

use limiter_testkit::Random;

use super::judge::Grant;
use super::ledger::PermitStamp;
use super::scenario::{LeaseRules, Scenario};
use crate::Limit;
use crate::clock::{Clock, ManualClock, Moment};
use crate::local::leases::LeaseId;
use crate::local::leases::{Leases, LocalGrant, NewLease};
use crate::request::Request;
use crate::store::redis::script::command::ReturnedPermits;
use crate::store::redis::script::reply::LeaseReply;
use crate::store::redis::worker::leases::demand::{Granted, LeaseDemands, Occasion};
use crate::store::redis::worker::leases::life::usable_time;

/// Permits that a process may refund.
pub(super) struct SimulatedReceipt {
    pub(super) key: usize,
    /// The judge's number.
    pub(super) admission: usize,
    pub(super) permits: u32,
    pub(super) limit: Limit,
    pub(super) stamped_at: PermitStamp,
    pub(super) taken_from: PermitSource,
}

#[derive(Clone, Copy)]
pub(super) enum PermitSource {
    Lease(LeaseId),
    /// The store, at this time of its clock in microseconds.
    Store(u64),
    /// The store, which stamped the permits at the end of this lease.
    StoreAtEndOf(LeaseId),
}

/// The result of a reply about a lease.
#[derive(Default)]
pub(super) struct LeaseOutcome {
    /// The lease that is in force, and the time until its end.
    pub(super) installed: Option<(LeaseId, Duration)>,
    /// True if the place of the table is in use by another key.
    pub(super) is_refused: bool,
    /// The permits that go back in calls of their own.
    pub(super) returned: Vec<ReturnedPermits>,
}

/// A process. Its clock has an origin of its own, and is a little faster or slower than real time.
pub(super) struct SimulatedProcess {
    clock: ManualClock,
    /// Nanoseconds of its clock in a millisecond.
    nanos_per_milli: u64,
    /// Nanoseconds by which its clock has moved.
    moved_nanos: u64,
    rules: LeaseRules,
    has_demands: bool,
    pub(super) leases: Leases,
    pub(super) demands: LeaseDemands,
    /// The limit of its calls.
    pub(super) limit: Limit,
    /// The lease of each key that was installed last, and its grant.
    latest: [Option<(NewLease, Grant)>; 2],
    pub(super) receipts: Vec<SimulatedReceipt>,
    /// The real time until which it stands still.
    pub(super) paused_until: u64,
}

impl SimulatedProcess {
    pub(super) fn new(scenario: Scenario, limit: Limit, random: &mut Random) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_micros(random.below(1_000_000_000)));
        Self {
            leases: Leases::with_places(1, Clock::Manual(clock.clone())),
            clock,
            nanos_per_milli: random.between(999_100, 1_000_900),
            moved_nanos: 0,
            rules: scenario.rules,
            has_demands: scenario.has_demands,
            demands: LeaseDemands::new(),
            limit,
            latest: [None, None],
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

    /// Begins a script call about a key. Returns the permits that it requests, and the unused ones that it returns. The
    /// former are `wanted` unless they follow the demand.
    pub(super) fn begin_call(
        &mut self,
        key: usize,
        request: &Request<'_>,
        occasion: Occasion,
        wanted: u32,
    ) -> (u32, Option<ReturnedPermits>) {
        let may_lease = || self.has_demands && self.leases.is_available(request);
        let (demanded, returned) = self.demands.begin(self.demands.counter(request), occasion, self.now(), may_lease);
        let wanted = if self.has_demands { demanded } else { wanted };
        (wanted, returned.or_else(|| self.return_early(key, request)))
    }

    /// Returns permits of a lease in force, if the rules are broken that way. They can still be taken.
    fn return_early(&mut self, key: usize, request: &Request<'_>) -> Option<ReturnedPermits> {
        if self.rules != LeaseRules::EarlyReturn {
            return None;
        }
        let (lease, grant) = self.latest[key].take()?;
        let ended = self.leases.end(&Request { limit: lease.limit, ..*request }, lease.id)?;
        let returned = ReturnedPermits { permits: ended.unused, id: ended.id };
        if ended.unused == 0 || !self.install(key, NewLease { permits: ended.unused, ..lease }, grant) {
            return None;
        }
        Some(returned)
    }

    /// Puts the lease of a reply in force, as `put_in_force` does, and closes the request for it.
    pub(super) fn complete_lease(
        &mut self,
        key: usize,
        request: &Request<'_>,
        sent_at: Moment,
        reply: LeaseReply,
        grant: Grant,
    ) -> LeaseOutcome {
        self.demands.completed(self.demands.counter(request));
        let mut outcome = LeaseOutcome::default();
        let (Some(id), permits @ 1..) = (reply.id, reply.permits) else { return outcome };
        let received_at = self.now();
        let begins_at = if self.rules == LeaseRules::EndFromReply { received_at } else { sent_at };
        let ends_at = begins_at.after(usable_time(request.limit));
        let replaced = self.leases.end_counter(request.key, request.limit);
        let unused = replaced.as_ref().map_or(0, |ended| ended.unused);
        let renew_below = self.demands.granted(request, Granted { permits, unused, sent_at, received_at });
        if let Some(ended) = replaced
            && ended.unused > 0
        {
            let returned = ReturnedPermits { permits: ended.unused, id: ended.id };
            outcome.returned.extend(self.demands.keep(request, returned).err());
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
            store_reset_at: 0,
            mirror_stamp: 0,
            renew_below: if self.has_demands { renew_below } else { 0 },
        };
        if self.install(key, lease, grant) {
            outcome.installed = Some((id, received_at.until(ends_at)));
        } else {
            outcome.is_refused = true;
            outcome.returned.push(ReturnedPermits { permits, id });
        }
        outcome
    }

    /// Installs a lease. Returns false if the place is in use by another key.
    fn install(&mut self, key: usize, lease: NewLease, grant: Grant) -> bool {
        let installed = self.leases.install(lease.clone());
        if let Ok(replaced) = &installed {
            assert!(replaced.is_none(), "the earlier lease was ended");
            self.latest[key] = Some((lease, grant));
        }
        installed.is_ok()
    }

    /// Takes permits from the lease of a key, and returns its grant.
    pub(super) fn take(&self, key: usize, request: &Request<'_>) -> Option<(LocalGrant, Grant)> {
        let permits = self.leases.take(request, false)?;
        let (lease, grant) = self.latest[key].as_ref().expect("a lease of this key was installed");
        assert_eq!((permits.id, request.limit), (lease.id, lease.limit), "the permits are of its own lease");
        Some((permits, *grant))
    }

    /// Ends a lease whose time has passed. Returns the permits that go back in a call of their own.
    pub(super) fn end_lease(&mut self, request: &Request<'_>, id: LeaseId) -> Option<ReturnedPermits> {
        let Some(ended) = self.leases.end(request, id) else { return self.demands.take_kept(request, id) };
        if ended.unused > 0 {
            self.demands.was_too_large(request, ended.used);
        }
        Some(ReturnedPermits { permits: ended.unused, id }).filter(|returned| returned.permits > 0)
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
