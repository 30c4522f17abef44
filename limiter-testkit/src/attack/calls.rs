//! Tasks that call a limiter on a real clock, and write down what they got.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rate_limited::{Allowed, Decision, Key, Limit, Limiter, Source};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dropping::Until;
use super::round::Round;
use super::schedules::ALGORITHMS;
use crate::random::Random;

/// A key, and the one limit that all calls on it give.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) key: Key,
    pub(super) limit: Limit,
    /// The highest cost of a call.
    pub(super) cost: u32,
    /// Whether it is reset now and then.
    pub(super) resets: bool,
}

impl Subject {
    /// Returns one subject for each algorithm, of random limits with windows between these lengths.
    pub(super) fn of_all_algorithms(round: &mut Round, windows: (u64, u64)) -> Vec<Self> {
        ALGORITHMS.iter().map(|algorithm| Self::random(round, *algorithm, windows)).collect()
    }

    pub(super) fn random(round: &mut Round, algorithm: rate_limited::Algorithm, (low, high): (u64, u64)) -> Self {
        let max = round.small(2, 40);
        let limit = Limit::new(max, round.millis(low, high)).expect("a limit").with_algorithm(algorithm);
        let is_bucket =
            matches!(algorithm, rate_limited::Algorithm::TokenBucket | rate_limited::Algorithm::LeakyBucket);
        let limit = if is_bucket { limit.with_burst(round.small(2, 40)).expect("a bucket") } else { limit };
        let cost = if round.once_in(2) { 1 } else { limit.burst().min(3) };
        Self { key: Key::new("attacked:").part(format!("{algorithm:?}")), limit, cost, resets: false }
    }
}

/// The end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Allowed(Source),
    Denied(Source),
    /// Allowed, and given back later.
    Refunded,
    /// Dropped before its answer: it may have taken its permits.
    Dropped,
    Failed,
    /// A reset, which has no permits.
    Reset,
}

/// One call. Instants are since the load began, and by the system's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) wall_start: Duration,
    pub(super) wall_end: Duration,
    pub(super) cost: u32,
    pub(super) ending: Ending,
}

/// A call that was allowed and not given back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) wall_start: Duration,
    pub(super) wall_end: Duration,
    pub(super) cost: u32,
    pub(super) source: Source,
}

impl fmt::Display for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, cost, source, .. } = self;
        let millis = |at: &Duration| at.as_secs_f64() * 1e3;
        write!(f, "{:.2}-{:.2} ms", millis(start), millis(end))?;
        if *cost != 1 {
            write!(f, " cost {cost}")?;
        }
        if *source == Source::Store { Ok(()) } else { write!(f, " {source:?}") }
    }
}

