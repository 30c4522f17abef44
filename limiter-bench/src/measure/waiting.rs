//! Many tasks that wait for a permit, each on a key of its own. They run in a process of their own, so that the growth
//! of its memory is that of the waiting calls alone.

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
/// The window of the one permit of each key. It is long enough to take all permits and to start all waiting calls
/// before the first permit comes back.
const WINDOW: Duration = Duration::from_secs(3);
/// The time from the start of the waiting calls to the measurement.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// The most keys that are filled at once. With more, calls would exceed their deadline.
const MAX_FILLING_CALLS: usize = 64;

/// The result of that process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Waited {
    /// Resident memory of a waiting call, in bytes.
    pub bytes_a_call: f64,
    /// Delays of the calls after their promised instants, in nanoseconds.
    pub late: Vec<u32>,
    /// The number of calls that failed or were denied.
    pub failures: u64,
    /// The reason of the first of them.
    pub first_failure: Option<String>,
}

pub(super) fn measure(stage: &Stage<'_>, case: &Case) -> Vec<Outcome> {
    let on_redis = stage.server.map(|server| ("on Redis", Some(server.url())));
    let stores = [Some(("in process", None)), on_redis].into_iter().flatten();
    stores
        .map(|(name, url)| {
            stage.progress.step(case.name, name);
            let mut outcome = Outcome::named(name, Kind::Ours);
            if let Some(Err(failure)) = stage.server.map(crate::server::Server::clear) {
                stage.progress.print_line(&failure);
            }
            match run_process(url) {
                Ok(waited) => record(waited, &mut outcome),
                Err(failure) => {
                    stage.progress.print_line(&format!("waiting {name} failed: {failure}"));
                    outcome.failure = Some(failure);
                }
            }
            outcome
        })
        .collect()
}

fn record(waited: Waited, outcome: &mut Outcome) {
    let mut tally = Tally { latencies: waited.late, ..Tally::default() };
    let mut sample = Sample::from_tally(&mut tally);
    sample.bytes = Some(waited.bytes_a_call);
    outcome.add(sample);
    outcome.failures = waited.failures;
    outcome.note = waited
        .first_failure
        .map(|first| format!("{} of {CALLS} calls got no permit, the first: {first}", waited.failures));
}

fn run_process(url: Option<String>) -> Result<Waited, Failure> {
    let program = env::current_exe().map_err(failed)?;
    let output = Command::new(program).arg("wait-here").args(url).output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(failed)
}

/// Makes the waiting calls and measures them. This is the work of that process.
///
/// # Errors
///
/// The store cannot be used.
pub async fn wait_here(url: Option<String>) -> Result<Waited, Failure> {
    let limiter = match url {
        None => Limiter::memory(),
        Some(url) => Limiter::builder().url(url.as_str()).on_error(OnError::Raise).connect().await.map_err(failed)?,
    };
    let limit = Limit::new(1, WINDOW).map_err(failed)?;
    let keys: Arc<Vec<_>> = Arc::new((0..CALLS).map(|key| Key::new("user:").part(key)).collect());

    let promised = take_all_permits(&limiter, &keys, limit).await?;
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
    tokio::time::sleep(SETTLE_TIME).await;
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

/// Takes the one permit of each key, and returns the instants at which they come back.
async fn take_all_permits(limiter: &Limiter, keys: &[Key], limit: Limit) -> Result<Vec<Instant>, Failure> {
    let taken = keys.iter().map(async |key| match limiter.check(key, &limit).await {
        Ok(Decision::Allowed(allowed)) => Ok(Instant::now() + allowed.reset_after()),
        Ok(Decision::Denied(_)) => Err("a fresh key was denied".to_owned()),
        Err(error) => Err(failed(error)),
    });
    futures_util::stream::iter(taken).buffered(MAX_FILLING_CALLS).collect::<Vec<_>>().await.into_iter().collect()
}

/// Returns the resident memory of this process, as Linux counts it.
fn resident_bytes() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status").map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
    let kilobytes: u64 = line.ok_or("/proc/self/status without VmRSS")?.trim().parse().map_err(failed)?;
    Ok(kilobytes * 1024)
}
