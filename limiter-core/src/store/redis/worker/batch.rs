//! Calls that are put to a server together.
//!
//! Those of one kind, with the same count, limit and cost, are one entry: they are granted one after the other, as many as
//! fit. So a key that everybody wants costs the server one decision for all who wait for it.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout_at};

use crate::local::standby::Precheck;
use crate::request::CountedReply;
use crate::request::{Request, StoreReply};
use crate::store::redis::connection::managed::ManagedConnection;
use crate::store::redis::connection::script_call::ScriptCall;
use crate::store::redis::script::{BatchEntry, BatchEntryReply, KeyNames, Script};
use crate::store::redis::worker::Worker;
use crate::store::redis::worker::batch_queue::BatchQueue;
use crate::store::redis::worker::multi_slot::all;
use crate::store::redis::worker::pending_call::PendingCall;
use crate::sync::Seed;
use crate::{Algorithm, Error};

/// Entries of one slot, and whose they are.
struct Batch {
    slot: u16,
    names: KeyNames,
    entries: Vec<BatchEntry>,
    /// With the places of their entries, in the order in which they came.
    calls: Vec<BatchedCall>,
    /// The first call of each kind, by the hash of what it asks.
    kinds: HashMap<u64, usize, Seed>,
}

/// A call, with the place of its entry.
type BatchedCall = (usize, Rc<PendingCall>);

/// One of the groups that may be under way to a server; when it is given up, the next may go. That is when the server has
/// answered all of it, or it is under way to another server instead.
pub(crate) struct InFlightPermit {
    driver: Rc<Worker>,
    link: Rc<ManagedConnection>,
    calls: usize,
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.link.lane().arrive(self.calls);
        self.driver.depart(&self.link);
    }
}

/// Entries that go at a time: the server serves nobody else meanwhile.
const MOST_ENTRIES: usize = 128;

impl Worker {
    /// Sends what may go to this server now.
    pub(crate) fn depart(self: &Rc<Self>, link: &Rc<ManagedConnection>) {
        while let Some(calls) = link.lane().depart() {
            // At once: what finds no room is back in the queue before the next group is taken from it.
            let groups = self.board(link.lane(), calls);
            let calls = groups.iter().map(|group| group.calls.len()).sum();
            link.lane().board(calls);
            let seat = Rc::new(InFlightPermit { driver: Rc::clone(self), link: Rc::clone(link), calls });
            spawn_local(Rc::clone(self).carry(seat, groups));
        }
    }

    async fn carry(self: Rc<Self>, seat: Rc<InFlightPermit>, groups: Vec<Batch>) {
        let link = Rc::clone(&seat.link);
        let carry = |group| self.exchange(link.lane(), group, Some(Rc::clone(&seat)));
        let mut ways: Vec<_> = groups.into_iter().map(carry).collect();
        // From here on each has its own part of it.
        drop(seat);
        match (ways.pop(), ways.is_empty()) {
            (None, _) => {}
            (Some(way), true) => way.await,
            (Some(way), false) => drop(all(ways.into_iter().chain([way])).await),
        }
    }

    /// Those that are to be asked, by their slots.
    fn board(&self, lane: &BatchQueue, calls: Vec<Rc<PendingCall>>) -> Vec<Batch> {
        let mut groups: Vec<Batch> = Vec::new();
        let mut calls = calls.into_iter();
        let (mut entries, now) = (0, Instant::now());
        while entries < MOST_ENTRIES
            && let Some(call) = calls.next()
        {
            // Nobody waits for it, so nothing is asked, and nothing has failed.
            if !call.is_wanted() {
                continue;
            }
            if now >= call.until.instant {
                self.late(&call);
                continue;
            }
            let requests = [call.request()];
            match self.standby().reserve(&requests, Duration::ZERO) {
                Precheck::Skip => {}
                Precheck::Reserved(answer) => call.reservation.set(Some(answer)),
                Precheck::Denied(answer) => {
                    call.answer(Ok(CountedReply::from_standby(answer)));
                    continue;
                }
            }
            let slot = self.nodes().slot(&requests[0]);
            let place = groups.iter().position(|group| group.slot == slot).unwrap_or_else(|| {
                groups.push(Batch::new(slot));
                groups.len() - 1
            });
            entries += groups[place].add(call, self.script());
        }
        lane.put_back(calls.collect());
        groups.iter_mut().for_each(Batch::sort);
        groups
    }

    async fn exchange(&self, lane: &BatchQueue, group: Batch, seat: Option<Rc<InFlightPermit>>) {
        let Batch { slot, names, mut entries, calls, .. } = group;
        for (entry, calls) in entries.iter_mut().zip(by_entry(&calls)) {
            entry.version = self.denied().version(&calls[0].1.request());
        }
        let all = || calls.iter().map(|(_, call)| call);
        let Some(latest) = all().map(|call| call.until.instant).max() else { return };
        let command = self.script().group(names, &entries);
        let exchange = Rc::new(ScriptCall::new(self.terms(), self.nodes()).taking(seat));
        all().for_each(|call| call.sent(&exchange));
        lane.left(&exchange);
        let reply = timeout_at(latest, exchange.call(&command, slot)).await;
        lane.came_back(&exchange);
        if matches!(reply, Ok(Ok(_))) && lane.is_waited_for() {
            // The server has time: the next group goes before this one is handed out.
            exchange.leave();
            yield_now().await;
        }
        match reply.map(|reply| reply.and_then(|reply| command.read_group(reply))) {
            // Each has been told, when its own time was over, or is now.
            Err(_) => all().for_each(|call| self.late(call)),
            Ok(Ok(grants)) => {
                for ((entry, grant), calls) in entries.iter().zip(grants).zip(by_entry(&calls)) {
                    match grant {
                        Ok(grant) => self.hand_out(&grant, entry, calls),
                        Err(error) => {
                            exchange.failed_in_part(&error);
                            self.failed(calls, &error);
                        }
                    }
                }
            }
            Ok(Err(_)) if exchange.is_torn() => {
                exchange.leave();
                self.apart(lane, slot, command.names(), entries, &calls).await;
            }
            Ok(Err(error)) => self.failed(&calls, &error),
        }
        exchange.leave();
    }

