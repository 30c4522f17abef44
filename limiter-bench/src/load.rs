//! Tasks that ask, each one call after the other, for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::contestant::{Contestant, Failure, Verdict};
use crate::kept::Admitted;
use crate::order::{Order, Picker};
use crate::tally::Tally;

/// How much longer than it should a run may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Debug, Clone)]
pub struct Load {
    /// How many tasks.
    pub tasks: usize,
    /// On which keys.
    pub order: Order,
    /// For how long.
    pub duration: Duration,
    /// When the history of admissions begins.
    pub origin: Instant,
}

pub(crate) async fn run<C: Contestant>(contestant: &Arc<C>, load: &Load) -> Result<Tally, Failure> {
    let began = Instant::now();
    let until = began + load.duration;
    let mut tasks = JoinSet::new();
    for number in 0..load.tasks {
        let picker = load.order.picker(number);
        tasks.spawn(ask(Arc::clone(contestant), picker, load.origin, until));
    }
    let all = async {
        let mut tally = Tally::default();
        while let Some(task) = tasks.join_next().await {
            tally.add(task.map_err(|error| format!("a call panicked: {error}"))?);
        }
        tally.took = began.elapsed();
        Ok(tally)
    };
    match tokio::time::timeout(load.duration + PATIENCE, all).await {
        Ok(tally) => tally,
        Err(_) => Err(format!("calls hang: no answer within {PATIENCE:?}")),
    }
}

async fn ask<C: Contestant>(contestant: Arc<C>, mut keys: Picker, origin: Instant, until: Instant) -> Tally {
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
                tally.time(end - start);
                if verdict == Verdict::Allowed {
                    tally.admissions.push(Admitted { key, start: start - origin, end: end - origin });
                }
            }
            Err(failure) => tally.fail(failure),
        }
        // Who answers without waiting would never let another task run.
        tokio::task::coop::consume_budget().await;
    }
    tally
}
