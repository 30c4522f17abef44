//! One random schedule: the calls of its processes, the messages on their way, and what they find.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_testkit::Random;

use super::event::{Actor, BatchCall, BatchCompletion, Event};
use super::judge::{Grant, Judge};
use super::ledger::{Ledger, permit_stamp};
use super::process::{PermitSource, SimulatedProcess, SimulatedReceipt};
use super::scenario::{Counts, LeaseRules, Scenario};
use super::server::SimulatedServer;
use crate::request::{CountedReply, RefundInfo, Request, StoreReply};
use crate::store::redis::script::command::{Action, BatchEntry, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::fuzz::loaded_scripts::LoadedScripts;
use crate::store::redis::script::fuzz::pick;
use crate::store::redis::script::reply::{BatchEntryReply, LeaseReply};
use crate::store::redis::worker::lease_demand::Occasion;
use crate::{Key, Limit};

/// The number of script calls of a schedule for each key.
const SCRIPT_CALLS: u64 = 80;

pub(super) struct Simulation<'a> {
    server: SimulatedServer<'a>,
    random: Random,
    scenario: Scenario,
    keys: Vec<Key>,
    /// The limits of calls, which have different `max` or are the same.
    limits: [Limit; 2],
    /// Microseconds.
    window: u64,
    /// The time of a lease in microseconds.
    lease_time: u64,
    /// The events to come, by their instants and then in the order in which they were added.
    events: BTreeMap<(u64, u64), Event>,
    added_events: u64,
    /// Real time in microseconds.
    now: u64,
    /// The millisecond of the server's clock from which on the log of each key that was reset begins.
    reset_at_millis: [u64; 2],
    processes: Vec<SimulatedProcess>,
    /// One call in so many takes all permits that are left. If most calls do, there are never enough for a lease.
    fill_odds: u64,
    /// The judge of each key.
    judges: Vec<Judge>,
    /// The ledger of each key.
    ledgers: Vec<Ledger>,
    counts: Counts,
}

impl<'a> Simulation<'a> {
    /// Runs the schedule that follows from a seed.
    pub(super) fn run(scripts: &'a LoadedScripts, scenario: Scenario, seed: u64) -> Counts {
        let mut random = Random::new(seed);
        // The shortest window has a lease time of 4 ms, and the longest one of 31 ms.
        let window = [300, 640, 2_000][pick(&mut random, 3)];
        let max = small(random.between(40, 400));
        let other_max = if scenario.has_max_changes { small(random.between(40, 400)) } else { max };
        let limits = [max, other_max].map(|max| Limit::new(max, Duration::from_millis(window)).expect("a limit"));
        let number_of_processes = random.between(1, 4);
        let new_process = |_| {
            let limit = limits[pick(&mut random, 2)];
            SimulatedProcess::new(scenario, limit, &mut random)
        };
        let processes: Vec<_> = (0..number_of_processes).map(new_process).collect();
        let fill_odds = random.between(2, 10);
        let keys: Vec<_> =
            ["a", "b"][..if scenario.has_second_key { 2 } else { 1 }].iter().map(|key| Key::new(*key)).collect();
        let mut simulation = Self {
            server: SimulatedServer::new(scripts, window * 1_000),
            random,
            scenario,
            judges: keys.iter().map(|_| Judge::new(window * 1_000)).collect(),
            ledgers: keys.iter().map(|_| Ledger::new(window, (window / 64).min(50))).collect(),
            keys,
            limits,
            window: window * 1_000,
            lease_time: micros(limits[0].lease_time()),
            events: BTreeMap::new(),
            added_events: 0,
            now: 0,
            reset_at_millis: [0; 2],
            processes,
            fill_odds,
            counts: Counts::default(),
        };
        for process in 0..simulation.processes.len() {
            simulation.add(0, Event::Act(process));
        }
        simulation.serve_events();
        let is_over = simulation.judges.iter().any(|judge| judge.is_over);
        let is_full = simulation.judges.iter().any(|judge| judge.is_full);
        Counts {
            schedules: 1,
            over: u64::from(is_over),
            full: u64::from(is_full && !is_over),
            script_calls: simulation.server.calls,
            ..simulation.counts
        }
    }

