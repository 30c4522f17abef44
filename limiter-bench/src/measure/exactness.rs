//! A check that limits hold in hard cases: a burst at once, and a steady stream, on two instances.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::Stage;
use crate::cases::Case;
use crate::contestant::{Entry, Failure, Place, Rate, Setup, Verdict};
use crate::kept::Admitted;
use crate::running::Running;
use crate::sample::Outcome;
use crate::tally::Tally;

const RATE: Rate = Rate { max: 5, seconds: 1 };
/// Calls at once on each instance.
const BURST_CALLS: usize = 32;
/// Calls after the burst, one a period, on the instances in turn.
const STREAM_CALLS: u32 = 100;
/// The time between two calls of the stream.
const STREAM_PERIOD: Duration = Duration::from_millis(25);

const BURST_KEY: usize = 0;
const STREAM_KEY: usize = 1;

pub(super) async fn measure(stage: &Stage<'_>, case: &Case, entries: &[Entry]) -> Vec<Outcome> {
    stage.progress.step(case.name, "all at the same time");
    if let Some(Err(failure)) = stage.server.map(crate::server::Server::clear) {
        stage.progress.print_line(&failure);
    }
    let mut outcomes: Vec<_> = entries.iter().map(Outcome::new).collect();
    // First the bursts, one contestant after the other; then all streams together, because they are little work.
    let mut running = Vec::new();
    for (number, (entry, outcome)) in entries.iter().zip(&mut outcomes).enumerate() {
        let begun = start_with_burst(stage, entry, format!("exact-{number}")).await;
        running.push(begun.map_err(|failure| outcome.failure = Some(failure)).ok());
    }
    let streams = running.into_iter().zip(&mut outcomes).map(async |(begun, outcome)| {
        let Some((instances, mut tally, origin)) = begun else { return };
        stream(&instances, &mut tally, origin).await;
        outcome.judge(&tally, RATE);
    });
    join_all(streams).await;
    for outcome in &outcomes {
        if let Some(failure) = &outcome.failure {
            stage.progress.print_line(&format!("{} failed in {}: {failure}", outcome.contestant, case.name));
        }
    }
    outcomes
}

/// The instances of one contestant, the results of its burst, and the origin of its history.
type Begun = (Vec<Box<dyn Running>>, Tally, Instant);

/// Starts one instance in this process, or two on Redis, and makes all calls of the burst at once. Its keys are its
/// own: those of another contestant may be of another type.
async fn start_with_burst(stage: &Stage<'_>, entry: &Entry, prefix: String) -> Result<Begun, Failure> {
    let mut instances = Vec::new();
    for _ in 0..if entry.place == Place::Redis { 2 } else { 1 } {
        let setup = Setup { url: stage.url(), prefix: prefix.clone(), keys: 2, rate: RATE };
        instances.push(stage.start(entry, setup).await?);
    }
    let (mut tally, origin) = (Tally::default(), Instant::now());
    let calls =
        instances.iter().flat_map(|instance| (0..BURST_CALLS).map(move |_| decide(&**instance, BURST_KEY, origin)));
    for decided in join_all(calls).await {
        record(&mut tally, decided);
    }
    Ok((instances, tally, origin))
}

async fn stream(instances: &[Box<dyn Running>], tally: &mut Tally, origin: Instant) {
    let mut due = tokio::time::interval(STREAM_PERIOD);
    for call in 0..STREAM_CALLS as usize {
        due.tick().await;
        record(tally, decide(&*instances[call % instances.len()], STREAM_KEY, origin).await);
    }
}

async fn decide(instance: &dyn Running, key: usize, origin: Instant) -> Result<(Verdict, Admitted), Failure> {
    let start = origin.elapsed();
    let verdict = instance.decide(key).await?;
    Ok((verdict, Admitted { key, start, end: origin.elapsed() }))
}

fn record(tally: &mut Tally, decided: Result<(Verdict, Admitted), Failure>) {
    match decided {
        Ok((verdict, call)) => {
            tally.count(verdict);
            if verdict == Verdict::Allowed {
                tally.admissions.push(call);
            }
        }
        Err(failure) => tally.fail(failure),
    }
}
