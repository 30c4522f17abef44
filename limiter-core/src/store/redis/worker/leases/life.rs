//! The life of a lease: it is put in force, renewed and ended, and its unused permits are returned.
//!
//! Its time starts before the script call is sent that requests it. The mirror takes all of its permits before calls may
//! use it. When it is over, the mirror keeps what was used, and the rest goes back to the store.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::timeout_at;

use super::demand::{Granted, Occasion};
use super::held::{LeaseRequest, ReleasedCalls};
use super::{Keeper, Renewal};
use crate::Error;
use crate::clock::{Moment, ceil_micros};
use crate::limit::Limit;
use crate::local::SideEffects;
use crate::local::counter_hash::CounterHash;
use crate::local::leases::LeaseId;
use crate::local::leases::NewLease;
use crate::request::{OwnedRequest, Request};
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::naming::RedisKeys;
use crate::store::redis::script::command::{BatchEntry, Command, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::reply::{BatchEntryReply, LeaseReply};
use crate::store::redis::worker::call::Deadline;

/// A script call that may lease permits.
#[derive(Clone, Copy)]
pub(super) struct LeaseCall<'a> {
    pub(super) request: Request<'a>,
    pub(super) keys: &'a RedisKeys,
    /// The most permits that it leases.
    pub(super) wanted: u32,
    /// The time before it was sent.
    pub(super) sent_at: Moment,
}

impl Keeper {
    /// Puts the lease of a reply in force, if there is one.
    pub(super) fn put_in_force(self: &Rc<Self>, call: LeaseCall<'_>, entry: &BatchEntryReply, lease: LeaseReply) {
        let LeaseCall { request, keys, wanted, sent_at } = call;
        let Self { local, demands, .. } = &**self;
        let LeaseReply { permits, id: Some(id) } = lease else { return };
        // A server that leases more than was wanted is broken.
        if !(1..=wanted).contains(&permits) {
            return;
        }
        let (received_at, slot) = (self.now(), keys.first_slot());
        // The mirror has all permits before a call can use one.
        let Some(mirror_stamp) = local.mirror_lease(&Request { cost: permits, ..request }, slot) else {
            return self.return_permits(&request, keys, ReturnedPermits { permits, id });
        };
        let ends_at = sent_at.after(usable_time(request.limit));
        let mut lease = NewLease {
            key: request.key.clone(),
            limit: request.limit,
            slot,
            id,
            permits,
            ends_at,
            remaining: entry.remaining,
            reset_at: received_at.after(entry.reset_after),
            store_reset_at: entry.stamp.saturating_add(ceil_micros(entry.reset_after)),
            mirror_stamp,
            renew_below: 0,
        };
        // The lease that it replaces is ended first, so that its rate is known.
        let replaced = local.end_lease_of(request.key, request.limit);
        let unused = replaced.as_ref().map_or(0, |ended| ended.unused);
        lease.renew_below = demands.granted(&request, Granted { permits, unused, sent_at, received_at });
        if let Some(ended) = replaced {
            self.keep_unused(&request, keys, ReturnedPermits { permits: ended.unused, id: ended.id });
        }
        match local.install_lease(lease) {
            Ok(Some(ended)) => {
                self.keep_unused(&request, keys, ReturnedPermits { permits: ended.unused, id: ended.id });
            }
            Ok(None) => {}
            Err(_) => return self.return_permits(&request, keys, ReturnedPermits { permits, id }),
        }
        let end = Rc::clone(self).end_lease(OwnedRequest::from(&request), keys.clone(), id, ends_at);
        spawn_local(end);
    }

    /// Returns the effects of a script call about leases, after its lease was put in force.
    pub(super) fn effects(
        &self,
        request: &Request<'_>,
        terms: LeaseTerms,
        entry: &BatchEntryReply,
        lease: LeaseReply,
    ) -> SideEffects {
        let is_used_up = entry.remaining == 0 && lease.id.is_some() && !self.demands.has_kept(request);
        SideEffects { newest: lease.id, has_returned: terms.returned.is_some(), is_used_up }
    }

    /// Keeps the unused permits of a lease that another one has replaced for the next script call.
    fn keep_unused(self: &Rc<Self>, request: &Request<'_>, keys: &RedisKeys, returned: ReturnedPermits) {
        if returned.permits > 0
            && let Err(returned) = self.demands.keep(request, returned)
        {
            self.return_permits(request, keys, returned);
        }
    }

