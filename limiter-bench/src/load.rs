//! Tasks that each make one call after the other for a limited time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::contestant::{Contestant, Failure, Verdict};
use crate::kept::Admitted;
use crate::order::{Order, Picker};
use crate::tally::Tally;

/// The time by which a run may exceed its duration before it fails.
const MAX_OVERRUN: Duration = Duration::from_secs(5);

/// The calls of one run.
#[derive(Debug, Clone)]
pub struct Load {
    /// The number of tasks.
    pub tasks: usize,
    /// The order of keys.
    pub order: Order,
    /// The time for which tasks make calls.
    pub duration: Duration,
    /// The start of the history of admissions.
    pub origin: Instant,
}

pub(crate) async fn run<C: Contestant>(contestant: &Arc<C>, load: &Load) -> Result<Tally, Failure> {
    let began = Instant::now();
    let until = began + load.duration;
    let mut tasks = JoinSet::new();
    for number in 0..load.tasks {
        let picker = load.order.picker(number);
        tasks.spawn(run_task(Arc::clone(contestant), picker, load.origin, until));
    }
    let all = async {
        let mut tally = Tally::default();
        while let Some(task) = tasks.join_next().await {
            tally.add(task.map_err(|error| format!("a call panicked: {error}"))?);
        }
        tally.took = began.elapsed();
        Ok(tally)
    };
    match tokio::time::timeout(load.duration + MAX_OVERRUN, all).await {
        Ok(tally) => tally,
        Err(_) => Err(format!("calls hang: no decision within {MAX_OVERRUN:?}")),
    }
}

async fn run_task<C: Contestant>(contestant: Arc<C>, mut keys: Picker, origin: Instant, until: Instant) -> Tally {
    let mut tally = Tally::default();
    while let Some(key) = keys.next_key() {
        let start = Instant::now();
        if start >= until {
            break;
        }
        let decided = contestant.decide(key).await;
        let end = Instant::now();
        match decided {
            Ok(verdict) => {
                tally.count(verdict);
                tally.record_latency(end - start);
                if verdict == Verdict::Allowed {
                    tally.admissions.push(Admitted { key, start: start - origin, end: end - origin });
                }
            }
            Err(failure) => tally.fail(failure),
        }
        // A contestant that never waits would never let another task run.
        tokio::task::coop::consume_budget().await;
    }
    tally
}
