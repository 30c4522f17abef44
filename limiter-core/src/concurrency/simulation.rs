//! Random schedules of processes that share slots: the code of a process, the model of the script, and a network,
//! clocks and processes that fail. An outside judge sees starts and ends of calls alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use limiter_testkit::Random;

use super::grant::SlotGrant;
use super::key_slots::{KeySlots, Outcomes, SlotOutcome, SlotStart};
use super::message::{MessageState, SlotMessage, SlotProcessId, SlotReply};
use super::slot_queue::SlotClaim;
use crate::clock::Moment;
use crate::store::redis::StoredSlots;

mod judge;
mod schedules;

use judge::SlotJudge;

const MS: u64 = 1000;
/// The slot time of all schedules, in microseconds.
const SLOT_TIME: u64 = 1_000_000;
/// The time after which a message without a reply has failed.
const TIMEOUT: u64 = 100 * MS;
/// The time in which all calls end, after the last one has begun.
const QUIET_TIME: u64 = 30 * SLOT_TIME;
/// The time in which a call gets all slots, if no other call runs.
const TAKE_TIME: u64 = SLOT_TIME;
/// The time after a failure until the next message.
const RETRY: Duration = Duration::from_millis(100);

/// The faults of a schedule, and the use that its processes make of the slots.
#[derive(Clone, Debug)]
struct SlotScenario {
    max: u16,
    /// The number of processes.
    processes: usize,
    has_notices: bool,
    /// The mean time of a call, and between two calls of a process.
    hold: u64,
    arrivals: u64,
    /// The share of calls that wait, and of calls that take several slots, in percent.
    waiting_percent: u64,
    large_percent: u64,
    /// The share of messages and replies that are lost, in percent.
    lost_percent: u64,
    /// The share of messages and replies that are late by up to 2.5 slot times, in percent.
    late_percent: u64,
    /// The longest pause of a process.
    longest_pause: u64,
    faults: u64,
    /// The clock of the server may step back.
    steps_back: bool,
    /// The processes lower the limit at some time.
    lowers_max: bool,
    length: u64,
}

#[derive(Debug)]
enum SlotEvent {
    Arrive(usize),
    End {
        process: usize,
        epoch: u32,
        call: usize,
    },
    GiveUp {
        process: usize,
        epoch: u32,
        id: u64,
    },
    Look {
        process: usize,
        epoch: u32,
    },
    Execute(Box<SentSlotMessage>),
    Reply {
        sent: Box<SentSlotMessage>,
        reply: SlotReply,
    },
    Timeout(Box<SentSlotMessage>),
    Notice {
        process: usize,
        epoch: u32,
    },
    Pause {
        process: usize,
        time: u64,
    },
    Kill(usize),
    StepBack(u64),
    Lower {
        process: usize,
        max: u16,
    },
    /// A process takes all slots, when all others have none.
    TakeAll,
}

/// A message on its way, with the time at which it was sent by the process's clock.
#[derive(Clone, Debug)]
struct SentSlotMessage {
    process: usize,
    epoch: u32,
    id: SlotProcessId,
    message: SlotMessage,
}

struct SlotProcess {
    /// The number of its restarts.
    epoch: u32,
    id: SlotProcessId,
    slots: KeySlots<usize>,
    next_number: u32,
    max: u16,
    /// Parts in a million by which its clock is fast.
    drift: i64,
    paused_until: u64,
    next_look: u64,
}

struct World {
    scenario: SlotScenario,
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, SlotEvent>,
    next_event: u64,
    store: StoredSlots,
    /// The server's clock less the real time, in microseconds.
    server_offset: u64,
    processes: Vec<SlotProcess>,
    /// The cost of each call, and its start.
    calls: Vec<(usize, u16, Option<SlotStart>)>,
    judge: SlotJudge,
    messages: u64,
}

impl World {
    fn new(scenario: SlotScenario, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let processes = (0..scenario.processes).map(|_| SlotProcess {
            epoch: 0,
            id: random.any().to_be_bytes(),
            slots: new_slots(),
            next_number: 1,
            max: scenario.max,
            drift: i64::try_from(random.below(2001)).unwrap_or(0) - 1000,
            paused_until: 0,
            next_look: u64::MAX,
        });
        let processes: Vec<_> = processes.collect();
        let judge = SlotJudge::new(scenario.max, processes.len());
        let server_offset = 1_700_000_000_000_000 + random.below(1_000_000);
        let mut world = Self {
            random,
            now: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            store: StoredSlots::default(),
            server_offset,
            processes,
            calls: Vec::new(),
            judge,
            messages: 0,
            scenario,
        };
        world.plan_faults();
        world
    }

