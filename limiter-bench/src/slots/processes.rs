//! Processes whose tasks hold slots of one key.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use rate_limited::{Key, Limit, Limiter, OnError};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::contestant::{Failure, failed};
use crate::server::Server;

/// The time for all processes to start and to connect.
const START_TIME: Duration = Duration::from_secs(2);
/// The time in which processes find their shares, which is not measured.
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
/// The most that a task waits for a slot.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The tasks of one process.
#[derive(Debug, Clone, Copy, Args)]
pub struct Crew {
    /// The limit.
    pub slots: u32,
    /// The tasks.
    pub tasks: u32,
    /// The time for which each holds a slot.
    pub call_ms: u64,
    /// The time from a call of a task to its next.
    pub pause_ms: u64,
}

/// The slots and the calls of one process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Held {
    /// The mean number of slots.
    pub slots: f64,
    /// The calls that ended.
    pub calls: u64,
}

/// Runs one process for each crew, all at the same time.
pub(super) fn run_crews<const N: usize>(server: &Server, crews: [Crew; N]) -> Result<[Held; N], Failure> {
    let program = env::current_exe().map_err(failed)?;
    let start = (SystemTime::now() + START_TIME).duration_since(UNIX_EPOCH).map_err(failed)?.as_millis();
    let mut processes = Vec::new();
    for crew in crews {
        let numbers = [u64::from(crew.slots), crew.tasks.into(), crew.call_ms, crew.pause_ms].map(|n| n.to_string());
        let mut command = Command::new(&program);
        command.arg("slots-here").arg(server.url()).arg(start.to_string()).args(numbers);
        processes.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?);
    }
    let held = processes.into_iter().map(held_by).collect::<Result<Vec<_>, _>>()?;
    held.try_into().map_err(|_| "a process is missing".to_owned())
}

fn held_by(process: Child) -> Result<Held, Failure> {
    let output = process.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(failed)
}

/// Runs a crew and measures it. This is the work of its process. `start` is in milliseconds since 1970.
///
/// # Errors
///
/// The store cannot be used, or a call fails.
pub async fn hold_here(url: &str, start: u64, crew: Crew) -> Result<Held, Failure> {
    let limiter = Limiter::builder().url(url).on_error(OnError::Raise).connect().await.map_err(failed)?;
    let limit = Limit::concurrent(crew.slots).map_err(failed)?;
    let start = UNIX_EPOCH + Duration::from_millis(start);
    let ahead = start.duration_since(SystemTime::now()).map_err(|_| "the machine is too slow to start processes")?;
    let start = Instant::now() + ahead;
    let mut tasks = JoinSet::new();
    for _ in 0..crew.tasks {
        tasks.spawn(hold_in_turn(limiter.clone(), limit, crew, start));
    }
    let mut held = Held::default();
    while let Some(task) = tasks.join_next().await {
        let of_task = task.map_err(failed)??;
        held.slots += of_task.slots;
        held.calls += of_task.calls;
    }
    Ok(held)
}

async fn hold_in_turn(limiter: Limiter, limit: Limit, crew: Crew, start: Instant) -> Result<Held, Failure> {
    let (key, begin) = (Key::new("slots"), start + WARM_UP);
    let (end, mut held) = (begin + MEASURED, Held::default());
    sleep_until(start.into()).await;
    while Instant::now() < end {
        let entry = limiter.enter_wait(&key, &limit, MAX_WAIT).await.map_err(failed)?;
        let Some(entered) = entry.entered() else { return Err("a task waited in vain".to_owned()) };
        let entered_at = Instant::now();
        sleep(Duration::from_millis(crew.call_ms)).await;
        entered.leave();
        let left_at = Instant::now();
        let counted = left_at.min(end).saturating_duration_since(entered_at.max(begin));
        held.slots += counted.as_secs_f64() / MEASURED.as_secs_f64();
        held.calls += u64::from((begin..end).contains(&left_at));
        if crew.pause_ms > 0 {
            sleep(Duration::from_millis(crew.pause_ms)).await;
        }
    }
    Ok(held)
}
