//! Tasks that call limiters for one subject, faster than its limits allow, and write down what they see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rate_limited::{Decision, Key, Limit, Limiter, Source};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::subject::{Subject, TURN};
use super::{By, Call};

/// Longer than any call may take, however busy the machine: after that it hangs.
pub(super) const HANGS: Duration = Duration::from_secs(20);

/// How many call, and how often all together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) tasks: u32,
    /// As often as the limit allows, for one window: so permits come back evenly later, and not in bursts.
    pub(super) at_first: u32,
    pub(super) calls_a_second: u32,
}

#[derive(Debug)]
pub(super) struct Load {
    over: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Call>>,
}

impl Load {
    /// Starts the tasks of a subject. They are dealt out to the limiters, which stand for a process each.
    pub(super) fn start(on: &Handle, limiters: &[Limiter], subject: &Subject, demand: Demand, origin: Instant) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (task, limiter) in (0..demand.tasks).zip(limiters.iter().cycle()) {
            let caller = Caller { limiter: limiter.clone(), subject: subject.clone(), origin };
            tasks.spawn_on(caller.calls(task, demand, Arc::clone(&over)), on);
        }
        Self { over, tasks }
    }

    /// Returns all calls, in the order of their starts.
    ///
    /// # Panics
    ///
    /// A call hangs.
    pub(super) async fn end(self) -> Vec<Call> {
        self.over.store(true, Relaxed);
        let ended = timeout(HANGS, self.tasks.join_all()).await;
        let mut calls = ended.unwrap_or_else(|_| panic!("a call hangs: no decision after {HANGS:?}")).concat();
        calls.sort_by_key(|call| call.start);
        calls
    }
}

struct Caller {
    limiter: Limiter,
    subject: Subject,
    origin: Instant,
}

impl Caller {
    async fn calls(self, task: u32, demand: Demand, over: Arc<AtomicBool>) -> Vec<Call> {
        let Self { limiter, subject: Subject { keys, limits, .. }, origin } = self;
        let pause = |a_second: u32| Duration::from_secs(1) * demand.tasks / a_second;
        let (slow, fast) = (pause(demand.at_first), pause(demand.calls_a_second));
        let window = limits[0].window();
        let next = |pause: Duration, now| next_turn(now, pause, pause * task / demand.tasks);
        // The slow turns end with the first window, also for a task that has had none by then.
        let after = |now: Duration| match next(slow, now) {
            turn if turn < window => turn,
            _ => next(fast, now.max(window)),
        };
        let mut turn = after(Duration::ZERO);
        let mut calls = Vec::new();
        while !over.load(Relaxed) {
            sleep_until((origin + turn).into()).await;
            let start = origin.elapsed();
            let key = usize::try_from(start.as_nanos() / TURN.as_nanos()).unwrap_or(0) % keys.len();
            let decision = decide(&limiter, &keys[key], &limits).await;
            let end = origin.elapsed();
            let (admitted, by) = match decision {
                Ok(Decision::Allowed(allowed)) => (true, by(allowed.source())),
                Ok(Decision::Denied(denied)) => (false, by(denied.source())),
                Err(_) => (false, By::Nobody),
            };
            calls.push(Call { start, end, admitted, by, key });
            turn = after(end.max(turn));
        }
        calls
    }
}

/// Returns the first turn after `now` of those that are `pause` apart, from `first` on. A call that took long skips turns: tasks that
/// waited for the same fault would otherwise call all at once ever after.
fn next_turn(now: Duration, pause: Duration, first: Duration) -> Duration {
    let Some(since) = now.checked_sub(first) else { return first };
    let passed = u32::try_from(since.as_nanos() / pause.as_nanos()).expect("a short run");
    first + pause * (passed + 1)
}

async fn decide(limiter: &Limiter, key: &Key, limits: &[Limit]) -> Result<Decision, rate_limited::Error> {
    if let [limit] = limits {
        return limiter.check(key, limit).await;
    }
    let all: Vec<_> = limits.iter().map(|limit| (key, limit, 1)).collect();
    limiter.check_all(&all).await
}

fn by(source: Source) -> By {
    match source {
        // What it denied a moment ago is denied for as long as it said.
        Source::Store | Source::DeniedUntil => By::Store,
        Source::Standby => By::Standby,
        _ => By::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_keeps_its_place_between_the_others_however_long_a_call_takes() {
        let millis = Duration::from_millis;
        for (now, turn) in [(0, 7), (6, 7), (7, 57), (56, 57), (57, 107), (300, 307)] {
            assert_eq!(next_turn(millis(now), millis(50), millis(7)), millis(turn), "at {now} ms");
        }
    }
}
