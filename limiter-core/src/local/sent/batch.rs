//! Calls of one counter each that are sent together.
//!
//! Identical calls are one entry of a batch. They share one version of the denial cache, and the mirror records those that
//! are granted together.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use std::{mem, ptr};

use super::{Sent, SentCalls, SentDirect};
use crate::Error;
use crate::local::counter_hash::CounterHash;
use crate::local::denial_cache::CacheVersion;
use crate::local::standby::Standby;
use crate::local::{Local, SideEffects};
use crate::request::{
    BatchEntryReply, CountedReply, DecisionReply, Request, SlottedRequests, StoreFailure, StoreReply,
};

/// A call about one counter that waits for its reply.
pub(crate) trait WaitingCall {
    fn request(&self) -> Request<'_>;

    /// The hash of its counter.
    fn counter(&self) -> CounterHash;

    fn slot(&self) -> u16;

    /// Returns whether its permits are counted whether they fit or not.
    fn is_charge(&self) -> bool;

    /// Permits that the standby limiter has reserved for it.
    fn reservation(&self) -> &Cell<Option<StoreReply>>;

    fn has_reply(&self) -> bool;

    /// Replies to the caller, unless it has a reply already or was dropped.
    fn reply(&self, result: Result<CountedReply, StoreFailure>);
}

/// A call for which the standby limiter has reserved the permits, if it was consulted then. Only such a call is sent in a
/// batch.
#[derive(Debug)]
pub(crate) struct Reserved<C> {
    /// The entry of the batch that decides it.
    pub(crate) entry: usize,
    call: Rc<C>,
}

impl<C> Deref for Reserved<C> {
    type Target = Rc<C>;

    fn deref(&self) -> &Rc<C> {
        &self.call
    }
}

/// The calls of each entry.
pub(crate) fn by_entry<C>(calls: &[Reserved<C>]) -> impl Iterator<Item = &[Reserved<C>]> {
    calls.chunk_by(|one, other| one.entry == other.entry)
}

/// The calls of a batch that was sent.
pub(crate) type SentBatch<'a, C> = Sent<&'a Local, BatchCalls<C>>;

/// The calls of a [`SentBatch`]. Each has its own reservation, which its caller gets with the failure.
#[derive(Debug)]
pub(crate) struct BatchCalls<C> {
    /// The calls in the order of their entries.
    calls: Vec<Reserved<C>>,
    /// The versions of the denial cache before the batch was sent, one for each entry.
    versions: Vec<Option<CacheVersion>>,
}

impl<C: WaitingCall> SentCalls for BatchCalls<C> {
    fn unanswered(&self) -> impl Iterator<Item = Request<'_>> {
        unanswered(&self.calls).map(|call| call.request())
    }

    fn give_back(&mut self, _: &Standby) {}
}

/// One entry of a batch that was sent.
pub(crate) type SentEntry<'a, C> = Sent<&'a Local, CallsOfEntry<'a, C>>;

/// The calls of a [`SentEntry`].
#[derive(Debug)]
pub(crate) struct CallsOfEntry<'a, C> {
    calls: &'a [Reserved<C>],
    version: Option<CacheVersion>,
}

impl<C: WaitingCall> SentCalls for CallsOfEntry<'_, C> {
    fn unanswered(&self) -> impl Iterator<Item = Request<'_>> {
        unanswered(self.calls).map(|call| call.request())
    }

    fn give_back(&mut self, _: &Standby) {}
}

/// The calls that have no reply.
fn unanswered<C: WaitingCall>(calls: &[Reserved<C>]) -> impl Iterator<Item = &C> + Clone {
    calls.iter().map(|call| &*call.call).filter(|call| !call.has_reply())
}

impl Local {
    /// Reserves the permits of a call, if the standby limiter is consulted. `None` if that denies the call, which gets the
    /// denial: the store need not be called.
    pub(crate) fn reserve<C: WaitingCall>(&self, call: Rc<C>) -> Option<Reserved<C>> {
        if call.is_charge() {
            return Some(Reserved { entry: 0, call });
        }
        let reserved = {
            let (requests, slots) = ([call.request()], [call.slot()]);
            self.standby.reserve(SlottedRequests { requests: &requests, slots: &slots }, Duration::ZERO)
        };
        match reserved {
            Ok(reservation) => {
                call.reservation().set(reservation);
                Some(Reserved { entry: 0, call })
            }
            Err(denial) => {
                call.reply(Ok(CountedReply::from_standby(denial)));
                None
            }
        }
    }

    /// Begins the calls of a batch, at the moment of sending. The order within an entry stays.
    pub(crate) fn begin_batch<C: WaitingCall>(&self, mut calls: Vec<Reserved<C>>) -> SentBatch<'_, C> {
        calls.sort_by_key(|call| call.entry);
        let versions = by_entry(&calls).map(|calls| self.denials.version_of(calls[0].counter())).collect();
        Sent::new(self, BatchCalls { calls, versions })
    }

    /// Fails calls that wait for a reply. All failures are recorded before the first reply.
    pub(crate) fn fail_calls<'c, C: WaitingCall + 'c>(
        &self,
        calls: impl Iterator<Item = &'c C> + Clone,
        error: impl Fn(&C) -> Error,
    ) {
        self.fail(calls.clone().map(C::request));
        for call in calls {
            let reservation = call.reservation().get().map(DecisionReply::from);
            call.reply(Err(StoreFailure { error: error(call), reservation }));
        }
    }
}

