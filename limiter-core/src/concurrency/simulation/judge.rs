//! The judge of a schedule. It knows the calls that run, and when each process's slots end by the promise alone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::SLOT_TIME;
use crate::clock::Moment;

/// Calls with their slots, and the number of slots in use.
pub(super) struct SlotJudge {
    max: u16,
    processes: Vec<JudgedProcess>,
    /// The most slots in use beyond the limit, of calls that have not lost theirs.
    pub(super) most_above: u32,
    /// The slots of calls that were lost.
    pub(super) lost: u64,
    pub(super) started: u64,
}

#[derive(Default)]
struct JudgedProcess {
    /// The calls that run, with their costs. A call that has lost its slots has none.
    calls: BTreeMap<usize, u16>,
    /// The last message, with the time before it was sent.
    last_sent: Option<(u32, Moment)>,
    /// The end of its slots by the last reply.
    end: Option<Moment>,
}

impl SlotJudge {
    pub(super) fn new(max: u16, processes: usize) -> Self {
        let processes = (0..processes).map(|_| JudgedProcess::default()).collect();
        Self { max, processes, most_above: 0, lost: 0, started: 0 }
    }

    pub(super) fn started(&mut self, process: usize, call: usize, cost: u16) {
        self.started += 1;
        self.processes[process].calls.insert(call, cost);
        let in_use: u32 =
            self.processes.iter().flat_map(|process| process.calls.values()).map(|cost| u32::from(*cost)).sum();
        self.most_above = self.most_above.max(in_use.saturating_sub(self.max.into()));
    }

    pub(super) fn ended(&mut self, process: usize, call: usize) {
        self.processes[process].calls.remove(&call);
    }

    pub(super) fn killed(&mut self, process: usize) {
        self.processes[process] = JudgedProcess::default();
    }

    pub(super) fn sent(&mut self, process: usize, number: u32, now: Moment) {
        self.processes[process].last_sent = Some((number, now));
    }

    pub(super) fn replied(&mut self, process: usize, number: u32, now: Moment) {
        self.time_passes(process, now);
        let process = &mut self.processes[process];
        if let Some((_, sent_at)) = process.last_sent.filter(|(last, _)| *last == number) {
            let slack = 1000 + SLOT_TIME / 1000;
            process.end = Some(sent_at.after(Duration::from_micros(SLOT_TIME - slack)));
        }
    }

    /// Takes the slots of running calls away once they have ended.
    pub(super) fn time_passes(&mut self, process: usize, now: Moment) {
        let process = &mut self.processes[process];
        if process.end.take_if(|end| *end <= now).is_some() {
            for cost in process.calls.values_mut() {
                self.lost += u64::from(*cost);
                *cost = 0;
            }
        }
    }
}
