//! Waiting calls that are polled by hand: some promptly, some late, some never again, and some are dropped. The clock
//! stands still in between.
//!
//! A call takes its place in the queue at its first poll. Calls that are polled whenever they are woken are served in
//! that order. None of them is passed over permanently, and a call that is not polled does not delay the others.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Algorithm, Decision, Error, Key, Limit, Limiter, ManualClock};

use super::round::{Outcome, Round};

/// The time after which a woken waiter that is not polled may be passed over.
const PASS_OVER_TIME: Duration = Duration::from_millis(10);

/// The longest real time that a wake-up from another thread may take.
const WAKE_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// A wait longer than any round, by the round's clock.
const LONG_WAIT: Duration = Duration::from_secs(24 * 3_600);

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

type WaitFuture = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

struct Waiter {
    number: usize,
    future: WaitFuture,
    woken: Arc<WakeFlag>,
    /// True if the waiter is not polled, even when it is woken.
    is_stalled: bool,
    /// True if its `max_wait` outlasts the round.
    outlasts_round: bool,
}

struct Queue {
    limiter: Limiter,
    clock: ManualClock,
    key: Key,
    limit: Limit,
    waiters: Vec<Waiter>,
    log: Vec<String>,
}

pub(super) fn round(round: &mut Round) -> Outcome {
    for _ in 0..if round.short { 10 } else { 60 } {
        run_queue(round)?;
    }
    Ok(())
}

fn run_queue(round: &mut Round) -> Outcome {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("a limiter in memory");
    let algorithm = round.choose(&[
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket,
    ]);
    let limit = Limit::new(round.small(1, 3), round.millis(20, 300)).expect("a limit").with_algorithm(algorithm);
    let mut queue = Queue { limiter, clock, key: Key::new("queue"), limit, waiters: Vec::new(), log: Vec::new() };
    for number in 0..40 {
        match round.random.below(10) {
            0..=3 => queue.add_waiter(round, number)?,
            4 if !queue.waiters.is_empty() => {
                let index = round.index(queue.waiters.len());
                let dropped = queue.waiters.remove(index);
                queue.log.push(format!("drop {}", dropped.number));
                round.count("dropped", 1);
            }
            5 if !queue.waiters.is_empty() => {
                let index = round.index(queue.waiters.len());
                let waiter = &mut queue.waiters[index];
                waiter.is_stalled = !waiter.is_stalled;
                queue.log.push(format!(
                    "{} is {}",
                    waiter.number,
                    if waiter.is_stalled { "stalled" } else { "polled again" }
                ));
            }
            _ => queue.advance(round.millis(1, 60)),
        }
        queue.poll_woken(round)?;
    }
    queue.serve_all(round).map_err(|what| format!("{algorithm:?} of {limit}: {what}\n{}", queue.log.join("\n")))
}

impl Queue {
    fn add_waiter(&mut self, round: &mut Round, number: usize) -> Outcome {
        let (limiter, key, limit) = (self.limiter.clone(), self.key.clone(), self.limit);
        let outlasts_round = !round.once_in(4);
        let max_wait = if outlasts_round { LONG_WAIT } else { round.millis(0, 200) };
        let future = Box::pin(async move { limiter.wait(&key, &limit, max_wait).await });
        let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
        self.log.push(format!("{number} starts to wait for {max_wait:?}"));
        self.waiters.push(Waiter { number, future, woken, is_stalled: false, outlasts_round });
        round.count("waiters", 1);
        self.poll(self.waiters.len() - 1).map(drop)
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.log.push(format!("the clock advances by {by:?}"));
    }

    /// Polls one waiter, and removes it once it has a decision. Returns true if it was removed.
    fn poll(&mut self, index: usize) -> Result<bool, String> {
        let waiter = &mut self.waiters[index];
        waiter.woken.0.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&waiter.woken));
        let Poll::Ready(decision) = waiter.future.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return Ok(false);
        };
        let waiter = self.waiters.remove(index);
        match decision {
            Err(error) => return Err(format!("{}: {error}", waiter.number)),
            Ok(Decision::Denied(_)) if waiter.outlasts_round => {
                return Err(format!("{} was denied although it can wait", waiter.number));
            }
            Ok(Decision::Denied(_)) => self.log.push(format!("{} is denied", waiter.number)),
            Ok(Decision::Allowed(_)) => {
                self.log.push(format!("{} is served", waiter.number));
                let before = self.waiters.iter().find(|other| other.number < waiter.number && !other.is_stalled);
                if let Some(before) = before {
                    return Err(format!(
                        "{} is served before {}, which is polled whenever it is woken",
                        waiter.number, before.number
                    ));
                }
            }
        }
        Ok(true)
    }

    /// Polls woken waiters until none is left.
    fn poll_woken(&mut self, round: &mut Round) -> Outcome {
        loop {
            let ready = |waiter: &Waiter| !waiter.is_stalled && waiter.woken.0.load(SeqCst);
            let woken: Vec<_> = (0..self.waiters.len()).filter(|index| ready(&self.waiters[*index])).collect();
            if woken.is_empty() {
                return Ok(());
            }
            let index = woken[round.index(woken.len())];
            self.poll(index).map_err(|what| {
                format!("{:?} of {}: {what}\n{}", self.limit.algorithm(), self.limit, self.log.join("\n"))
            })?;
        }
    }

    /// Advances the clock until every waiter that is polled has been served.
    fn serve_all(&mut self, round: &mut Round) -> Outcome {
        let mut windows = 0;
        while self.waiters.iter().any(|waiter| !waiter.is_stalled) {
            // One window, plus the time to pass over stalled waiters, is enough to serve at least one more.
            for _ in 0..4 {
                self.advance(self.limit.window() / 2 + PASS_OVER_TIME);
                self.poll_woken(round)?;
                self.advance(PASS_OVER_TIME + Duration::from_millis(1));
                self.poll_woken(round)?;
            }
            windows += 1;
            if windows > 60 {
                // A wake-up may come from another thread.
                let give_up_at = Instant::now() + WAKE_UP_TIMEOUT;
                let left = self.waiters.len();
                while Instant::now() < give_up_at && self.waiters.len() == left {
                    sleep(Duration::from_millis(1));
                    self.poll_woken(round)?;
                }
                if self.waiters.len() == left {
                    let waiting: Vec<_> =
                        self.waiters.iter().filter(|waiter| !waiter.is_stalled).map(|waiter| waiter.number).collect();
                    let stalled: Vec<_> =
                        self.waiters.iter().filter(|waiter| waiter.is_stalled).map(|waiter| waiter.number).collect();
                    return Err(format!("{waiting:?} are never served, though only {stalled:?} are not polled"));
                }
            }
        }
        round.count("games", 1);
        Ok(())
    }
}
