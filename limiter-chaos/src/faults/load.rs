//! Tasks that call limiters for one workload, faster than its limits allow, and record the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rate_limited::{Decision, Key, Limit, Limiter, Source};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::workload::{KEY_PERIOD, Workload};
use super::{Call, DecidedBy};

/// The time after which a call counts as hanging, even on a busy machine.
pub(super) const HANG_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of tasks, and the rate of their calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadProfile {
    pub(super) tasks: u32,
    /// The rate during the first window. It is that of the limit, so that permits expire evenly later and not in
    /// bursts.
    pub(super) initial_calls_per_second: u32,
    pub(super) calls_per_second: u32,
}

#[derive(Debug)]
pub(super) struct WorkloadTasks {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Call>>,
}

impl WorkloadTasks {
    /// Starts the tasks of a workload. They share the limiters equally, each of which stands for a process.
    pub(super) fn start(
        on: &Handle,
        limiters: &[Limiter],
        workload: &Workload,
        profile: LoadProfile,
        origin: Instant,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for (task, limiter) in (0..profile.tasks).zip(limiters.iter().cycle()) {
            let caller = CallingTask { limiter: limiter.clone(), workload: workload.clone(), origin };
            tasks.spawn_on(caller.calls(task, profile, Arc::clone(&stop)), on);
        }
        Self { stop, tasks }
    }

    /// Returns all calls, in the order of their starts.
    ///
    /// # Panics
    ///
    /// A call hangs.
    pub(super) async fn end(self) -> Vec<Call> {
        self.stop.store(true, Relaxed);
        let ended = timeout(HANG_TIMEOUT, self.tasks.join_all()).await;
        let mut calls = ended.unwrap_or_else(|_| panic!("a call hangs: no decision after {HANG_TIMEOUT:?}")).concat();
        calls.sort_by_key(|call| call.start);
        calls
    }
}

struct CallingTask {
    limiter: Limiter,
    workload: Workload,
    origin: Instant,
}

impl CallingTask {
    async fn calls(self, task: u32, profile: LoadProfile, stop: Arc<AtomicBool>) -> Vec<Call> {
        let Self { limiter, workload: Workload { keys, limits, .. }, origin } = self;
        let pause = |per_second: u32| Duration::from_secs(1) * profile.tasks / per_second;
        let (slow, fast) = (pause(profile.initial_calls_per_second), pause(profile.calls_per_second));
        let window = limits[0].window();
        let next = |pause: Duration, now| next_turn(now, pause, pause * task / profile.tasks);
        // The slow rate ends with the first window, even for a task that had no turn by then.
        let turn_after = |now: Duration| match next(slow, now) {
            turn if turn < window => turn,
            _ => next(fast, now.max(window)),
        };
        let mut turn = turn_after(Duration::ZERO);
        let mut calls = Vec::new();
        while !stop.load(Relaxed) {
            sleep_until((origin + turn).into()).await;
            let start = origin.elapsed();
            let key = usize::try_from(start.as_nanos() / KEY_PERIOD.as_nanos()).unwrap_or(0) % keys.len();
            let decision = decide(&limiter, &keys[key], &limits).await;
            let end = origin.elapsed();
            let (admitted, decided_by) = match decision {
                Ok(Decision::Allowed(allowed)) => (true, decider(allowed.source())),
                Ok(Decision::Denied(denied)) => (false, decider(denied.source())),
                Err(_) => (false, DecidedBy::NoCounter),
            };
            calls.push(Call { start, end, admitted, decided_by, key });
            turn = turn_after(end.max(turn));
        }
        calls
    }
}

/// Returns the first turn after `now`. Turns are `pause` apart, beginning at `first`. A slow call skips turns:
/// otherwise the tasks that waited for the same fault would all call at the same time from then on.
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

fn decider(source: Source) -> DecidedBy {
    match source {
        // A cached denial is one of the store.
        Source::Store | Source::DeniedUntil => DecidedBy::Store,
        Source::Lease => DecidedBy::Lease,
        Source::Standby => DecidedBy::Standby,
        _ => DecidedBy::NoCounter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_keeps_its_phase_after_a_slow_call() {
        let millis = Duration::from_millis;
        for (now, turn) in [(0, 7), (6, 7), (7, 57), (56, 57), (57, 107), (300, 307)] {
            assert_eq!(next_turn(millis(now), millis(50), millis(7)), millis(turn), "at {now} ms");
        }
    }
}
