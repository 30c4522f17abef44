//! One random schedule: the calls of its processes, the messages on their way, and what they find.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_testkit::Random;

use super::event::{Actor, Event};
use super::judge::{Grant, Judge};
use super::ledger::{Ledger, permit_stamp};
use super::process::{PermitSource, SimulatedProcess, SimulatedReceipt};
use super::scenario::{Counts, Scenario};
use super::server::SimulatedServer;
use crate::request::{RefundInfo, Request};
use crate::store::redis::script::action::Action;
use crate::store::redis::script::fuzz::loaded_scripts::LoadedScripts;
use crate::store::redis::script::fuzz::pick;
use crate::{Key, Limit};

mod batches;
mod returns;
mod risks;

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
        // Leases of a large limit that is nearly used up may have more than a quarter of what is left.
        let is_large = random.below(4) == 0;
        let mut new_max = || small(if is_large { random.between(1_024, 4_000) } else { random.between(40, 400) });
        let max = new_max();
        let other_max = if scenario.has_max_changes { new_max() } else { max };
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
                let request = Request::new(&self.keys[key], limit, 0);
                let returned = self.processes[process].end_lease(&request, id);
                self.return_permits(key, limit, returned);
            }
            Event::Refund { key, admission, permits, stamp, stamped_at, limit } => {
                if self.may_match_later_permits(key, admission, stamp) {
                    return;
                }
                let info = RefundInfo::from_store(stamp);
                let request = Request::new(&self.keys[key], limit, permits);
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
                let request = Request::new(&self.keys[key], self.processes[process].limit, 0);
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
        if self.scenario.has_charges && self.random.below(12) == 0 {
            return self.send_charge(actor);
        }
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
                let request = Request::new(&self.keys[actor.key], limit, 0);
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

    /// Takes permits of the lease, at the instant at which its end is compared with the clock.
    fn take(&mut self, actor: Actor, cost: u32) -> bool {
        let Actor { process, key } = actor;
        let limit = self.processes[process].limit;
        let request = Request::new(&self.keys[key], limit, cost);
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