    fn plan_faults(&mut self) {
        let SlotScenario { processes, faults, longest_pause, steps_back, lowers_max, length, max, .. } = self.scenario;
        for process in 0..processes {
            let at = self.random.below(100 * MS);
            self.at(at, SlotEvent::Arrive(process));
        }
        for _ in 0..self.random.below(faults + 1) {
            let process = usize::try_from(self.random.below(processes as u64)).unwrap_or(0);
            let (at, time) = (self.random.below(length), self.random.below(longest_pause));
            let event =
                if self.random.below(3) == 0 { SlotEvent::Kill(process) } else { SlotEvent::Pause { process, time } };
            self.at(at, event);
        }
        if steps_back && self.random.below(2) == 0 {
            let (at, by) = (self.random.below(length), self.random.below(5_000_000));
            self.at(at, SlotEvent::StepBack(by));
        }
        if lowers_max && max > 1 {
            let max = u16::try_from(self.random.between(1, u64::from(max) - 1)).unwrap_or(1);
            for process in 0..processes {
                let at = SLOT_TIME + self.random.below(800 * MS);
                self.at(at, SlotEvent::Lower { process, max });
            }
        }
        self.at(length + QUIET_TIME, SlotEvent::TakeAll);
    }

    fn at(&mut self, at: u64, event: SlotEvent) {
        self.next_event += 1;
        self.queue.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
    }

    /// The clock of a process, which drifts.
    fn own_clock(&self, process: usize) -> Moment {
        moment(apply_drift(self.now, self.processes[process].drift))
    }

    fn server_millis(&self) -> u64 {
        (self.now + self.server_offset) / MS
    }

    fn delay(&mut self) -> u64 {
        let delay = 50 + exponential(&mut self.random, 2 * MS).min(30 * MS);
        let late = if self.random.below(100) < self.scenario.late_percent { self.random.below(2_500 * MS) } else { 0 };
        delay + late
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(100) < self.scenario.lost_percent
    }

