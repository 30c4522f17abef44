//! Threads that ask limiters in this process, which answer at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, Failure, Verdict};
use crate::kept::Admitted;
use crate::order::{Order, Picker};
use crate::tally::Tally;

/// Reading the clock takes as long as half a decision: one call of so many is timed.
const TIMED_EVERY: usize = 64;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Spin {
    /// How many threads.
    pub threads: usize,
    /// On which keys.
    pub order: Order,
    /// For how long.
    pub duration: Duration,
    /// When the history of admissions begins.
    pub origin: Instant,
    /// Whether what is admitted is kept. It takes time, so only where the limit is reached.
    pub history: bool,
}

pub(crate) fn run<C: Contestant>(contestant: &C, spin: &Spin) -> Result<Tally, Failure> {
    let until = Instant::now() + spin.duration;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..spin.threads)
            .map(|number| scope.spawn(move || ask(contestant, spin.order.picker(number), spin, until)))
            .collect();
        let mut tally = Tally::default();
        for thread in threads {
            tally.add(thread.join().map_err(|_| "a call panicked".to_owned())??);
        }
        Ok(tally)
    })
}

fn ask<C: Contestant>(contestant: &C, mut keys: Picker, spin: &Spin, until: Instant) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let began = Instant::now();
    loop {
        let start = Instant::now();
        if start >= until {
            tally.took = start - began;
            return Ok(tally);
        }
        for call in 0..TIMED_EVERY {
            let Some(key) = keys.next_key() else { return Err("a spin needs keys without an end".to_owned()) };
            let verdict = at_once(contestant.decide(key))??;
            tally.count(verdict);
            if call == 0 {
                tally.time(start.elapsed());
            }
            if spin.history && verdict == Verdict::Allowed {
                // The start of the batch is before that of the call: such an interval can only excuse more.
                let (start, end) = (start - spin.origin, spin.origin.elapsed());
                tally.admissions.push(Admitted { key, start, end });
            }
        }
    }
}

/// What a future gives that does not wait.
#[inline]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err("did not answer at once".to_owned()),
    }
}