    fn serve_events(&mut self) {
        let script_calls = SCRIPT_CALLS * self.keys.len() as u64;
        while self.server.calls < script_calls
            && let Some(((at, _), event)) = self.events.pop_first()
        {
            self.now = at;
            if let Some(number) = event.process() {
                let process = &mut self.processes[number];
                if process.paused_until > at {
                    let wait = process.paused_until - at;
                    self.add(wait, event);
                    continue;
                }
                process.advance_to(at);
            }
            self.serve(event);
        }
    }

    fn serve(&mut self, event: Event) {
        match event {
            Event::Act(process) => {
                self.act(process);
                let longest = match self.random.below(20) {
                    0..=11 => 1_000,
                    12..=16 => self.lease_time,
                    _ => self.window * self.processes.len() as u64 / 2,
                };
                let wait = self.random.below(longest);
                self.add(wait, Event::Act(process));
            }
            Event::Fill(actor) => self.send_call(actor, 1, self.processes[actor.process].limit.max()),
            Event::Renew(actor) => self.send_call(actor, 0, 1),
            Event::Drain(actor) => while self.take(actor, 3) || self.take(actor, 1) {},
            Event::Batch(call) => self.run_batch(call),
            Event::Reply(actor, completion) => self.complete(actor, completion),
            Event::LeaseEnd(Actor { process, key }, limit, id) => {
                let request = Request { key: &self.keys[key], limit, cost: 0 };
                let returned = self.processes[process].end_lease(&request, id);
                self.return_permits(key, limit, returned);
            }
            Event::Refund { key, admission, permits, stamp, stamped_at, limit } => {
                if self.may_match_later_permits(key, admission, stamp) {
                    return;
                }
                let info = RefundInfo::from_store(stamp);
                let request = Request { key: &self.keys[key], limit, cost: permits };
                self.server.decide(self.now, key, &Action::Refund(Box::new(info)), request);
                self.judges[key].refund(admission, permits);
                if self.scenario.has_ledger {
                    let now = self.server.micros().div_ceil(1_000);
                    self.ledgers[key].take_back(stamped_at, permits, now);
                    self.compare_with_ledger(key, limit);
                }
                self.add_fill_soon(key);
            }
            Event::Reset(Actor { process, key }) => {
                let request = Request { key: &self.keys[key], limit: self.processes[process].limit, cost: 0 };
                self.server.decide(self.now, key, &Action::Reset, request);
                self.judges[key].reset();
                self.ledgers[key].reset(self.server.micros() / 1_000);
                self.reset_at_millis[key] = self.server.micros().div_ceil(1_000);
                self.counts.resets += 1;
                self.add_fill_soon(key);
                if self.scenario.has_steps && self.random.below(2) == 0 {
                    let wait = self.random.below(self.lease_time * 2);
                    self.add(wait, Event::Step);
                }
            }
            Event::Step => self.step_back(),
        }
    }

    fn act(&mut self, process: usize) {
        let actor = Actor { process, key: self.pick_key() };
        match self.random.below(100) {
            0..=39 => {
                let max = u64::from(self.processes[process].limit.max());
                let most_calls = [4, max / 16, max / 4][pick(&mut self.random, 3)].max(1);
                let (cost, calls) = (self.random.between(1, 3), self.random.between(1, most_calls));
                self.send_call(actor, small(cost), small(calls));
            }
            40..=49 => self.send_call(actor, 0, 1),
            50..=74 => {
                for _ in 0..self.random.between(1, 8) {
                    let cost = small(self.random.between(1, 3));
                    self.take(actor, cost);
                }
            }
            75..=87 => self.refund(process),
            88..=90 => {
                let longest = [self.lease_time * 2, self.window / 2][pick(&mut self.random, 2)];
                self.processes[process].paused_until = self.now + self.random.below(longest);
            }
            91 => {
                // The server failed: its leases are over, and nothing is given back.
                let _ = self.processes[process].leases.end_slots(&[0..=u16::MAX]);
            }
            92..=95 if self.scenario.has_resets => {
                let limit = self.processes[process].limit;
                let request = Request { key: &self.keys[actor.key], limit, cost: 0 };
                let returned = self.processes[process].begin_reset(&request);
                let returned_after = if returned.is_some() { self.delay() } else { 0 };
                let wait = returned_after + self.delay();
                if let Some(returned) = returned {
                    self.add_return(returned_after, actor.key, limit, returned, None);
                }
                self.add(wait, Event::Reset(actor));
            }
            96 if self.scenario.has_steps => self.step_back(),
            97..=98 if self.scenario.has_max_changes => {
                self.processes[process].limit = self.limits[pick(&mut self.random, 2)];
                self.counts.max_changes += 1;
                // Calls do not find the lease of the earlier limit.
                self.send_call(actor, 0, 1);
            }
            _ => {}
        }
    }