    /// Runs the schedule to its end, and then without faults and calls, until all slots are free.
    fn run(&mut self) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > self.scenario.length + QUIET_TIME + TAKE_TIME {
                break;
            }
            self.now = at;
            if at > self.scenario.length {
                (self.scenario.lost_percent, self.scenario.late_percent) = (0, 0);
            }
            let Some(event) = self.events.remove(&number) else { continue };
            let of = event.process(&self.processes);
            if let (Some(process), Some(epoch)) = (of, event.epoch())
                && self.processes[process].epoch != epoch
            {
                continue;
            }
            if let Some(paused_until) = of.map(|process| self.processes[process].paused_until).filter(|end| *end > at) {
                let at = paused_until + self.random.below(200);
                self.at(at, event);
                continue;
            }
            for process in 0..self.processes.len() {
                self.judge.time_passes(process, self.own_clock(process));
            }
            self.handle(event);
        }
    }

    fn handle(&mut self, event: SlotEvent) {
        match event {
            SlotEvent::Arrive(process) => self.arrive(process),
            SlotEvent::End { process, call, .. } => {
                let (now, (_, _, start)) = (self.own_clock(process), self.calls[call]);
                let mut outcomes = Outcomes::new();
                if let Some(start) = start {
                    self.judge.ended(process, call);
                    self.processes[process].slots.leave(now, start, &mut outcomes);
                }
                self.tell(process, outcomes);
            }
            SlotEvent::GiveUp { process, id, .. } => {
                let (now, mut outcomes) = (self.own_clock(process), Outcomes::new());
                self.processes[process].slots.cancel(now, id, &mut outcomes);
                self.tell(process, outcomes);
            }
            SlotEvent::Look { process, .. } => self.look(process),
            SlotEvent::Execute(sent) => self.execute(*sent),
            SlotEvent::Reply { sent, reply } => self.reply(&sent, &reply),
            SlotEvent::Timeout(sent) => {
                let (process, now, mut outcomes) = (sent.process, self.own_clock(sent.process), Outcomes::new());
                self.processes[process].slots.failed(now, sent.message.number, RETRY, &mut outcomes);
                self.tell(process, outcomes);
            }
            SlotEvent::Notice { process, .. } => {
                self.processes[process].slots.woken();
                self.order_look(process);
            }
            SlotEvent::Pause { process, time } => self.processes[process].paused_until = self.now + time,
            SlotEvent::Kill(process) => self.kill(process),
            SlotEvent::StepBack(by) => self.server_offset -= by,
            SlotEvent::Lower { process, max } => self.processes[process].max = max,
            SlotEvent::TakeAll => {
                let (now, max, mut outcomes) = (self.own_clock(0), self.processes[0].max, Outcomes::new());
                let claim = SlotClaim { cost: max, is_by_share: false };
                let call = self.calls.len();
                self.calls.push((0, max, None));
                match self.processes[0].slots.enter(now, max, claim, &mut outcomes) {
                    Some(start) => self.started(0, call, start),
                    None => drop(self.processes[0].slots.queue(claim, true, call)),
                }
                self.tell(0, outcomes);
            }
        }
    }

    /// Returns whether one call got all slots at the end.
    fn all_are_taken(&self) -> bool {
        self.calls.last().is_some_and(|(_, _, start)| start.is_some())
    }

    fn arrive(&mut self, process: usize) {
        if self.now > self.scenario.length {
            return;
        }
        let next = self.now + exponential(&mut self.random, self.scenario.arrivals);
        self.at(next, SlotEvent::Arrive(process));
        let (now, max) = (self.own_clock(process), self.processes[process].max);
        let is_large = self.random.below(100) < self.scenario.large_percent;
        let cost = if is_large { u16::try_from(self.random.between(1, 3)).unwrap_or(1).min(max) } else { 1 };
        let call = self.calls.len();
        self.calls.push((process, cost, None));
        let waits = self.random.below(100) < self.scenario.waiting_percent;
        let gives_up = self.now + 1 + self.random.below(2 * SLOT_TIME);
        let (claim, mut outcomes) = (SlotClaim { cost, is_by_share: false }, Outcomes::new());
        let SlotProcess { slots, epoch, .. } = &mut self.processes[process];
        match slots.enter(now, max, claim, &mut outcomes) {
            Some(start) => self.started(process, call, start),
            None if slots.waiting() > 8 => {}
            None => {
                let (id, epoch) = (slots.queue(claim, waits, call), *epoch);
                self.at(gives_up, SlotEvent::GiveUp { process, epoch, id });
            }
        }
        self.tell(process, outcomes);
    }

    fn started(&mut self, process: usize, call: usize, start: SlotStart) {
        self.calls[call].2 = Some(start);
        let end = self.now + 200 + exponential(&mut self.random, self.scenario.hold);
        let epoch = self.processes[process].epoch;
        self.at(end, SlotEvent::End { process, epoch, call });
        self.judge.started(process, call, start.cost);
    }

    fn tell(&mut self, process: usize, outcomes: Outcomes<usize>) {
        for (call, outcome) in outcomes {
            if let SlotOutcome::Started(start) = outcome {
                self.started(process, call, start);
            }
        }
        self.order_look(process);
    }

    fn order_look(&mut self, process: usize) {
        let SlotProcess { slots, drift, next_look, epoch, .. } = &mut self.processes[process];
        let at = real_time(slots.next_look(), *drift).max(self.now);
        if at < *next_look {
            *next_look = at;
            let epoch = *epoch;
            self.at(at, SlotEvent::Look { process, epoch });
        }
    }

    fn look(&mut self, process: usize) {
        let now = self.own_clock(process);
        let SlotProcess { slots, next_number, next_look, epoch, id, .. } = &mut self.processes[process];
        if *next_look > self.now {
            return;
        }
        *next_look = u64::MAX;
        let step = slots.look(now, || {
            *next_number += 1;
            *next_number
        });
        if let Some(message) = step.message {
            self.messages += 1;
            let sent = Box::new(SentSlotMessage { process, epoch: *epoch, id: *id, message });
            self.judge.sent(process, message.number, now);
            self.at(self.now + TIMEOUT, SlotEvent::Timeout(sent.clone()));
            if !self.is_lost() {
                let arrival = self.now + self.delay();
                self.at(arrival, SlotEvent::Execute(sent.clone()));
            }
            // A network may deliver it twice.
            if self.scenario.late_percent > 0 && self.random.below(50) == 0 {
                let arrival = self.now + self.delay();
                self.at(arrival, SlotEvent::Execute(sent));
            }
        }
        self.order_look(process);
    }

    fn execute(&mut self, sent: SentSlotMessage) {
        let (reply, notices) = self.store.apply(self.server_millis(), sent.id, &sent.message);
        if self.scenario.has_notices {
            for id in notices {
                if let Some(process) = self.processes.iter().position(|process| process.id == id) {
                    let (arrival, epoch) = (self.now + self.delay(), self.processes[process].epoch);
                    self.at(arrival, SlotEvent::Notice { process, epoch });
                }
            }
        }
        if !self.is_lost() {
            let arrival = self.now + self.delay();
            self.at(arrival, SlotEvent::Reply { sent: Box::new(sent), reply });
        }
    }

    fn reply(&mut self, sent: &SentSlotMessage, reply: &SlotReply) {
        let (process, now, mut outcomes) = (sent.process, self.own_clock(sent.process), Outcomes::new());
        if reply.state != MessageState::Stale {
            self.judge.replied(process, sent.message.number, now);
        }
        let (_, state) = self.processes[process].slots.replied(
            now,
            sent.message.number,
            reply,
            self.scenario.has_notices,
            &mut outcomes,
        );
        if state == Some(MessageState::Stale) {
            self.processes[process].id = self.random.any().to_be_bytes();
        }
        self.tell(process, outcomes);
    }

    fn kill(&mut self, process: usize) {
        self.judge.killed(process);
        let id = self.random.any().to_be_bytes();
        let killed = &mut self.processes[process];
        (killed.id, killed.slots, killed.next_number) = (id, new_slots(), 1);
        (killed.next_look, killed.paused_until) = (u64::MAX, 0);
        killed.epoch += 1;
    }
}

