//! The script calls of a schedule: how they are sent, run and completed.

use super::super::event::{Actor, BatchCall, BatchCompletion, Event};
use super::super::judge::Grant;
use super::super::ledger::permit_stamp;
use super::super::process::{PermitSource, SimulatedReceipt};
use super::super::scenario::LeaseRules;
use super::{Simulation, micros, small};
use crate::Limit;
use crate::request::{CountedReply, Request, StoreReply};
use crate::store::redis::script::command::{BatchEntry, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::fuzz::pick;
use crate::store::redis::script::reply::{BatchEntryReply, LeaseReply};
use crate::store::redis::worker::leases::demand::Occasion;

impl Simulation<'_> {
    /// Sends identical calls, usually with a request for a lease.
    pub(super) fn send_call(&mut self, Actor { process: number, key }: Actor, cost: u32, calls: u32) {
        let process = &mut self.processes[number];
        let limit = process.limit;
        let request = Request::new(&self.keys[key], limit, cost);
        let wants_lease = cost == 0 || self.random.below(4) > 0;
        let wanted = if wants_lease { small(self.random.between(8, limit.max().into())) } else { 0 };
        let occasion = if cost == 0 { Occasion::Renewal } else { Occasion::Calls { calls, cost } };
        let (wanted, returned) = process.begin_call(key, &request, occasion, wanted);
        let sender = Some((number, process.now()));
        let has_leases = wanted > 0 || returned.is_some() || self.scenario.has_ledger || self.random.below(2) == 0;
        let lease = has_leases.then(|| self.terms(wanted, returned));
        let entry = BatchEntry { limit, cost, calls, is_charge: false, lease };
        let wait = self.delay();
        self.add(wait, Event::Batch(BatchCall { key, sender, entry, refunded: None }));
    }

    /// Sends a charge, which has no lease.
    pub(super) fn send_charge(&mut self, Actor { process, key }: Actor) {
        let limit = self.processes[process].limit;
        let most = [6, limit.max() / 4, limit.max() * 2][pick(&mut self.random, 3)];
        let cost = small(self.random.between(1, most.into()));
        let entry = BatchEntry { limit, cost, calls: 1, is_charge: true, lease: None };
        let wait = self.delay();
        self.add(wait, Event::Batch(BatchCall { key, sender: None, entry, refunded: None }));
    }

    pub(super) fn terms(&mut self, wanted: u32, returned: Option<ReturnedPermits>) -> LeaseTerms {
        LeaseTerms { wanted, new_mark: small(self.random.any() >> 32), returned }
    }

    /// Runs a batch on the server, and sends the reply, which may be lost.
    pub(super) fn run_batch(&mut self, BatchCall { key, sender, entry, refunded }: BatchCall) {
        let (reply, lease) = self.server.batch(self.now, key, entry);
        let BatchEntry { limit, cost, .. } = entry;
        if entry.is_charge {
            self.judges[key].charge(self.now, cost, self.server.calls);
            self.counts.charges += 1;
            return self.add_calls_at_expiry(key, reply.stamp.div_ceil(1_000));
        }
        let grant = Grant { number: self.server.calls, max: limit.max() };
        self.counts.returns += u64::from(entry.lease.is_some_and(|terms| terms.returned.is_some()));
        self.counts.leases += u64::from(lease.permits > 0);
        if let Some((admission, permits)) = refunded {
            self.judges[key].refund(admission, permits);
        }
        if self.scenario.has_ledger {
            self.record(key, entry, reply, lease);
        }
        let permits = reply.granted * cost;
        let of_store = StoreReply { stamp: reply.stamp, ..StoreReply::ALLOWED };
        let newest = lease.id.filter(|_| self.scenario.rules != LeaseRules::ReceiptAtCall);
        let refund_info = CountedReply::from_store(of_store, 0).stamped_at(newest).refund_info();
        let stamped_at = permit_stamp(reply.stamp.div_ceil(1_000), lease.id);
        let receipt = (permits > 0).then(|| SimulatedReceipt {
            key,
            admission: self.admit(key, permits, grant),
            permits,
            limit,
            stamped_at,
            taken_from: refund_info.lease().map_or(PermitSource::Store(reply.stamp), PermitSource::StoreAtEndOf),
        });
        if permits + lease.permits > 0 {
            self.add_calls_at_expiry(key, stamped_at.0);
        } else if entry.lease.is_some_and(|terms| terms.returned.is_some()) {
            self.add_fill_soon(key);
        }
        if let Some((process, sent_at)) = sender {
            let is_lost = self.random.below(25) == 0;
            // The process of a lost reply finds that there is none, and may request a lease again.
            let lease = if is_lost { LeaseReply { permits: 0, id: None } } else { lease };
            let receipt = receipt.filter(|_| !is_lost);
            let wait = self.delay();
            let completion = BatchCompletion { limit, sent_at, lease, grant, receipt };
            self.add(wait, Event::Reply(Actor { process, key }, completion));
        }
    }

    /// Records the permits that a script call has granted and returned.
    fn record(&mut self, key: usize, entry: BatchEntry, reply: BatchEntryReply, lease: LeaseReply) {
        let (ledger, now) = (&mut self.ledgers[key], self.server.micros().div_ceil(1_000));
        if let Some(ReturnedPermits { permits, id }) = entry.lease.and_then(|terms| terms.returned) {
            ledger.take_back(permit_stamp(now, Some(id)), permits, now);
        }
        ledger.grant(permit_stamp(now, lease.id), reply.granted * entry.cost + lease.permits);
        self.compare_with_ledger(key, entry.limit);
    }

    pub(super) fn compare_with_ledger(&mut self, key: usize, limit: Limit) {
        let bound = self.ledgers[key].bound(self.server.micros() / 1_000);
        self.counts.beyond_ledger += u64::from(self.server.used(key, limit) > bound);
    }

    pub(super) fn complete(&mut self, actor: Actor, completion: BatchCompletion) {
        let BatchCompletion { limit, sent_at, lease, grant, receipt } = completion;
        let request = Request::new(&self.keys[actor.key], limit, 0);
        let process = &mut self.processes[actor.process];
        process.receipts.extend(receipt);
        let outcome = process.complete_lease(actor.key, &request, sent_at, lease, grant);
        self.counts.refused += u64::from(outcome.is_refused);
        for returned in outcome.returned {
            self.return_permits(actor.key, limit, Some(returned));
        }
        let Some((id, wait)) = outcome.installed else { return };
        let wait = micros(wait);
        if self.random.below(3) > 0 {
            let before_end = self.random.below(300);
            self.add(wait.saturating_sub(before_end), Event::Drain(actor));
        }
        let late_by = self.random.below(500);
        self.add(wait + late_by, Event::LeaseEnd(actor, limit, id));
    }
}
