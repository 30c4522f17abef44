//! Waiting calls, polled by hand: some promptly, some late, some never again, some dropped. The clock stands still in between.
//!
//! A call takes its number at its first poll. Those that are polled when they are woken are served in the order of their
//! numbers, none of them is passed over for good, and one that is not polled holds up nobody.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Algorithm, Decision, Error, Key, Limit, Limiter, ManualClock};

use super::round::{Outcome, Round};

/// A waiter that is woken and not polled may be passed over after this time.
const PASSED_OVER: Duration = Duration::from_millis(10);

/// The real time for a wake-up from another thread.
const WAKES: Duration = Duration::from_secs(5);

/// Longer than any round lasts by its clock.
const PATIENT: Duration = Duration::from_secs(24 * 3_600);

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

struct Waiter {
    number: usize,
    future: Waiting,
    woken: Arc<Flag>,
    /// Not polled, whatever wakes it.
    is_stalled: bool,
    /// Whether it gives up before the round is over.
    is_patient: bool,
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
        game(round)?;
    }
    Ok(())
}

fn game(round: &mut Round) -> Outcome {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("a limiter in memory");
    let algorithm = round.choose(&[
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::TokenBucket,
    ]);
    let limit = Limit::new(round.small(1, 3), round.millis(20, 300)).expect("a limit").with_algorithm(algorithm);
    let mut queue = Queue { limiter, clock, key: Key::new("line"), limit, waiters: Vec::new(), log: Vec::new() };
    for number in 0..40 {
        match round.random.below(10) {
            0..=3 => queue.join(round, number)?,
            4 if !queue.waiters.is_empty() => {
                let place = round.index(queue.waiters.len());
                let dropped = queue.waiters.remove(place);
                queue.log.push(format!("drop {}", dropped.number));
                round.count("dropped", 1);
            }
            5 if !queue.waiters.is_empty() => {
                let place = round.index(queue.waiters.len());
                let waiter = &mut queue.waiters[place];
                waiter.is_stalled = !waiter.is_stalled;
                queue.log.push(format!(
                    "{} is {}",
                    waiter.number,
                    if waiter.is_stalled { "stalled" } else { "polled again" }
                ));
            }
            _ => queue.advance(round.millis(1, 60)),
        }
        queue.settle(round)?;
    }
    queue.drain(round).map_err(|what| format!("{algorithm:?} of {limit}: {what}\n{}", queue.log.join("\n")))
}

impl Queue {
    fn join(&mut self, round: &mut Round, number: usize) -> Outcome {
        let (limiter, key, limit) = (self.limiter.clone(), self.key.clone(), self.limit);
        let is_patient = !round.once_in(4);
        let max_wait = if is_patient { PATIENT } else { round.millis(0, 200) };
        let future = Box::pin(async move { limiter.wait(&key, &limit, max_wait).await });
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        self.log.push(format!("{number} begins to wait for {max_wait:?}"));
        self.waiters.push(Waiter { number, future, woken, is_stalled: false, is_patient });
        round.count("waiters", 1);
        self.poll(self.waiters.len() - 1).map(drop)
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.log.push(format!("the clock goes {by:?}"));
    }

    /// Polls one waiter. It leaves with its decision; returns whether it left.
    fn poll(&mut self, place: usize) -> Result<bool, String> {
        let waiter = &mut self.waiters[place];
        waiter.woken.0.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&waiter.woken));
        let Poll::Ready(decision) = waiter.future.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return Ok(false);
        };
        let waiter = self.waiters.remove(place);
        match decision {
            Err(error) => return Err(format!("{}: {error}", waiter.number)),
            Ok(Decision::Denied(_)) if waiter.is_patient => {
                return Err(format!("{} was denied, who can wait", waiter.number));
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

    /// Polls those who are woken until none is.
    fn settle(&mut self, round: &mut Round) -> Outcome {
        loop {
            let ready = |waiter: &Waiter| !waiter.is_stalled && waiter.woken.0.load(SeqCst);
            let woken: Vec<_> = (0..self.waiters.len()).filter(|place| ready(&self.waiters[*place])).collect();
            if woken.is_empty() {
                return Ok(());
            }
            let place = woken[round.index(woken.len())];
            self.poll(place).map_err(|what| {
                format!("{:?} of {}: {what}\n{}", self.limit.algorithm(), self.limit, self.log.join("\n"))
            })?;
        }
    }

    /// Everybody who is polled must be served, as time goes on.
    fn drain(&mut self, round: &mut Round) -> Outcome {
        let mut windows = 0;
        while self.waiters.iter().any(|waiter| !waiter.is_stalled) {
            // A window is long enough for at least one more, and what is passed over takes its time.
            for _ in 0..4 {
                self.advance(self.limit.window() / 2 + PASSED_OVER);
                self.settle(round)?;
                self.advance(PASSED_OVER + Duration::from_millis(1));
                self.settle(round)?;
            }
            windows += 1;
            if windows > 60 {
                // A wake-up may come from another thread.
                let until = Instant::now() + WAKES;
                let left = self.waiters.len();
                while Instant::now() < until && self.waiters.len() == left {
                    sleep(Duration::from_millis(1));
                    self.settle(round)?;
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
