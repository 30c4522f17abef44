//! The open loop: calls start at their planned times, whatever became of earlier ones.

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, Stream};
use rate_limited::{Limit, Limiter};

use super::names::{self, Names, USERS};
use super::oracle::SampledKeys;
use super::record::SecondTally;
use super::zipf::Zipf;
use super::{RULE, limit_of};
use crate::contestant::{Failure, failed};

/// Calls that are drawn ahead, in parts.
const DRAWN_PARTS: usize = 16;
const PART: usize = 512;
/// The longest sleep of the client's thread. No reply wakes it, which would take more of its core than the call itself.
/// So calls start and end up to about 0.2 ms late, which counts as their latency.
const MAX_SLEEP: Duration = Duration::from_micros(100);
/// The time after the last planned call by which all calls must have ended.
const LAST_REPLY: Duration = Duration::from_secs(10);

/// A call of the full shard.
#[derive(Debug, Clone, Copy)]
struct PlannedCall {
    /// The time since the origin.
    due: Duration,
    rank: u32,
}

/// The draws so far: of all masters, and of the full shard.
#[derive(Debug, Clone, Copy, Default)]
pub struct Draws {
    /// All draws.
    pub all: u64,
    /// Those that the full shard decides.
    pub here: u64,
}

/// The end of a call.
struct EndedCall {
    rank: u32,
    due: Duration,
    sent: Duration,
    /// True if the call may run.
    decision: Result<bool, Failure>,
}

/// The load: its pace, its length, and the limiter that decides.
#[derive(Debug)]
pub(super) struct OpenLoop<'a> {
    /// The limiter.
    pub(super) limiter: &'a Limiter,
    /// Calls a second, on average.
    pub(super) rate: f64,
    /// The window of all limits.
    pub(super) window: Duration,
    /// The time in which calls are planned.
    pub(super) time: Duration,
    /// The instant from which all times count.
    pub(super) origin: Instant,
}

impl OpenLoop<'_> {
    /// Makes all calls on this thread, and sends a tally for each second. The draws are made on another thread.
    ///
    /// # Errors
    ///
    /// Calls do not end.
    pub(super) fn run(&self, seconds: &Sender<SecondTally>, sampled: &mut SampledKeys) -> Result<Draws, Failure> {
        let (drawn, calls) = sync_channel(DRAWN_PARTS);
        let plan = DrawPlan { rate: self.rate, begin: self.origin.elapsed(), time: self.time };
        let drawing = thread::spawn(move || plan.draw(&drawn));
        let result = self.make_calls(PlannedCalls { calls, part: Vec::new().into_iter() }, seconds, sampled);
        let draws = drawing.join().map_err(|_| "the draws panicked".to_owned())?;
        result.map(|()| draws)
    }

    fn make_calls(
        &self,
        mut calls: PlannedCalls,
        seconds: &Sender<SecondTally>,
        sampled: &mut SampledKeys,
    ) -> Result<(), Failure> {
        let hot = limit_of(1, self.window).map_err(failed)?;
        let ordinary = limit_of(USERS, self.window).map_err(failed)?;
        let mut context = Context::from_waker(Waker::noop());
        let mut in_flight = pin!(FuturesUnordered::new());
        let begin = self.origin.elapsed();
        let mut tally = SecondTally::from_second(begin, 0);
        let mut next = calls.next();
        loop {
            let now = self.origin.elapsed();
            while let Some(call) = next.filter(|call| call.due <= now) {
                let limit = if super::is_hot(call.rank) { &hot } else { &ordinary };
                in_flight.push(self.decide(call, limit));
                next = calls.next();
            }
            while let Poll::Ready(Some(ended)) = in_flight.as_mut().poll_next(&mut context) {
                let now = self.origin.elapsed();
                if let Some(full) = tally.next_second(now) {
                    let _ = seconds.send(full); // the reader ends after this thread
                }
                if ended.decision == Ok(true) {
                    sampled.admit(ended.rank, ended.sent, now);
                }
                tally.count(ended.due, now, &ended.decision);
            }
            let now = self.origin.elapsed();
            if let Some(full) = tally.next_second(now) {
                let _ = seconds.send(full);
            }
            let sleep = match next {
                Some(call) => call.due.saturating_sub(now),
                None if in_flight.is_empty() => break,
                None if now > begin + self.time + LAST_REPLY => {
                    return Err(format!("{} calls hang: no decision within {LAST_REPLY:?}", in_flight.len()));
                }
                None => MAX_SLEEP,
            };
            if !sleep.is_zero() {
                thread::sleep(sleep.min(MAX_SLEEP));
            }
        }
        let _ = seconds.send(tally);
        Ok(())
    }

    async fn decide(&self, call: PlannedCall, limit: &Limit) -> EndedCall {
        let key = names::key(call.rank);
        let sent = self.origin.elapsed();
        let decision = self.limiter.named(RULE).check(&key, limit).await;
        let decision = decision.map(|decision| decision.is_allowed()).map_err(failed);
        EndedCall { rank: call.rank, due: call.due, sent, decision }
    }
}

/// The calls in the order of their times.
struct PlannedCalls {
    calls: Receiver<Vec<PlannedCall>>,
    part: std::vec::IntoIter<PlannedCall>,
}

impl Iterator for PlannedCalls {
    type Item = PlannedCall;

    fn next(&mut self) -> Option<PlannedCall> {
        loop {
            if let Some(call) = self.part.next() {
                return Some(call);
            }
            self.part = self.calls.recv().ok()?.into_iter();
        }
    }
}

/// The draws of a load.
struct DrawPlan {
    rate: f64,
    begin: Duration,
    time: Duration,
}

impl DrawPlan {
    /// Draws names of all users until the time is over, and sends those of the full shard with random times. The others
    /// count as decided by other masters.
    fn draw(&self, drawn: &SyncSender<Vec<PlannedCall>>) -> Draws {
        let (names, mut zipf, mut draws) = (Names::new(), Zipf::new(USERS, 1), Draws::default());
        let (mut after, mut part) = (0.0, Vec::with_capacity(PART));
        loop {
            let rank = zipf.next_rank();
            draws.all += 1;
            if !names.is_in_shard(rank) {
                continue;
            }
            after += zipf.next_gap() / self.rate;
            let is_over = after >= self.time.as_secs_f64();
            if !is_over {
                draws.here += 1;
                part.push(PlannedCall { due: self.begin + Duration::from_secs_f64(after), rank });
            }
            if is_over || part.len() == PART {
                let full = std::mem::replace(&mut part, Vec::with_capacity(PART));
                if drawn.send(full).is_err() || is_over {
                    return draws;
                }
            }
        }
    }
}
