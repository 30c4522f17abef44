//! Many tasks that wait for a permit, each on a key of its own. In a process of its own, whose memory is that of the
//! waiting calls and of nothing else.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};

use futures_util::StreamExt;
use rate_limited::{Decision, Key, Limit, Limiter, OnError};
use serde::{Deserialize, Serialize};

use super::Stage;
use crate::cases::Case;
use crate::contestant::{Failure, Kind, failed};
use crate::sample::{Outcome, Sample};
use crate::tally::Tally;

const CALLS: usize = 10_000;
/// One permit a key in so long: time enough to take them all, and for all to be waiting before the first comes back.
const WINDOW: Duration = Duration::from_secs(3);
/// Waiting calls are measured so long after they were made.
const SETTLED: Duration = Duration::from_secs(1);
/// Keys are filled so many at once: more would pass the deadline.
const FILL: usize = 64;

/// What the process of its own says.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Waited {
    /// Resident memory, for each waiting call.
    pub bytes_a_call: f64,
    /// How long after the promised instant calls went on, in nanoseconds.
    pub late: Vec<u32>,
    /// Calls that failed or were denied, and what the first of them said.
    pub failures: u64,
    /// What the first of them said.
    pub first_failure: Option<String>,
}

pub(super) fn measure(stage: &Stage<'_>, case: &Case) -> Vec<Outcome> {
    let on_redis = stage.server.map(|server| ("on Redis", Some(server.url())));
    let stores = [Some(("in process", None)), on_redis].into_iter().flatten();
    stores
        .map(|(name, url)| {
            stage.progress.step(case.name, name);
            let mut outcome = Outcome::of(name, Kind::Ours);
            if let Some(Err(failure)) = stage.server.map(crate::server::Server::clear) {
                stage.progress.print_line(&failure);
            }
            match in_own_process(url) {
                Ok(waited) => show(waited, &mut outcome),
                Err(failure) => {
                    stage.progress.print_line(&format!("waiting {name} failed: {failure}"));
                    outcome.failure = Some(failure);
                }
            }
            outcome
        })
        .collect()
}

fn show(waited: Waited, outcome: &mut Outcome) {
    let mut tally = Tally { latencies: waited.late, ..Tally::default() };
    let mut sample = Sample::of(&mut tally);
    sample.bytes = Some(waited.bytes_a_call);
    outcome.add(sample);
    outcome.failures = waited.failures;
    outcome.note = waited
        .first_failure
        .map(|first| format!("{} of {CALLS} calls got no permit, the first: {first}", waited.failures));
}

fn in_own_process(url: Option<String>) -> Result<Waited, Failure> {
    let program = env::current_exe().map_err(failed)?;
    let output = Command::new(program).arg("wait-here").args(url).output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(failed)
}

/// What that process does.
///
/// # Errors
///
/// The store cannot be used.
pub async fn wait_here(url: Option<String>) -> Result<Waited, Failure> {
    let limiter = match url {
        None => Limiter::memory(),
        Some(url) => Limiter::builder().url(&url).on_error(OnError::Raise).connect().await.map_err(failed)?,
    };
    let limit = Limit::new(1, WINDOW).map_err(failed)?;
    let keys: Arc<Vec<_>> = Arc::new((0..CALLS).map(|key| Key::new("user:").part(key)).collect());

    let promised = promises(&limiter, &keys, limit).await?;
    let before = resident_bytes()?;
    let calls: Vec<_> = (0..CALLS)
        .map(|key| {
            let (limiter, keys) = (limiter.clone(), Arc::clone(&keys));
            tokio::spawn(async move {
                let decided = limiter.wait(&keys[key], &limit, 2 * WINDOW).await;
                (decided.map(|decision| decision.is_allowed()), Instant::now())
            })
        })
        .collect();
    tokio::time::sleep(SETTLED).await;
    if promised.iter().any(|promise| *promise < Instant::now()) {
        return Err("the machine is too slow: permits came back before all were waiting".to_owned());
    }
    let bytes_a_call = resident_bytes()?.saturating_sub(before) as f64 / CALLS as f64;

    let mut waited = Waited { bytes_a_call, ..Waited::default() };
    for (call, promise) in calls.into_iter().zip(promised) {
        let problem = match call.await.map_err(failed)? {
            (Ok(true), end) => {
                let late = end.saturating_duration_since(promise).as_nanos();
                waited.late.push(u32::try_from(late).unwrap_or(u32::MAX));
                continue;
            }
            (Ok(false), _) => "denied".to_owned(),
            (Err(error), _) => failed(error),
        };
        waited.failures += 1;
        waited.first_failure.get_or_insert(problem);
    }
    Ok(waited)
}

/// Takes the one permit of each key. When it comes back.
async fn promises(limiter: &Limiter, keys: &[Key], limit: Limit) -> Result<Vec<Instant>, Failure> {
    let taken = keys.iter().map(async |key| match limiter.check(key, &limit).await {
        Ok(Decision::Allowed(allowed)) => Ok(Instant::now() + allowed.reset_after()),
        Ok(Decision::Denied(_)) => Err("a fresh key was denied".to_owned()),
        Err(error) => Err(failed(error)),
    });
    futures_util::stream::iter(taken).buffered(FILL).collect::<Vec<_>>().await.into_iter().collect()
}

/// Of this process, as Linux counts it.
fn resident_bytes() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status").map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    let kilobytes: u64 = line.ok_or("/proc/self/status without VmRSS")?.trim().parse().map_err(failed)?;
    Ok(kilobytes * 1024)
}