    fn pick_key(&mut self) -> usize {
        pick(&mut self.random, self.keys.len())
    }

    /// Sends identical calls, usually with a request for a lease.
    fn send_call(&mut self, Actor { process: number, key }: Actor, cost: u32, calls: u32) {
        let process = &mut self.processes[number];
        let limit = process.limit;
        let request = Request { key: &self.keys[key], limit, cost };
        let wants_lease = cost == 0 || self.random.below(4) > 0;
        let wanted = if wants_lease { small(self.random.between(8, limit.max().into())) } else { 0 };
        let occasion = if cost == 0 { Occasion::Renewal } else { Occasion::Calls(calls) };
        let (wanted, returned) = process.begin_call(key, &request, occasion, wanted);
        let sender = Some((number, process.now()));
        let has_leases = wanted > 0 || returned.is_some() || self.scenario.has_ledger || self.random.below(2) == 0;
        let lease = has_leases.then(|| self.terms(wanted, returned));
        let entry = BatchEntry { limit, cost, calls, lease };
        let wait = self.delay();
        self.add(wait, Event::Batch(BatchCall { key, sender, entry, refunded: None }));
    }

    fn terms(&mut self, wanted: u32, returned: Option<ReturnedPermits>) -> LeaseTerms {
        LeaseTerms { wanted, new_mark: small(self.random.any() >> 32), returned }
    }

