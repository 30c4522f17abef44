//! The counts that the full shard holds before the load.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use rate_limited::{Limit, Limiter, OnError};

use super::names::{self, Names, USERS};
use super::shard::{MasterFigures, Shard};
use super::system::available_memory;
use super::{FILL_WINDOW, FREE_MEMORY, MASTERS, RULE, ScalePlan, group_digits, whole};
use crate::contestant::{Failure, failed};

/// The permits that a filled count may have in its window. One of them is taken.
const PERMITS: u32 = 5;
/// Counts that are filled first, to learn their size.
const PILOT: u64 = 200_000;
/// Counts between two looks at the memory of the machine.
const PART: usize = 50_000;
/// Names of one slot that are filled at once: the most that the library sends in one script call.
const SLOT_BATCH: usize = 128;
/// Calls at once. The library has up to four script calls in flight, and more wait for the next ones.
const CALLS_AT_ONCE: usize = 8 * SLOT_BATCH;
/// The time that a call may take. It is no part of what is measured.
const DEADLINE: Duration = Duration::from_secs(20);
/// The bytes that a key may cost beside its share of the pilot: tables twice as large, and both while they grow.
const GROWTH: u64 = 48;
/// The most by which the memory of a process exceeds what it uses.
const FRAGMENTATION: f64 = 1.1;
const REPORT_TIME: Duration = Duration::from_secs(5);

/// The counts that were filled.
#[derive(Debug, Clone)]
pub struct Filled {
    /// Their number.
    pub counts: u64,
    /// The reason for this number.
    pub why: String,
    /// Bytes of the master for each.
    pub bytes: f64,
    /// The time that it took.
    pub took: Duration,
}

/// Fills the shard by the library itself: one permit of each count, in the order of the ranks.
pub(super) async fn fill(shard: &mut Shard, plan: &ScalePlan) -> Result<Filled, Failure> {
    let builder = plan.rule().map(|rule| Limiter::builder().rule(RULE, rule))?;
    let limiter = builder.url(shard.url()).on_error(OnError::Raise).deadline(DEADLINE).connect().await;
    let limiter = limiter.map_err(failed)?;
    let limit = Limit::new(PERMITS, FILL_WINDOW).map_err(failed)?;

    let (began, before) = (Instant::now(), shard.figures()?);
    let mut filling = Filling { shard, limiter, limit, before, began, reported: began, counts: 0 };
    let mut ranks = RanksBySlot::new();
    let all = u64::from(USERS) / u64::from(MASTERS);
    filling.take(&mut ranks, PILOT.min(plan.counts.unwrap_or(all)), 0).await?;
    let pilot = filling.bytes()?;
    let available = available_memory()?;
    let reserve = plan.bytes_of_load(pilot);
    let room = available.saturating_sub(FREE_MEMORY + reserve) as f64 / FRAGMENTATION;
    let more = whole(room / (pilot + GROWTH as f64));
    let most = filling.counts + more;
    let why = format!(
        "{:.1} GB were free, of which {:.1} stay free and {:.1} are for the counts of the load; {pilot:.0} bytes a count",
        gigabytes(available),
        gigabytes(FREE_MEMORY),
        gigabytes(reserve),
    );
    let (counts, why) = match plan.counts {
        Some(counts) if counts > most => {
            return Err(format!("`--counts` must be at most {most} on this machine now, got {counts}: {why}"));
        }
        Some(counts) => (counts, format!("as `--counts` has it; {} fit: {why}", group_digits(most))),
        None if most >= all => (all, format!("all of the shard's part; {} fit: {why}", group_digits(most))),
        None => (most, format!("as many of {} as fit: {why}", group_digits(all))),
    };
    eprintln!("counts: {}, {why}", group_digits(counts));
    filling.take(&mut ranks, counts, FREE_MEMORY + reserve).await?;
    let why = if filling.counts < counts { "until the memory of the machine was used".to_owned() } else { why };
    Ok(Filled { counts: filling.counts, why, bytes: filling.bytes()?, took: began.elapsed() })
}

/// A shard while it is filled.
struct Filling<'a> {
    shard: &'a mut Shard,
    limiter: Limiter,
    limit: Limit,
    before: MasterFigures,
    began: Instant,
    reported: Instant,
    counts: u64,
}

impl Filling<'_> {
    /// Fills up to this number of counts in all, or until less memory than `least_free` is free.
    async fn take(&mut self, ranks: &mut RanksBySlot, counts: u64, least_free: u64) -> Result<(), Failure> {
        while self.counts < counts {
            let missing = usize::try_from(counts - self.counts).map_err(failed)?;
            let batch: Vec<_> = ranks.by_ref().take(missing.min(PART)).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let (limiter, limit) = (&self.limiter, &self.limit);
            let call = |rank| async move { limiter.named(RULE).check(&names::key(rank), limit).await };
            let mut calls = stream::iter(&batch).map(|&rank| call(rank)).buffer_unordered(CALLS_AT_ONCE);
            while let Some(decision) = calls.next().await {
                if decision.map_err(failed)?.is_denied() {
                    return Err("a count that is filled once was denied".to_owned());
                }
            }
            drop(calls);
            self.counts += batch.len() as u64;
            self.report(counts)?;
            if available_memory()? < least_free {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the bytes of a count.
    fn bytes(&mut self) -> Result<f64, Failure> {
        let used = self.shard.figures()?.used_memory.saturating_sub(self.before.used_memory);
        Ok(used as f64 / self.counts.max(1) as f64)
    }

    fn report(&mut self, wanted: u64) -> Result<(), Failure> {
        if self.reported.elapsed() < REPORT_TIME && self.counts < wanted {
            return Ok(());
        }
        self.reported = Instant::now();
        let rate = self.counts as f64 / self.began.elapsed().as_secs_f64();
        let left = wanted.saturating_sub(self.counts) as f64 / rate;
        eprintln!(
            "fill: {} of {} counts, {} a second, {left:.0} s to go, {:.0} bytes a count, {:.1} GB free",
            group_digits(self.counts),
            group_digits(wanted),
            group_digits(whole(rate)),
            self.bytes()?,
            gigabytes(available_memory()?),
        );
        Ok(())
    }
}

/// The ranks of the full shard, in batches of one slot. A script call is for one slot.
struct RanksBySlot {
    names: Names,
    next: u32,
    slots: Vec<Vec<u32>>,
    ready: Vec<u32>,
    /// The next slot whose ranks are returned although they fill no batch.
    rest: usize,
}

impl RanksBySlot {
    fn new() -> Self {
        let slots = vec![Vec::new(); usize::from(names::shard_slots().end)];
        Self { names: Names::new(), next: 1, slots, ready: Vec::new(), rest: 0 }
    }
}

impl Iterator for RanksBySlot {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(rank) = self.ready.pop() {
                return Some(rank);
            }
            if self.next > USERS {
                self.ready = std::mem::take(self.slots.get_mut(self.rest)?);
                self.rest += 1;
                continue;
            }
            let rank = self.next;
            self.next += 1;
            if self.names.is_in_shard(rank) {
                let slot = &mut self.slots[usize::from(self.names.slot(rank))];
                slot.push(rank);
                if slot.len() == SLOT_BATCH {
                    self.ready = std::mem::take(slot);
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}
