//! Tasks that call one limiter on one key, faster than the limit allows, and write down what they see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rate_limited::{Decision, Key, Limit, Limiter, Source};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::{By, Call};

/// How many call, and how often all together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) tasks: u32,
    /// As often as the limit allows, for one window: so permits come back evenly later, and not in bursts.
    pub(super) at_first: u32,
    pub(super) calls_a_second: u32,
}

/// What is called, and since when.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    /// As of so many processes: the tasks are dealt out to them.
    pub(super) limiters: Vec<Limiter>,
    pub(super) key: Key,
    pub(super) limit: Limit,
    pub(super) origin: Instant,
}

#[derive(Debug)]
pub(super) struct Load {
    over: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Call>>,
}

impl Load {
    pub(super) fn start(on: &Handle, subject: &Subject, demand: Demand) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for task in 0..demand.tasks {
            tasks.spawn_on(calls(subject.clone(), task, demand, Arc::clone(&over)), on);
        }
        Self { over, tasks }
    }

    /// All calls, in the order of their starts.
    pub(super) async fn end(self) -> Vec<Call> {
        self.over.store(true, Relaxed);
        let mut calls = self.tasks.join_all().await.concat();
        calls.sort_by_key(|call| call.start);
        calls
    }
}

async fn calls(subject: Subject, task: u32, demand: Demand, over: Arc<AtomicBool>) -> Vec<Call> {
    let Subject { limiters, key, limit, origin } = subject;
    let limiter = &limiters[task as usize % limiters.len()];
    let pause = |a_second: u32| Duration::from_secs(1) * demand.tasks / a_second;
    let (slow, fast) = (pause(demand.at_first), pause(demand.calls_a_second));
    // Not all at once.
    let mut turn = origin + slow * task / demand.tasks;
    let mut calls = Vec::new();
    while !over.load(Relaxed) {
        sleep_until(turn.into()).await;
        let start = origin.elapsed();
        let decision = limiter.check(&key, &limit).await;
        let end = origin.elapsed();
        let (admitted, by) = match decision {
            Ok(Decision::Allowed(allowed)) => (true, who(allowed.source())),
            Ok(Decision::Denied(denied)) => (false, who(denied.source())),
            Err(_) => (false, By::Nobody),
        };
        calls.push(Call { start, end, admitted, by });
        turn = (turn + if end < limit.window() { slow } else { fast }).max(Instant::now());
    }
    calls
}

fn who(source: Source) -> By {
    match source {
        // What it denied a moment ago is denied for as long as it said.
        Source::Store | Source::DeniedUntil => By::Store,
        Source::Standby => By::Standby,
        _ => By::Nobody,
    }
}
