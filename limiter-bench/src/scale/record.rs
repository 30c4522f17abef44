//! The figures of each second, from the client's thread and from the full master.

use std::mem;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::LATE;
use super::histogram::Histogram;
use super::shard::{MasterFigures, Shard};
use super::system::{CpuShares, CpuTimes};
use crate::contestant::Failure;

/// Seconds between two lines of the progress.
const REPORT_SECONDS: u64 = 5;

/// The calls that ended in one second.
#[derive(Debug, Default)]
pub(super) struct SecondTally {
    begin: Duration,
    second: u64,
    allowed: u64,
    denied: u64,
    failed: u64,
    first_failure: Option<Failure>,
    late: Vec<LateCall>,
    latencies: Histogram,
}

/// A call that ended late.
#[derive(Debug, Clone, Copy)]
pub struct LateCall {
    /// The planned time of its start.
    pub due: Duration,
    /// Its end.
    pub ended: Duration,
}

impl SecondTally {
    /// Creates the tally of a second of a load that begins then.
    pub(super) fn from_second(begin: Duration, second: u64) -> Self {
        Self { begin, second, ..Self::default() }
    }

    /// Returns this tally if its second is over, and begins the next one.
    pub(super) fn next_second(&mut self, now: Duration) -> Option<Self> {
        let second = now.saturating_sub(self.begin).as_secs();
        let next = || Self::from_second(self.begin, second);
        (second > self.second).then(next).map(|next| mem::replace(self, next))
    }

    /// Counts a call by its planned time and its end.
    pub(super) fn count(&mut self, due: Duration, ended: Duration, decision: &Result<bool, Failure>) {
        let latency = ended.saturating_sub(due);
        self.latencies.record(latency);
        match decision {
            Ok(true) => self.allowed += 1,
            Ok(false) => self.denied += 1,
            Err(failure) => {
                self.failed += 1;
                self.first_failure.get_or_insert_with(|| failure.clone());
            }
        }
        if latency >= LATE {
            self.late.push(LateCall { due, ended });
        }
    }
}

/// The figures of a second.
#[derive(Debug, Clone)]
pub struct SecondRow {
    /// The seconds since the load began.
    pub second: u64,
    /// Calls that were allowed.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls without a decision.
    pub failed: u64,
    /// Calls that ended late.
    pub late: u64,
    /// The percentiles 50, 99, 99.9 and 100 of the latency from the planned time, in milliseconds.
    pub latency_ms: [f64; 4],
    /// The shares of the processors.
    pub cpu: CpuShares,
    /// The figures of the full master at its end.
    pub master: MasterFigures,
    /// Script calls of the full master in it.
    pub script_calls: u64,
}

/// The figures of a load.
#[derive(Debug, Default)]
pub(super) struct LoadRecord {
    pub(super) rows: Vec<SecondRow>,
    pub(super) latencies: Histogram,
    pub(super) late: Vec<LateCall>,
    pub(super) first_failure: Option<Failure>,
}

/// Reads the master's figures for each tally until the load ends.
///
/// # Errors
///
/// The master does not reply.
pub(super) fn record(tallies: &Receiver<SecondTally>, shard: &mut Shard) -> Result<LoadRecord, Failure> {
    let mut record = LoadRecord::default();
    let (mut read_at, mut times) = (Instant::now(), CpuTimes::read(shard.process)?);
    let mut calls_before = shard.figures()?.script_calls;
    for tally in tallies {
        let (now, times_now) = (Instant::now(), CpuTimes::read(shard.process)?);
        let cpu = times_now.shares_since(times, now - read_at);
        let master = shard.figures()?;
        let row = SecondRow {
            second: tally.second,
            allowed: tally.allowed,
            denied: tally.denied,
            failed: tally.failed,
            late: tally.late.len() as u64,
            latency_ms: [50.0, 99.0, 99.9, 100.0].map(|percent| tally.latencies.percentile_ms(percent)),
            cpu,
            master,
            script_calls: master.script_calls - calls_before,
        };
        if row.second.is_multiple_of(REPORT_SECONDS) {
            row.report();
        }
        record.rows.push(row);
        record.latencies.add(&tally.latencies);
        record.late.extend(tally.late);
        record.first_failure = record.first_failure.or(tally.first_failure);
        (read_at, times, calls_before) = (now, times_now, master.script_calls);
    }
    Ok(record)
}

impl SecondRow {
    /// Returns all decisions of the second.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.allowed + self.denied
    }

    fn report(&self) {
        let [p50, p99, ..] = self.latency_ms;
        eprintln!(
            "load: {} s, {} decisions, {} script calls, {} denied, {} failed, {} late, p50 {p50:.2} ms, p99 {p99:.2} ms, \
             master {:.0} %, client {:.0} %, others {:.0} %, {:.2} GB, {} keys",
            self.second,
            self.decisions(),
            self.script_calls,
            self.denied,
            self.failed,
            self.late,
            self.cpu.master * 100.0,
            self.cpu.own * 100.0,
            self.cpu.other * 100.0,
            self.master.used_memory as f64 / 1e9,
            self.master.keys,
        );
    }
}