impl Call {
    fn admitted(&self) -> Option<Admitted> {
        let Self { start, end, wall_start, wall_end, cost, ending } = *self;
        match ending {
            Ending::Allowed(source) => Some(Admitted { start, end, wall_start, wall_end, cost, source }),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Admitted {
    pub(super) fn at(at: Duration, cost: u32) -> Self {
        Self { start: at, end: at, wall_start: at, wall_end: at, cost, source: Source::Store }
    }
}

/// Returns the allowed calls, apart from those before each reset and after it. What overlaps a reset belongs to no part.
pub(super) fn admitted_between_resets(calls: &[Call]) -> Vec<Vec<Admitted>> {
    let mut resets: Vec<_> = calls.iter().filter(|call| call.ending == Ending::Reset).collect();
    resets.sort_by_key(|reset| reset.start);
    let mut parts = Vec::new();
    let mut from = Duration::ZERO;
    for until in resets.iter().map(|reset| reset.start).chain([Duration::MAX]) {
        let within = |call: &Admitted| call.start >= from && call.end <= until;
        parts.push(calls.iter().filter_map(Call::admitted).filter(within).collect());
        from = resets.iter().filter(|reset| reset.start <= until).map(|reset| reset.end).max().unwrap_or(from);
    }
    parts
}

/// How the tasks call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) tasks: u64,
    /// The longest pause between two calls of a task.
    pub(super) pause: Duration,
    /// One of so many calls is dropped early.
    pub(super) drops: u64,
    /// Whether some of what was allowed is given back.
    pub(super) refunds: bool,
}

impl Demand {
    /// Returns the demand of so many tasks.
    pub(super) fn random(round: &mut Round, tasks: u64) -> Self {
        let (pause, drops) = (round.millis(2, 15), round.random.between(5, 50));
        Self { tasks, pause, drops, refunds: round.once_in(2) }
    }
}

/// Tasks that call until they are told to stop.
#[derive(Debug)]
pub(super) struct Load {
    over: Arc<AtomicBool>,
    tasks: JoinSet<(usize, Vec<Call>)>,
    origin: Instant,
    subjects: usize,
}

impl Load {
    pub(super) fn start(
        on: &Handle,
        limiters: &[Limiter],
        subjects: &[Subject],
        demand: Demand,
        round: &mut Round,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let origin = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..demand.tasks {
            let number = usize::try_from(task).expect("small");
            let which = number % subjects.len();
            let caller = Caller {
                limiter: limiters[number / subjects.len() % limiters.len()].clone(),
                subject: subjects[which].clone(),
                random: Random::new(round.random.any()),
                origin,
                calls: Vec::new(),
                receipts: Vec::new(),
            };
            let over = Arc::clone(&over);
            tasks.spawn_on(async move { (which, caller.run(demand, &over).await) }, on);
        }
        Self { over, tasks, origin, subjects: subjects.len() }
    }

    /// Returns the time since the load began.
    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Stops the tasks and returns the calls of each subject.
    pub(super) async fn stop(self, round: &mut Round) -> Vec<Vec<Call>> {
        self.over.store(true, Relaxed);
        let mut calls = vec![Vec::new(); self.subjects];
        for (which, of_task) in self.tasks.join_all().await {
            calls[which].extend(of_task);
        }
        for call in calls.iter().flatten() {
            round.count("calls", 1);
            match call.ending {
                Ending::Allowed(Source::Standby) => round.count("allowed by the standby limiter", 1),
                Ending::Allowed(_) => round.count("allowed", 1),
                Ending::Denied(_) => round.count("denied", 1),
                Ending::Refunded => round.count("refunded", 1),
                Ending::Dropped => round.count("dropped", 1),
                Ending::Failed => round.count("failed", 1),
                Ending::Reset => round.count("resets", 1),
            }
        }
        calls
    }
}

struct Caller {
    limiter: Limiter,
    subject: Subject,
    random: Random,
    origin: Instant,
    calls: Vec<Call>,
    /// Of calls that can be given back, with their places among the calls.
    receipts: Vec<(usize, Allowed)>,
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

impl Caller {
    async fn run(mut self, demand: Demand, over: &AtomicBool) -> Vec<Call> {
        while !over.load(Relaxed) {
            let longest = u64::try_from(demand.pause.as_micros()).expect("short");
            sleep(Duration::from_micros(self.random.below(longest))).await;
            match self.random.below(40) {
                0 | 1 if demand.refunds => self.refund(demand).await,
                2 if self.subject.resets => self.reset().await,
                _ => self.call(demand).await,
            }
        }
        self.calls
    }

    async fn call(&mut self, demand: Demand) {
        let Subject { key, limit, cost, .. } = &self.subject;
        let (cost, waits) = (1 + self.random.below(u64::from(*cost)), self.random.below(12) == 0);
        let cost = u32::try_from(if waits { 1 } else { cost }).expect("small");
        let until = Until::random(&mut self.random, demand.drops);
        let max_wait = Duration::from_millis(self.random.below(40));
        let (start, wall_start) = (self.origin.elapsed(), wall());
        let decision = match waits {
            true => until.run(self.limiter.wait(key, limit, max_wait)).await,
            false => until.run(self.limiter.check_n(key, limit, cost)).await,
        };
        let (end, wall_end) = (self.origin.elapsed(), wall());
        let ending = match decision {
            None => Ending::Dropped,
            Some(Err(_)) => Ending::Failed,
            Some(Ok(Decision::Denied(denied))) => Ending::Denied(denied.source()),
            Some(Ok(Decision::Allowed(allowed))) => {
                let source = allowed.source();
                self.receipts.push((self.calls.len(), allowed));
                Ending::Allowed(source)
            }
        };
        self.calls.push(Call { start, end, wall_start, wall_end, cost, ending });
    }

    /// Gives back what one of the last calls took. Whether that succeeds is not known if it fails or is dropped.
    async fn refund(&mut self, demand: Demand) {
        if self.receipts.is_empty() {
            return;
        }
        let last = usize::try_from(self.random.below(8)).expect("small").min(self.receipts.len() - 1);
        let (place, allowed) = self.receipts.swap_remove(self.receipts.len() - 1 - last);
        self.calls[place].ending = Ending::Refunded;
        let until = Until::random(&mut self.random, demand.drops);
        drop(until.run(self.limiter.refund(&allowed)).await);
    }

    async fn reset(&mut self) {
        let (start, wall_start) = (self.origin.elapsed(), wall());
        drop(self.limiter.reset(&self.subject.key, &self.subject.limit).await);
        let (end, wall_end) = (self.origin.elapsed(), wall());
        self.calls.push(Call { start, end, wall_start, wall_end, cost: 0, ending: Ending::Reset });
        self.receipts.clear();
    }
}
