//! One random schedule: its processes, their calls to the store, and the clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_testkit::Random;

use super::judge::Judge;
use super::process::{LeaseRules, PermitSource, SimulatedProcess, SimulatedReceipt};
use crate::clock::{Clock, Moment};
use crate::local::leases::LeasedPermits;
use crate::request::{LeaseId, RefundInfo, Request};
use crate::store::redis::script::command::{Action, BatchEntry, LeaseTerms, ReturnedPermits};
use crate::store::redis::script::fuzz::loaded_scripts::LoadedScripts;
use crate::store::redis::script::fuzz::pick;
use crate::store::redis::script::reply::LeaseReply;
use crate::{Key, Limit};

/// A kind of schedules.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub(super) rules: LeaseRules,
    pub(super) has_resets: bool,
    /// The server's clock steps back.
    pub(super) has_steps: bool,
}

/// The counts of one schedule, or of several.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) schedules: u64,
    /// Schedules with more permits in a window than the limit allows.
    pub(super) over: u64,
    /// Schedules with exactly as many.
    pub(super) full: u64,
    pub(super) script_calls: u64,
    pub(super) admitted: u64,
    /// Admitted permits that came from a lease.
    pub(super) leased: u64,
    pub(super) leases: u64,
    pub(super) refunds: u64,
    /// Script calls with unused permits.
    pub(super) returns: u64,
    pub(super) resets: u64,
    pub(super) steps: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.over += other.over;
        self.full += other.full;
        self.script_calls += other.script_calls;
        self.admitted += other.admitted;
        self.leased += other.leased;
        self.leases += other.leases;
        self.refunds += other.refunds;
        self.returns += other.returns;
        self.resets += other.resets;
        self.steps += other.steps;
    }
}

/// An event at an instant of real time. A number is that of the process that it concerns.
enum Event {
    /// Anything that a process does by itself, and later again.
    Act(usize),
    /// A call for all permits that are left.
    Fill(usize),
    /// A request for a lease alone.
    Renew(usize),
    /// Calls that take all permits of the lease.
    Drain(usize),
    Batch(BatchCall),
    Reply(usize, BatchCompletion),
    LeaseEnd(usize, LeaseId),
    Refund {
        admission: usize,
        permits: u32,
        stamp: u64,
    },
    Reset,
    Step,
}

/// A script call on its way to the store.
struct BatchCall {
    /// The process that gets the reply, with the time before it was sent.
    sender: Option<(usize, Moment)>,
    entry: BatchEntry,
    /// The admission and the permits that it refunds.
    refunded: Option<(usize, u32)>,
}

/// The reply to a script call on its way to the process.
struct BatchCompletion {
    sent_at: Moment,
    lease: LeaseReply,
    receipt: Option<SimulatedReceipt>,
}

impl Event {
    /// The process that has to run for it.
    fn process(&self) -> Option<usize> {
        match *self {
            Self::Act(process)
            | Self::Fill(process)
            | Self::Renew(process)
            | Self::Drain(process)
            | Self::Reply(process, _)
            | Self::LeaseEnd(process, _) => Some(process),
            Self::Batch(_) | Self::Refund { .. } | Self::Reset | Self::Step => None,
        }
    }
}

/// The number of script calls of a schedule.
const SCRIPT_CALLS: u64 = 80;

pub(super) struct Simulation<'a> {
    scripts: &'a LoadedScripts,
    random: Random,
    scenario: Scenario,
    key: Key,
    limit: Limit,
    /// Microseconds.
    window: u64,
    /// The time of a lease in microseconds.
    lease_time: u64,
    /// The events to come, by their instants and then in the order in which they were added.
    events: BTreeMap<(u64, u64), Event>,
    added_events: u64,
    /// Real time in microseconds.
    now: u64,
    /// The real time to which the server's clock was moved.
    server_moved_to: u64,
    /// The real time at which the server's clock shows its latest time again.
    caught_up_at: u64,
    /// The millisecond of the server's clock from which on a log that was reset begins.
    reset_at_millis: u64,
    processes: Vec<SimulatedProcess>,
    /// One call in so many takes all permits that are left. If most calls do, there are never enough for a lease.
    fill_odds: u64,
    judge: Judge,
    counts: Counts,
}