    /// Ends a lease when its time has passed, and returns what is left of it.
    async fn end_lease(self: Rc<Self>, request: OwnedRequest, keys: RedisKeys, id: LeaseId, ends_at: Moment) {
        let Self { local, demands, .. } = &*self;
        self.sleep_until(ends_at).await;
        let request = request.as_request();
        let returned = match local.end_lease(&request, id) {
            Some(ended) => {
                if ended.unused > 0 {
                    demands.was_too_large(&request, ended.used);
                }
                Some(ReturnedPermits { permits: ended.unused, id }).filter(|returned| returned.permits > 0)
            }
            None => demands.take_kept(&request, id),
        };
        if let Some(returned) = returned {
            self.return_permits(&request, &keys, returned);
        }
    }

    /// Returns unused permits by a script call of its own. If that fails, they count until their stamp expires.
    fn return_permits(self: &Rc<Self>, request: &Request<'_>, keys: &RedisKeys, returned: ReturnedPermits) {
        if self.topology.connected_owner_of(keys.first_slot()).is_none() {
            return;
        }
        let (keeper, request, keys) = (Rc::clone(self), OwnedRequest::from(request), keys.clone());
        spawn_local(async move {
            let deadline = Deadline::after(keeper.deadline);
            let _ = keeper.return_by_call(&request.as_request(), &keys, returned, deadline).await;
        });
    }

    /// Returns unused permits of a lease to the store.
    pub(crate) async fn return_by_call(
        &self,
        request: &Request<'_>,
        keys: &RedisKeys,
        returned: ReturnedPermits,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let terms = LeaseTerms { returned: Some(returned), ..LeaseTerms::default() };
        self.exchange(request, keys, terms, deadline).await?;
        self.local.invalidate_denials(&[*request]);
        Ok(())
    }

    /// Renews a lease by a script call of its own. Returns the calls that have waited for it.
    pub(crate) async fn renew(self: &Rc<Self>, renewal: Renewal, deadline: Deadline) -> ReleasedCalls {
        let Renewal { request, keys } = renewal;
        let request = request.as_request();
        let is_connected = self.topology.connected_owner_of(keys.first_slot()).is_some();
        if !is_connected || self.local.is_used_up(&request) {
            return ReleasedCalls::default();
        }
        let (terms, lease_request) =
            self.begin(&request, CounterHash::of(&request), keys.first_slot(), Occasion::Renewal);
        if terms.is_empty() {
            // It is being renewed.
            return ReleasedCalls::default();
        }
        let (sent_at, sent) = (self.now(), self.local.begin_renewal(request));
        let exchanged = self.exchange(&request, &keys, terms, deadline).await;
        if let Ok((entry, lease)) = exchanged {
            let call = LeaseCall { request, keys: &keys, wanted: terms.wanted, sent_at };
            self.put_in_force(call, &entry, lease);
            let effects = self.effects(&request, terms, &entry, lease);
            sent.settle(&entry, effects);
        }
        lease_request.map(LeaseRequest::close).unwrap_or_default()
    }

    /// Makes one script call about the leases of a counter, which takes no permits for a call.
    async fn exchange(
        &self,
        request: &Request<'_>,
        keys: &RedisKeys,
        terms: LeaseTerms,
        deadline: Deadline,
    ) -> Result<(BatchEntryReply, LeaseReply), Error> {
        let entry = BatchEntry { limit: request.limit, cost: 0, calls: 1, is_charge: false, lease: Some(terms) };
        let command = Command::batch(keys.as_slice().to_vec(), vec![entry]);
        let (attempt, mut no_permit) = (Attempt::default(), None);
        let call = self.topology.call(&command, &attempt, &mut no_permit);
        let Ok(reply) = timeout_at(deadline.instant, call).await else {
            attempt.report_timeout();
            return Err(deadline.no_reply_error());
        };
        let mut reply = command.decode_batch(reply?)?;
        match (reply.entries.pop(), reply.leases.pop()) {
            (Some(entry), Some(lease)) => Ok((entry.inspect_err(|error| attempt.report_error(error))?, lease)),
            _ => Err(deadline.no_reply_error()),
        }
    }
}

/// The time for which a lease is used, from the sending of its script call: the time by which the store stamps ahead,
/// less a millisecond for rounding and a thousandth for clocks of different speed.
pub(crate) fn usable_time(limit: Limit) -> Duration {
    let lease_time = limit.lease_time();
    lease_time.saturating_sub(Duration::from_millis(1) + lease_time / 1000)
}