impl SlotEvent {
    /// The process whose code handles it, unless it has been killed since then.
    fn process(&self, processes: &[SlotProcess]) -> Option<usize> {
        match *self {
            Self::Arrive(process) | Self::Lower { process, .. } => Some(process),
            Self::End { process, .. }
            | Self::GiveUp { process, .. }
            | Self::Look { process, .. }
            | Self::Notice { process, .. } => Some(process),
            Self::Reply { ref sent, .. } | Self::Timeout(ref sent) => Some(sent.process),
            Self::Execute(_) | Self::Pause { .. } | Self::Kill(_) | Self::StepBack(_) | Self::TakeAll => None,
        }
        .filter(|process| *process < processes.len())
    }

    /// The start of the process that it is for.
    fn epoch(&self) -> Option<u32> {
        match self {
            Self::End { epoch, .. }
            | Self::GiveUp { epoch, .. }
            | Self::Look { epoch, .. }
            | Self::Notice { epoch, .. } => Some(*epoch),
            Self::Reply { sent, .. } | Self::Timeout(sent) => Some(sent.epoch),
            _ => None,
        }
    }
}

fn new_slots() -> KeySlots<usize> {
    KeySlots::new(Some(SlotGrant::new(Duration::from_micros(SLOT_TIME), Moment::PAST)))
}

fn moment(micros: u64) -> Moment {
    Moment::PAST.after(Duration::from_micros(micros))
}

/// The own time of a process at a real time.
fn apply_drift(time: u64, drift: i64) -> u64 {
    // Each clock begins with a slot time.
    let time = time + SLOT_TIME;
    time.saturating_add_signed(i64::try_from(time).unwrap_or(0) * drift / 1_000_000)
}

/// The real time at which a process's clock has reached an instant.
fn real_time(at: Moment, drift: i64) -> u64 {
    if at == Moment::NEVER {
        return u64::MAX;
    }
    let own = i128::from(at.micros());
    let real = own * 1_000_000 / (1_000_000 + i128::from(drift));
    u64::try_from(real + 2).unwrap_or(0).saturating_sub(SLOT_TIME)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a random time"
)]
fn exponential(random: &mut Random, mean: u64) -> u64 {
    (-(((random.any() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64).ln() * mean as f64) as u64
}