    /// Runs a batch on the server, and sends the reply, which may be lost.
    fn run_batch(&mut self, BatchCall { key, sender, entry, refunded }: BatchCall) {
        let (reply, lease) = self.server.batch(self.now, key, entry);
        let BatchEntry { limit, cost, .. } = entry;
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

    fn compare_with_ledger(&mut self, key: usize, limit: Limit) {
        let bound = self.ledgers[key].bound(self.server.micros() / 1_000);
        self.counts.beyond_ledger += u64::from(self.server.used(key, limit) > bound);
    }

    fn complete(&mut self, actor: Actor, completion: BatchCompletion) {
        let BatchCompletion { limit, sent_at, lease, grant, receipt } = completion;
        let request = Request { key: &self.keys[actor.key], limit, cost: 0 };
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

    /// Takes permits of the lease, at the instant at which its end is compared with the clock.
    fn take(&mut self, actor: Actor, cost: u32) -> bool {
        let Actor { process, key } = actor;
        let limit = self.processes[process].limit;
        let request = Request { key: &self.keys[key], limit, cost };
        let Some((permits, grant)) = self.processes[process].take(key, &request) else { return false };
        let admission = self.admit(key, cost, grant);
        self.counts.leased += u64::from(cost);
        let taken_from = PermitSource::Lease(permits.id);
        let receipt = SimulatedReceipt {
            key,
            admission,
            permits: cost,
            limit,
            stamped_at: permit_stamp(0, Some(permits.id)),
            taken_from,
        };
        self.processes[process].receipts.push(receipt);
        if permits.needs_renewal {
            self.add(0, Event::Renew(actor));
        }
        true
    }

    fn admit(&mut self, key: usize, permits: u32, grant: Grant) -> usize {
        self.counts.admitted += u64::from(permits);
        self.judges[key].admit(self.now, permits, grant)
    }

    /// Refunds a part of the permits of one receipt.
    fn refund(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if process.receipts.is_empty() {
            return;
        }
        let index = pick(&mut self.random, process.receipts.len());
        let SimulatedReceipt { key, admission, permits, limit, stamped_at, taken_from } =
            process.receipts.swap_remove(index);
        let permits = small(self.random.between(1, permits.into()));
        self.counts.refunds += 1;
        match taken_from {
            PermitSource::Lease(id) => {
                let request = Request { key: &self.keys[key], limit, cost: permits };
                if process.leases.put_back(&request, id) {
                    self.judges[key].refund(admission, permits);
                } else {
                    let wait = self.return_delay();
                    self.add_return(wait, key, limit, ReturnedPermits { permits, id }, Some((admission, permits)));
                }
            }
            PermitSource::StoreAtEndOf(id) => {
                let wait = self.return_delay();
                self.add_return(wait, key, limit, ReturnedPermits { permits, id }, Some((admission, permits)));
            }
            PermitSource::Store(stamp) => {
                let wait = self.return_delay();
                self.add(wait, Event::Refund { key, admission, permits, stamp, stamped_at, limit });
            }
        }
    }

    /// Returns unused permits in a call of their own, which may be lost.
    fn return_permits(&mut self, key: usize, limit: Limit, returned: Option<ReturnedPermits>) {
        if let Some(returned) = returned
            && self.random.below(25) > 0
        {
            let wait = self.return_delay();
            self.add_return(wait, key, limit, returned, None);
        }
    }

    fn add_return(
        &mut self,
        wait: u64,
        key: usize,
        limit: Limit,
        returned: ReturnedPermits,
        refunded: Option<(usize, u32)>,
    ) {
        let lease = Some(self.terms(0, Some(returned)));
        let entry = BatchEntry { limit, cost: 0, calls: 1, lease };
        self.add(wait, Event::Batch(BatchCall { key, sender: None, entry, refunded }));
    }

    /// Adds calls at about the instant at which permits of a stamp expire: permits that a window still has are taken
    /// again then, if the log counts them too briefly.
    fn add_calls_at_expiry(&mut self, key: usize, stamp_millis: u64) {
        if self.random.below(2) == 0 {
            return;
        }
        let until_expiry = (stamp_millis * 1_000 + self.window).saturating_sub(self.server.micros());
        let wait = match self.random.below(4) {
            0 | 3 => until_expiry.saturating_sub(self.random.below(self.lease_time)),
            1 => until_expiry + self.random.below(self.lease_time),
            _ => until_expiry + self.random.below(2_000),
        };
        let actor = Actor { process: pick(&mut self.random, self.processes.len()), key };
        if self.random.below(2) == 0 {
            self.add(wait, Event::Renew(actor));
        }
        if self.random.below(self.fill_odds) == 0 {
            let wait = wait + self.random.below(1_000);
            self.add(wait, Event::Fill(actor));
        }
    }

    /// Adds a call for all permits that are left, after an event that may have freed too many.
    fn add_fill_soon(&mut self, key: usize) {
        if self.random.below(self.fill_odds) < 2 {
            let (process, wait) = (pick(&mut self.random, self.processes.len()), self.random.below(1_000));
            self.add(wait, Event::Fill(Actor { process, key }));
        }
    }

    /// Returns whether a receipt of the store from before a reset may match permits that were taken after it: it has no
    /// mark, as `docs/algorithms.md` states.
    fn may_match_later_permits(&self, key: usize, admission: usize, stamp: u64) -> bool {
        let is_before_new_log = !self.scenario.has_steps && stamp.div_ceil(1_000) < self.reset_at_millis[key];
        self.judges[key].has_forgotten(admission) && !is_before_new_log
    }

    fn step_back(&mut self) {
        let longest = [self.lease_time * 2, self.window][pick(&mut self.random, 2)];
        let by = self.server.step_back(self.now, longest, &mut self.random);
        if self.random.below(2) == 0 {
            // The new stamps are then those of permits from before the step.
            let wait = by + self.random.below(self.lease_time);
            let actor = Actor { process: pick(&mut self.random, self.processes.len()), key: self.pick_key() };
            self.add(wait, Event::Fill(actor));
        }
        self.counts.steps += 1;
    }

    /// Returns the time of a message on its way.
    fn delay(&mut self) -> u64 {
        let longest = match self.random.below(30) {
            0 => self.window / 2,
            1..=4 => self.lease_time * 4,
            5..=12 => self.lease_time,
            _ => 400,
        };
        self.random.below(longest)
    }

    /// Returns the time until unused permits reach the store. They are sent late if the process stands still.
    fn return_delay(&mut self) -> u64 {
        if self.random.below(2) == 0 { self.random.below(self.window) } else { self.delay() }
    }

    fn add(&mut self, wait: u64, event: Event) {
        self.events.insert((self.now + wait, self.added_events), event);
        self.added_events += 1;
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a short time")
}
