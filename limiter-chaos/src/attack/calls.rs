//! Tasks that call a limiter on a real clock and record the results.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter_testkit::Random;
use rate_limited::{Allowed, Decision, Key, Limit, Limiter, Source};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dropping::DropPoint;
use super::round::Round;
use super::schedules::ALGORITHMS;

/// A key, and the one limit of all calls on it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) key: Key,
    pub(super) limit: Limit,
    /// The highest cost of a call.
    pub(super) cost: u32,
    /// True if tasks reset the key now and then.
    pub(super) resets: bool,
}

impl Target {
    /// Returns one target for each algorithm, with random limits and windows between these lengths in milliseconds. In a
    /// round with leases it returns two that are leased.
    pub(super) fn for_round(round: &mut Round, windows: (u64, u64)) -> Vec<Self> {
        if round.leases {
            return (0..LEASED_TARGETS).map(|number| Self::leased(round, number, windows)).collect();
        }
        ALGORITHMS.iter().map(|algorithm| Self::random(round, *algorithm, windows)).collect()
    }

    /// Returns a target with a limit of which leases are granted.
    fn leased(round: &mut Round, number: u32, (low, high): (u64, u64)) -> Self {
        let limit = Limit::new(round.small(100, 3_000), round.millis(low, high)).expect("a limit");
        let cost = if round.once_in(2) { 1 } else { 3 };
        Self { key: Key::new("leased:").part(number), limit, cost, resets: false }
    }

    fn random(round: &mut Round, algorithm: rate_limited::Algorithm, (low, high): (u64, u64)) -> Self {
        let max = round.small(2, 40);
        let limit = Limit::new(max, round.millis(low, high)).expect("a limit").with_algorithm(algorithm);
        let is_bucket =
            matches!(algorithm, rate_limited::Algorithm::TokenBucket | rate_limited::Algorithm::LeakyBucket);
        let limit = if is_bucket { limit.with_burst(round.small(2, 40)).expect("a bucket") } else { limit };
        let cost = if round.once_in(2) { 1 } else { limit.burst().min(3) };
        Self { key: Key::new("attacked:").part(format!("{algorithm:?}")), limit, cost, resets: false }
    }
}

/// The number of keys in a round with leases: few, so that each is busy.
const LEASED_TARGETS: u32 = 2;

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallResult {
    Allowed(Source),
    Denied(Source),
    /// Allowed, and refunded later.
    Refunded,
    /// Dropped before its decision: it may have taken its permits.
    Dropped,
    Failed,
    /// A charge that was counted: the cost is what was counted. One without a reply is `Dropped` or `Failed`.
    Charged,
    /// A reset, which takes no permits.
    Reset,
}

/// One call. Instants are since the load began, and by the system's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallRecord {
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) wall_start: Duration,
    pub(super) wall_end: Duration,
    pub(super) cost: u32,
    pub(super) result: CallResult,
}

/// A call that was allowed and not refunded.
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