impl<'a> Simulation<'a> {
    /// Runs the schedule that follows from a seed.
    pub(super) fn run(scripts: &'a LoadedScripts, scenario: Scenario, seed: u64) -> Counts {
        let mut random = Random::new(seed);
        // The shortest window has a lease time of 4 ms, and the longest one of 31 ms.
        let window = [300, 640, 2_000][pick(&mut random, 3)];
        let max = small(random.between(40, 400));
        let limit = Limit::new(max, Duration::from_millis(window)).expect("a limit");
        let processes: Vec<_> =
            (0..random.between(1, 4)).map(|_| SimulatedProcess::new(scenario.rules, &mut random)).collect();
        let fill_odds = random.between(2, 10);
        let mut simulation = Self {
            scripts,
            random,
            scenario,
            key: Key::new("a"),
            limit,
            window: window * 1_000,
            lease_time: micros(limit.lease_time()),
            events: BTreeMap::new(),
            added_events: 0,
            now: 0,
            server_moved_to: 0,
            caught_up_at: 0,
            reset_at_millis: 0,
            processes,
            fill_odds,
            judge: Judge::new(window * 1_000),
            counts: Counts::default(),
        };
        scripts.delete_key();
        for process in 0..simulation.processes.len() {
            simulation.add(0, Event::Act(process));
        }
        simulation.serve_events();
        let most = simulation.judge.most_permits;
        Counts {
            schedules: 1,
            over: u64::from(most > u64::from(max)),
            full: u64::from(most == u64::from(max)),
            ..simulation.counts
        }
    }

