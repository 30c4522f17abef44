//! Threads that call limiters in this process, whose futures never wait.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, Failure, Verdict};
use crate::kept::Admitted;
use crate::order::{Order, Picker};
use crate::tally::Tally;

/// Calls for each one that is timed. Reading the clock takes as long as half a decision.
const CALLS_PER_TIMING: usize = 64;

/// The calls of one run.
#[derive(Debug, Clone)]
pub struct Spin {
    /// The number of threads.
    pub threads: usize,
    /// The order of keys.
    pub order: Order,
    /// The time for which threads make calls.
    pub duration: Duration,
    /// The start of the history of admissions.
    pub origin: Instant,
    /// True if admissions are recorded. That takes time, so it is for cases that reach their limit.
    pub history: bool,
}

pub(crate) fn run<C: Contestant>(contestant: &C, spin: &Spin) -> Result<Tally, Failure> {
    let until = Instant::now() + spin.duration;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..spin.threads)
            .map(|number| scope.spawn(move || run_thread(contestant, spin.order.picker(number), spin, until)))
            .collect();
        let mut tally = Tally::default();
        for thread in threads {
            tally.add(thread.join().map_err(|_| "a call panicked".to_owned())??);
        }
        Ok(tally)
    })
}

fn run_thread<C: Contestant>(contestant: &C, mut keys: Picker, spin: &Spin, until: Instant) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let began = Instant::now();
    loop {
        let start = Instant::now();
        if start >= until {
            tally.took = start - began;
            return Ok(tally);
        }
        for call in 0..CALLS_PER_TIMING {
            let Some(key) = keys.next_key() else { return Err("a spin needs an endless order of keys".to_owned()) };
            let verdict = poll_once(contestant.decide(key))??;
            tally.count(verdict);
            if call == 0 {
                tally.record_latency(start.elapsed());
            }
            if spin.history && verdict == Verdict::Allowed {
                // The start of the round is before that of the call. A longer interval can hide an excess, never invent
                // one.
                let (start, end) = (start - spin.origin, spin.origin.elapsed());
                tally.admissions.push(Admitted { key, start, end });
            }
        }
    }
}

/// Polls a future once and returns its output.
///
/// # Errors
///
/// The future has to wait.
#[inline]
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err("the call had to wait".to_owned()),
    }
}
