//! The memory of permits in Redis.

use std::time::{Duration, Instant};

use super::Stage;
use crate::cases::Case;
use crate::contestant::{Entry, Failure, Rate, Setup};
use crate::load::Load;
use crate::order::Order;
use crate::sample::{Outcome, Sample};
use crate::server::Server;

/// The window in seconds, long enough that no permit comes back while keys are filled.
const WINDOW_SECONDS: u64 = 60;

/// The time after which every contestant has sent its counts to the server. One sends them only from time to time.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(50);

pub(super) async fn measure(
    stage: &Stage<'_>,
    case: &Case,
    entries: &[Entry],
    keys: usize,
    permits: u32,
) -> Vec<Outcome> {
    let Some(server) = stage.server else { return Vec::new() };
    let mut outcomes = Vec::new();
    for entry in entries {
        stage.progress.step(case.name, entry.name);
        let mut outcome = Outcome::new(entry);
        let setup = Setup::users(server.url(), keys, Rate { max: permits, seconds: WINDOW_SECONDS });
        if let Err(failure) = fill(stage, server, entry, setup, &mut outcome).await {
            stage.progress.print_line(&format!("{} failed in {}: {failure}", entry.name, case.name));
            outcome.failure = Some(failure);
        }
        outcomes.push(outcome);
    }
    outcomes
}

async fn fill(
    stage: &Stage<'_>,
    server: &Server,
    entry: &Entry,
    setup: Setup,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    server.clear()?;
    let Setup { keys, rate, .. } = setup;
    let contestant = stage.start(entry, setup).await?;
    let empty = server.used_memory()?;
    let calls = keys * rate.max as usize;
    let order = Order::in_turn(keys, rate.max as usize);
    let load = Load { tasks: 64, order, duration: stage.pace.fill, origin: Instant::now() };
    let mut tally = contestant.load(&load).await?;
    outcome.judge(&tally, rate);
    if tally.decisions < calls as u64 {
        outcome.note = Some(format!("had taken {} of {calls} permits after {:?}", tally.decisions, stage.pace.fill));
        return Ok(());
    }
    tokio::time::sleep(SETTLE_TIME).await;

    let sizes = server.size_of_keys()? as f64 / keys as f64;
    let mut sample = Sample::from_tally(&mut tally);
    // The memory of one key is too little to see in the memory of the whole server.
    sample.bytes = Some(if keys == 1 {
        sizes
    } else {
        outcome.note = Some(format!("{sizes:.0} B a key by MEMORY USAGE"));
        server.used_memory()?.saturating_sub(empty) as f64 / keys as f64
    });
    outcome.add(sample);
    Ok(())
}