    fn serve_events(&mut self) {
        while self.counts.script_calls < SCRIPT_CALLS
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
            Event::Fill(process) => self.send_call(process, 1, self.limit.max()),
            Event::Renew(process) => self.send_call(process, 0, 1),
            Event::Drain(process) => while self.take(process, 3) || self.take(process, 1) {},
            Event::Batch(call) => self.run_batch(call),
            Event::Reply(process, completion) => self.complete(process, completion),
            Event::LeaseEnd(process, id) => {
                let request = Request { key: &self.key, limit: self.limit, cost: 0 };
                let returned = self.processes[process].end_lease(&request, id);
                self.return_permits(returned);
            }
            Event::Refund { admission, permits, stamp } => {
                if self.may_match_later_permits(admission, stamp) {
                    return;
                }
                let info = RefundInfo::from_store(stamp);
                self.decide(&Action::Refund(Box::new(info)), permits);
                self.judge.refund(admission, permits);
                self.add_fill_soon();
            }
            Event::Reset => {
                self.decide(&Action::Reset, 0);
                self.judge.reset();
                self.reset_at_millis = self.server_micros().div_ceil(1_000);
                self.counts.resets += 1;
                self.add_fill_soon();
                if self.scenario.has_steps && self.random.below(2) == 0 {
                    let wait = self.random.below(self.lease_time * 2);
                    self.add(wait, Event::Step);
                }
            }
            Event::Step => self.step_back(),
        }
    }

    fn act(&mut self, process: usize) {
        match self.random.below(100) {
            0..=39 => {
                let max = u64::from(self.limit.max());
                let most_calls = [4, max / 16, max / 4][pick(&mut self.random, 3)].max(1);
                let (cost, calls) = (self.random.between(1, 3), self.random.between(1, most_calls));
                self.send_call(process, small(cost), small(calls));
            }
            40..=49 => self.send_call(process, 0, 1),
            50..=74 => {
                for _ in 0..self.random.between(1, 8) {
                    let cost = small(self.random.between(1, 3));
                    self.take(process, cost);
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
                let request = Request { key: &self.key, limit: self.limit, cost: 0 };
                let returned = self.processes[process].begin_reset(&request);
                let returned_after = if returned.is_some() { self.delay() } else { 0 };
                let wait = returned_after + self.delay();
                if let Some(returned) = returned {
                    self.add_return(returned_after, returned, None);
                }
                self.add(wait, Event::Reset);
            }
            96 if self.scenario.has_steps => self.step_back(),
            _ => {}
        }
    }

    /// Sends identical calls, usually with a request for a lease.
    fn send_call(&mut self, process: usize, cost: u32, calls: u32) {
        let request = Request { key: &self.key, limit: self.limit, cost };
        let returned = self.processes[process].permits_to_return(&request);
        let wants_lease = cost == 0 || self.random.below(4) > 0;
        let wanted = if wants_lease { small(self.random.between(8, self.limit.max().into())) } else { 0 };
        let has_leases = wants_lease || returned.is_some() || self.random.below(2) == 0;
        let lease = has_leases.then(|| self.terms(wanted, returned));
        let sender = Some((process, self.processes[process].now()));
        let entry = BatchEntry { limit: self.limit, cost, calls, lease };
        let wait = self.delay();
        self.add(wait, Event::Batch(BatchCall { sender, entry, refunded: None }));
    }

    fn terms(&mut self, wanted: u32, returned: Option<ReturnedPermits>) -> LeaseTerms {
        LeaseTerms { wanted, new_mark: small(self.random.any() >> 32), returned }
    }

    /// Runs a batch on the server, and sends the reply, which may be lost.
    fn run_batch(&mut self, BatchCall { sender, entry, refunded }: BatchCall) {
        self.move_server_clock();
        let (reply, lease) = self.scripts.batch(entry);
        self.counts.script_calls += 1;
        self.counts.returns += u64::from(entry.lease.is_some_and(|terms| terms.returned.is_some()));
        self.counts.leases += u64::from(lease.permits > 0);
        if let Some((admission, permits)) = refunded {
            self.judge.refund(admission, permits);
        }
        let permits = reply.granted * entry.cost;
        let receipt = (permits > 0).then(|| SimulatedReceipt {
            admission: self.admit(permits),
            permits,
            taken_from: PermitSource::Store(reply.stamp),
        });
        if permits + lease.permits > 0 {
            let stamp = lease.id.map_or(reply.stamp.div_ceil(1_000), |id| id.end);
            self.add_calls_at_expiry(stamp);
        } else if entry.lease.is_some_and(|terms| terms.returned.is_some()) {
            self.add_fill_soon();
        }
        if let Some((process, sent_at)) = sender
            && self.random.below(25) > 0
        {
            let wait = self.delay();
            self.add(wait, Event::Reply(process, BatchCompletion { sent_at, lease, receipt }));
        }
    }

    fn complete(&mut self, number: usize, BatchCompletion { sent_at, lease, receipt }: BatchCompletion) {
        let request = Request { key: &self.key, limit: self.limit, cost: 0 };
        let process = &mut self.processes[number];
        process.receipts.extend(receipt);
        let Some((id, wait, returned)) = process.complete_lease(&request, sent_at, lease) else { return };
        self.return_permits(returned);
        let wait = micros(wait);
        if self.random.below(3) > 0 {
            let before_end = self.random.below(300);
            self.add(wait.saturating_sub(before_end), Event::Drain(number));
        }
        let late_by = self.random.below(500);
        self.add(wait + late_by, Event::LeaseEnd(number, id));
    }

    /// Takes permits of the lease, at the instant at which its end is compared with the clock.
    fn take(&mut self, process: usize, cost: u32) -> bool {
        let request = Request { key: &self.key, limit: self.limit, cost };
        let Some(LeasedPermits { id, .. }) = self.processes[process].leases.take(&request, false) else { return false };
        let admission = self.admit(cost);
        self.counts.leased += u64::from(cost);
        let receipt = SimulatedReceipt { admission, permits: cost, taken_from: PermitSource::Lease(id) };
        self.processes[process].receipts.push(receipt);
        true
    }

    fn admit(&mut self, permits: u32) -> usize {
        self.counts.admitted += u64::from(permits);
        self.judge.admit(self.now, permits)
    }

    /// Refunds a part of the permits of one receipt.
    fn refund(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if process.receipts.is_empty() {
            return;
        }
        let index = pick(&mut self.random, process.receipts.len());
        let SimulatedReceipt { admission, permits, taken_from } = process.receipts.swap_remove(index);
        let permits = small(self.random.between(1, permits.into()));
        self.counts.refunds += 1;
        match taken_from {
            PermitSource::Lease(id) => {
                let request = Request { key: &self.key, limit: self.limit, cost: permits };
                if process.leases.put_back(&request, id) {
                    self.judge.refund(admission, permits);
                } else {
                    let wait = self.return_delay();
                    self.add_return(wait, ReturnedPermits { permits, id }, Some((admission, permits)));
                }
            }
            PermitSource::Store(stamp) => {
                let wait = self.return_delay();
                self.add(wait, Event::Refund { admission, permits, stamp });
            }
        }
    }

    /// Returns unused permits in a call of their own, which may be lost.
    fn return_permits(&mut self, returned: Option<ReturnedPermits>) {
        if let Some(returned) = returned
            && self.random.below(25) > 0
        {
            let wait = self.return_delay();
            self.add_return(wait, returned, None);
        }
    }

    fn add_return(&mut self, wait: u64, returned: ReturnedPermits, refunded: Option<(usize, u32)>) {
        let lease = Some(self.terms(0, Some(returned)));
        let entry = BatchEntry { limit: self.limit, cost: 0, calls: 1, lease };
        self.add(wait, Event::Batch(BatchCall { sender: None, entry, refunded }));
    }

    /// Adds calls at about the instant at which permits of a stamp expire: permits that a window still has are taken
    /// again then, if the log counts them too briefly.
    fn add_calls_at_expiry(&mut self, stamp_millis: u64) {
        if self.random.below(2) == 0 {
            return;
        }
        let until_expiry = (stamp_millis * 1_000 + self.window).saturating_sub(self.server_micros());
        let wait = match self.random.below(4) {
            0 | 3 => until_expiry.saturating_sub(self.random.below(self.lease_time)),
            1 => until_expiry + self.random.below(self.lease_time),
            _ => until_expiry + self.random.below(2_000),
        };
        let process = pick(&mut self.random, self.processes.len());
        if self.random.below(2) == 0 {
            self.add(wait, Event::Renew(process));
        }
        if self.random.below(self.fill_odds) == 0 {
            let wait = wait + self.random.below(1_000);
            self.add(wait, Event::Fill(process));
        }
    }

    /// Adds a call for all permits that are left, after an event that may have freed too many.
    fn add_fill_soon(&mut self) {
        if self.random.below(self.fill_odds) < 2 {
            let (process, wait) = (pick(&mut self.random, self.processes.len()), self.random.below(1_000));
            self.add(wait, Event::Fill(process));
        }
    }

    fn decide(&mut self, action: &Action, cost: u32) {
        self.move_server_clock();
        self.scripts.decide(action, Request { key: &self.key, limit: self.limit, cost });
        self.counts.script_calls += 1;
    }

    /// Returns whether a receipt of the store from before a reset may match permits that were taken after it: it has no
    /// mark, as `docs/algorithms.md` states.
    fn may_match_later_permits(&self, admission: usize, stamp: u64) -> bool {
        let is_before_new_log = !self.scenario.has_steps && stamp.div_ceil(1_000) < self.reset_at_millis;
        self.judge.has_forgotten(admission) && !is_before_new_log
    }

    fn server_micros(&self) -> u64 {
        Clock::Manual(self.scripts.clock.clone()).now().micros()
    }

    fn move_server_clock(&mut self) {
        self.scripts.clock.advance(Duration::from_micros(self.now - self.server_moved_to));
        self.server_moved_to = self.now;
    }

    /// Sets the server's clock back. It is never a window behind its latest time.
    fn step_back(&mut self) {
        self.move_server_clock();
        let behind = self.caught_up_at.saturating_sub(self.now);
        let longest = [self.lease_time * 2, self.window][pick(&mut self.random, 2)];
        let by = self.random.below(longest.min(self.window - behind));
        self.scripts.clock.rewind(Duration::from_micros(by));
        self.caught_up_at = self.caught_up_at.max(self.now) + by;
        if self.random.below(2) == 0 {
            // The new stamps are then those of permits from before the step.
            let wait = by + self.random.below(self.lease_time);
            let process = pick(&mut self.random, self.processes.len());
            self.add(wait, Event::Fill(process));
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