impl SentDirect {
    /// Makes it a batch of one call, which the worker completes. `None`, and a failed call, if it was begun in another
    /// state than the worker's.
    pub(crate) fn take_over<C: WaitingCall>(mut self, local: &Local, call: Rc<C>) -> Option<SentBatch<'_, C>> {
        if !ptr::eq(&*self.local, local) {
            return None;
        }
        self.is_open = false;
        let calls = vec![Reserved { entry: 0, call }];
        Some(Sent::new(local, BatchCalls { calls, versions: vec![self.calls.version] }))
    }
}

impl<C: WaitingCall> SentBatch<'_, C> {
    /// The calls, in the order of their entries.
    pub(crate) fn calls(&self) -> &[Reserved<C>] {
        &self.calls.calls
    }

    /// Settles or fails each entry, in their order.
    pub(crate) fn settle_all(mut self, mut settle: impl FnMut(SentEntry<'_, C>)) {
        let BatchCalls { calls, versions } = &self.calls;
        for (calls, version) in by_entry(calls).zip(versions) {
            settle(Sent::new(self.local, CallsOfEntry { calls, version: *version }));
        }
        self.is_open = false;
    }

    /// Fails all calls.
    pub(crate) fn fail(mut self, error: impl Fn(&C) -> Error) {
        self.local.fail_calls(unanswered(&self.calls.calls), error);
        self.is_open = false;
    }

    /// Returns the calls after the server refused the batch. None of it has been applied, so none has failed.
    pub(crate) fn into_refused(mut self) -> Vec<Reserved<C>> {
        self.is_open = false;
        mem::take(&mut self.calls.calls)
    }
}

impl<C: WaitingCall> SentEntry<'_, C> {
    /// The index of the entry.
    pub(crate) fn index(&self) -> usize {
        self.calls.calls[0].entry
    }

    /// Settles the calls by the store's reply, in their order.
    pub(crate) fn settle(mut self, reply: &BatchEntryReply, effects: SideEffects) {
        let &CallsOfEntry { calls, version } = &self.calls;
        if let Some(charge) = reply.charge() {
            for call in unanswered(calls) {
                let reply = DecisionReply::of_charges(vec![charge], reply.stamp);
                call.reply(Ok(self.local.settle_charge(&[call.request()], reply)));
            }
            // Also after a timeout: the store has counted it.
            self.local.denials.invalidate(&[calls[0].request()]);
            self.is_open = false;
            return;
        }
        let (request, slot) = (calls[0].request(), calls[0].slot());
        self.local.standby.follow_blocks(
            &[request],
            &reply.reply_for_call(if reply.is_blocked { reply.granted } else { 0 }, request.cost),
        );
        let granted = calls.len().min(usize::try_from(reply.granted).unwrap_or(usize::MAX));
        let mirror_stamp = self.local.mirror_together(&request, slot, &calls[..granted], reply.reset_after);
        let denied = if granted < calls.len() { Some(request) } else { effects.next_denied(&request) };
        let has_changed = granted > 0 || effects.has_returned;
        self.local.update_denials(&request, version, has_changed, denied, reply, effects);
        for (index, call) in (0..).zip(calls).filter(|(_, call)| !call.has_reply()) {
            let reply = reply.reply_for_call(index, request.cost);
            let mirrored = match mirror_stamp {
                Some(stamp) if reply.allowed => Ok(stamp),
                _ => {
                    let (requests, slots) = ([call.request()], [call.slot()]);
                    let requests = SlottedRequests { requests: &requests, slots: &slots };
                    self.local.standby.reconcile(requests, Duration::ZERO, call.reservation().get().as_ref(), &reply)
                }
            };
            call.reply(Ok(CountedReply::reconciled(reply, mirrored).stamped_at(effects.newest)));
        }
        self.is_open = false;
    }

    /// Fails the calls.
    pub(crate) fn fail(mut self, error: &Error) {
        self.local.fail_calls(unanswered(self.calls.calls), |_| error.clone());
        self.is_open = false;
    }
}

impl Local {
    /// Records the admissions of identical calls in the mirror at once. Returns their stamp; `None` if each call has to
    /// be recorded by itself, because the standby limiter is consulted.
    fn mirror_together<C: WaitingCall>(
        &self,
        request: &Request<'_>,
        slot: u16,
        granted: &[Reserved<C>],
        reset_after: Duration,
    ) -> Option<u64> {
        let (calls, has_reserved) = unanswered(granted)
            .fold((0, false), |(calls, any), call| (calls + 1, any || call.reservation().get().is_some()));
        if granted.is_empty() || has_reserved {
            return None;
        }
        self.standby.reconcile_batch(&request.times(calls), slot, reset_after)
    }

    /// Updates the denial cache by the reply about a counter. `denied` is the request that the reply denies.
    pub(in crate::local) fn update_denials(
        &self,
        request: &Request<'_>,
        version: Option<CacheVersion>,
        has_changed: bool,
        denied: Option<Request<'_>>,
        reply: &BatchEntryReply,
        effects: SideEffects,
    ) {
        let denial = denied.map(|denied| reply.reply_for_call(reply.granted, denied.cost));
        let longest = effects.longest_denial(request.limit);
        self.denials.update(&denied.unwrap_or(*request), version, has_changed, denial.as_ref(), longest);
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
pub(super) mod tests;