impl CallRecord {
    pub(super) fn admitted(&self) -> Option<Admitted> {
        let Self { start, end, wall_start, wall_end, cost, result } = *self;
        match result {
            CallResult::Allowed(source) => Some(Admitted { start, end, wall_start, wall_end, cost, source }),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Admitted {
    pub(super) fn instantaneous(at: Duration, cost: u32) -> Self {
        Self { start: at, end: at, wall_start: at, wall_end: at, cost, source: Source::Store }
    }
}

/// Returns the allowed calls, split by the resets. Calls that overlap a reset are left out.
pub(super) fn admitted_between_resets(calls: &[CallRecord]) -> Vec<Vec<Admitted>> {
    between_resets(calls).iter().map(|part| part.iter().filter_map(CallRecord::admitted).collect()).collect()
}

/// Returns the calls, split by the resets. Calls that overlap a reset are left out.
pub(super) fn between_resets(calls: &[CallRecord]) -> Vec<Vec<CallRecord>> {
    let mut resets: Vec<_> = calls.iter().filter(|call| call.result == CallResult::Reset).collect();
    resets.sort_by_key(|reset| reset.start);
    let mut parts = Vec::new();
    let mut from = Duration::ZERO;
    for end in resets.iter().map(|reset| reset.start).chain([Duration::MAX]) {
        let within = |call: &&CallRecord| call.start >= from && call.end <= end;
        parts.push(calls.iter().filter(within).copied().collect());
        from = resets.iter().filter(|reset| reset.start <= end).map(|reset| reset.end).max().unwrap_or(from);
    }
    parts
}

/// The parameters of the tasks' calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) tasks: u64,
    /// The longest pause between two calls of a task.
    pub(super) pause: Duration,
    /// One of this many calls is dropped early.
    pub(super) drop_one_in: u64,
    /// True if some allowed calls are refunded.
    pub(super) refunds: bool,
    /// True if some calls are charges, and some are settled.
    pub(super) charges: bool,
}

impl Demand {
    /// Returns random parameters for this number of tasks.
    pub(super) fn random(round: &mut Round, tasks: u64) -> Self {
        let longest = if round.leases { 4 } else { 15 };
        let (pause, drop_one_in) = (round.millis(2, longest), round.random.between(5, 50));
        Self { tasks, pause, drop_one_in, refunds: round.once_in(2), charges: round.once_in(2) }
    }
}

/// Tasks that call until they are stopped.
#[derive(Debug)]
pub(super) struct Load {
    control: Arc<LoadControl>,
    tasks: JoinSet<(usize, Vec<CallRecord>)>,
    origin: Instant,
    targets: usize,
}

/// Tells the tasks of a load what to do.
#[derive(Debug, Default)]
struct LoadControl {
    stop: AtomicBool,
    /// The number of times that receipts were discarded.
    discarded: AtomicU64,
}

impl LoadControl {
    fn discard_receipts(&self) {
        self.discarded.fetch_add(1, Relaxed);
    }
}

impl Load {
    pub(super) fn start(
        on: &Handle,
        limiters: &[Limiter],
        targets: &[Target],
        demand: Demand,
        round: &mut Round,
    ) -> Self {
        let control = Arc::new(LoadControl::default());
        let origin = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..demand.tasks {
            let number = usize::try_from(task).expect("small");
            let target_index = number % targets.len();
            let caller = Caller {
                limiter: limiters[number / targets.len() % limiters.len()].clone(),
                target: targets[target_index].clone(),
                random: Random::new(round.random.any()),
                origin,
                control: Arc::clone(&control),
                discarded: 0,
                calls: Vec::new(),
                receipts: Vec::new(),
            };
            tasks.spawn_on(async move { (target_index, caller.run(demand).await) }, on);
        }
        Self { control, tasks, origin, targets: targets.len() }
    }

    /// Returns the time since the load began.
    pub(super) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Discards the receipts of all calls so far.
    pub(super) fn discard_receipts(&self) {
        self.control.discard_receipts();
    }

    /// Stops the tasks and returns the calls of each target.
    pub(super) async fn stop(self, round: &mut Round) -> Vec<Vec<CallRecord>> {
        self.control.stop.store(true, Relaxed);
        let mut calls = vec![Vec::new(); self.targets];
        for (target_index, task_calls) in self.tasks.join_all().await {
            calls[target_index].extend(task_calls);
        }
        for call in calls.iter().flatten() {
            round.count("calls", 1);
            match call.result {
                CallResult::Allowed(Source::Standby) => round.count("allowed by the standby limiter", 1),
                CallResult::Allowed(Source::Lease) => round.count("allowed by leases", 1),
                CallResult::Allowed(_) => round.count("allowed", 1),
                CallResult::Denied(_) => round.count("denied", 1),
                CallResult::Refunded => round.count("refunded", 1),
                CallResult::Dropped => round.count("dropped", 1),
                CallResult::Failed => round.count("failed", 1),
                CallResult::Charged => round.count("charged", 1),
                CallResult::Reset => round.count("resets", 1),
            }
        }
        calls
    }
}

struct Caller {
    limiter: Limiter,
    target: Target,
    random: Random,
    origin: Instant,
    control: Arc<LoadControl>,
    /// The number of times that receipts were discarded here.
    discarded: u64,
    calls: Vec<CallRecord>,
    /// The allowed calls that can be refunded, with their indexes in `calls`.
    receipts: Vec<(usize, Allowed)>,
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

impl Caller {
    async fn run(mut self, demand: Demand) -> Vec<CallRecord> {
        while !self.control.stop.load(Relaxed) {
            let longest = u64::try_from(demand.pause.as_micros()).expect("short");
            sleep(Duration::from_micros(self.random.below(longest))).await;
            let discarded = self.control.discarded.load(Relaxed);
            if discarded != self.discarded {
                self.discarded = discarded;
                self.receipts.clear();
            }
            match self.random.below(40) {
                0 | 1 if demand.refunds => self.refund(demand).await,
                2 if self.target.resets => self.reset().await,
                3 | 4 if demand.charges => self.charge(demand).await,
                5 | 6 if demand.charges => self.settle(demand).await,
                _ => self.call(demand).await,
            }
        }
        self.calls
    }

    async fn call(&mut self, demand: Demand) {
        let Target { key, limit, cost, .. } = &self.target;
        let (cost, waits) = (1 + self.random.below(u64::from(*cost)), self.random.below(12) == 0);
        let cost = u32::try_from(if waits { 1 } else { cost }).expect("small");
        let drop_point = DropPoint::random(&mut self.random, demand.drop_one_in);
        let max_wait = Duration::from_millis(self.random.below(40));
        let (start, wall_start) = (self.origin.elapsed(), wall_clock());
        let decision = match waits {
            true => drop_point.run(self.limiter.wait(key, limit, max_wait)).await,
            false => drop_point.run(self.limiter.check_n(key, limit, cost)).await,
        };
        let (end, wall_end) = (self.origin.elapsed(), wall_clock());
        let result = match decision {
            None => CallResult::Dropped,
            Some(Err(_)) => CallResult::Failed,
            Some(Ok(Decision::Denied(denied))) => CallResult::Denied(denied.source()),
            Some(Ok(Decision::Allowed(allowed))) => {
                let source = allowed.source();
                // A receipt of a call that began before they were discarded is discarded too.
                if self.control.discarded.load(Relaxed) == self.discarded {
                    self.receipts.push((self.calls.len(), allowed));
                }
                CallResult::Allowed(source)
            }
        };
        self.calls.push(CallRecord { start, end, wall_start, wall_end, cost, result });
    }

    /// Charges up to twice the cost of a call.
    async fn charge(&mut self, demand: Demand) {
        let Target { key, limit, cost, .. } = &self.target;
        let cost = u32::try_from(1 + self.random.below(2 * u64::from(*cost))).expect("small");
        let drop_point = DropPoint::random(&mut self.random, demand.drop_one_in);
        let (start, wall_start) = (self.origin.elapsed(), wall_clock());
        let usage = drop_point.run(self.limiter.charge(key, limit, cost)).await;
        let (end, wall_end) = (self.origin.elapsed(), wall_clock());
        let (cost, result) = match usage {
            None => (cost, CallResult::Dropped),
            Some(Err(_)) => (cost, CallResult::Failed),
            Some(Ok(usage)) => (cost - usage.uncounted(), CallResult::Charged),
        };
        self.calls.push(CallRecord { start, end, wall_start, wall_end, cost, result });
    }

    /// Refunds one of the last calls. A refund that fails or is dropped may or may not have succeeded.
    async fn refund(&mut self, demand: Demand) {
        if self.receipts.is_empty() {
            return;
        }
        let last = usize::try_from(self.random.below(8)).expect("small").min(self.receipts.len() - 1);
        let (index, allowed) = self.receipts.swap_remove(self.receipts.len() - 1 - last);
        self.calls[index].result = CallResult::Refunded;
        let drop_point = DropPoint::random(&mut self.random, demand.drop_one_in);
        drop(drop_point.run(self.limiter.refund(&allowed)).await);
    }

    /// Settles one of the last calls to up to twice its cost. What it gives back counts for nothing here: it may not be back.
    /// What it counts in addition is a charge.
    async fn settle(&mut self, demand: Demand) {
        if self.receipts.is_empty() {
            return;
        }
        let last = usize::try_from(self.random.below(8)).expect("small").min(self.receipts.len() - 1);
        let (index, allowed) = self.receipts.swap_remove(self.receipts.len() - 1 - last);
        let held = self.calls[index].cost;
        let actual = u32::try_from(self.random.below(2 * u64::from(held) + 1)).expect("small");
        self.calls[index].cost = held.min(actual);
        let drop_point = DropPoint::random(&mut self.random, demand.drop_one_in);
        let (start, wall_start) = (self.origin.elapsed(), wall_clock());
        let usage = drop_point.run(self.limiter.settle(&allowed, actual)).await;
        let (end, wall_end) = (self.origin.elapsed(), wall_clock());
        let added = actual.saturating_sub(held);
        let (cost, result) = match usage {
            None => (added, CallResult::Dropped),
            Some(Err(_)) => (added, CallResult::Failed),
            Some(Ok(usage)) => (added.saturating_sub(usage.uncounted()), CallResult::Charged),
        };
        if added > 0 {
            self.calls.push(CallRecord { start, end, wall_start, wall_end, cost, result });
        }
        // A second settlement changes nothing.
        if self.random.below(2) == 0 {
            drop(self.limiter.settle(&allowed, 100).await);
        }
    }

    async fn reset(&mut self) {
        let (start, wall_start) = (self.origin.elapsed(), wall_clock());
        // A receipt from before a reset may match permits that are taken within the same millisecond after it.
        self.control.discard_receipts();
        drop(self.limiter.reset(&self.target.key, &self.target.limit).await);
        self.control.discard_receipts();
        let (end, wall_end) = (self.origin.elapsed(), wall_clock());
        self.calls.push(CallRecord { start, end, wall_start, wall_end, cost: 0, result: CallResult::Reset });
    }
}