    /// Each entry by itself: nothing of them has been applied.
    async fn apart(
        &self,
        lane: &BatchQueue,
        slot: u16,
        names: &KeyNames,
        entries: Vec<BatchEntry>,
        calls: &[BatchedCall],
    ) {
        let alone = |((name, entry), calls): ((&str, BatchEntry), &[BatchedCall])| {
            let calls = calls.iter().map(|(_, call)| (0, Rc::clone(call))).collect();
            Batch { names: KeyNames::from_iter([name]), entries: vec![entry], calls, ..Batch::new(slot) }
        };
        let groups = names.iter().zip(entries).zip(by_entry(calls)).map(alone);
        all(groups.map(|group| self.exchange(lane, group, None))).await;
    }

    /// Tells the calls of one entry what became of them.
    fn hand_out(&self, grant: &BatchEntryReply, entry: &BatchEntry, calls: &[BatchedCall]) {
        let Some((_, first)) = calls.first() else { return };
        let (request, standby) = (first.request(), self.standby());
        let granted = calls.len().min(usize::try_from(grant.granted).unwrap_or(usize::MAX));
        let waiting = calls[..granted].iter().filter(|(_, call)| !call.is_answered());
        let is_reserved = waiting.clone().any(|(_, call)| call.reservation.get().is_some());
        let together = match granted {
            1.. if !is_reserved => standby.reconcile_batch(&request.times(waiting.count())),
            _ => None,
        };
        let denial = (granted < calls.len()).then(|| grant.to(grant.granted, entry.cost));
        self.denied().update(&request, entry.version, granted > 0, denial.as_ref());
        for (place, (_, call)) in (0..).zip(calls).filter(|(_, (_, call))| !call.is_answered()) {
            let answer = grant.to(place, entry.cost);
            let mirror_stamp = match together {
                Some(stamp) if answer.allowed => Ok(stamp),
                _ => standby.reconcile(&[call.request()], Duration::ZERO, call.reservation.get().as_ref(), &answer),
            };
            call.answer(Ok(match mirror_stamp {
                Ok(mirror_stamp) => CountedReply::from_store(answer, mirror_stamp),
                Err(denial) => CountedReply::from_standby(denial),
            }));
        }
    }

    fn failed(&self, calls: &[BatchedCall], error: &Error) {
        let failed = || calls.iter().map(|(_, call)| call).filter(|call| !call.is_answered());
        self.standby().calls_failed(failed().map(|call| call.request()));
        failed().for_each(|call| call.fail(error.clone()));
    }

    fn late(&self, call: &PendingCall) {
        if !call.is_answered() {
            self.standby().call_failed(&[call.request()]);
            call.report_silence(&mut Weak::new());
            call.fail(self.deadlines().late(call.until));
        }
    }
}

/// The calls of each entry.
fn by_entry(calls: &[BatchedCall]) -> impl Iterator<Item = &[BatchedCall]> {
    calls.chunk_by(|(one, _), (other, _)| one == other)
}

impl Batch {
    fn new(slot: u16) -> Self {
        Self { slot, names: KeyNames::default(), entries: Vec::new(), calls: Vec::new(), kinds: HashMap::default() }
    }

    /// Gives how many entries it has more by this call.
    fn add(&mut self, call: Rc<PendingCall>, script: &Script) -> usize {
        let request = call.request();
        if let Some(entry) = self.like(&request) {
            self.entries[entry].calls += 1;
            self.calls.push((entry, call));
            return 0;
        }
        script.name(&request, &mut self.names);
        self.calls.push((self.entries.len(), Rc::clone(&call)));
        self.entries.push(BatchEntry { limit: request.limit, cost: request.cost, calls: 1, version: None });
        1
    }

    /// The entry of those who ask the same.
    fn like(&mut self, request: &Request<'_>) -> Option<usize> {
        // A queue that nobody waits in: what is free for one is not free for the next.
        if request.limit.algorithm() == Algorithm::LeakyBucket {
            return None;
        }
        let hash = self.kinds.hasher().hash_one(request);
        let (entry, first) = self.calls.get(*self.kinds.entry(hash).or_insert(self.calls.len()))?;
        (first.request() == *request).then_some(*entry)
    }

    /// Brings the calls of each entry together, in the order in which they came.
    fn sort(&mut self) {
        self.calls.sort_by_key(|(entry, _)| *entry);
    }
}

impl BatchEntryReply {
    /// The answer to one of the calls.
    pub(crate) fn to(&self, place: u32, cost: u32) -> StoreReply {
        let Self { granted, remaining, retry_after, reset_after, stamp } = *self;
        let behind = granted.saturating_sub(place + 1);
        let (allowed, retry_after) = if place < granted { (true, Some(Duration::ZERO)) } else { (false, retry_after) };
        let remaining = remaining.saturating_add(behind.saturating_mul(cost));
        StoreReply { allowed, request_index: 0, remaining, retry_after, reset_after, stamp, delay: Duration::ZERO }
    }
}
