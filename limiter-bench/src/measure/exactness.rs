//! Whether limits hold where it is hard: everybody at once, and steadily, on two instances.

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
const BURST: usize = 32;
/// Then a call each 25 ms, on the instances in turn.
const CALLS: u32 = 100;
const PERIOD: Duration = Duration::from_millis(25);

/// The keys.
const BURST_KEY: usize = 0;
const STREAM_KEY: usize = 1;

pub(super) async fn measure(stage: &Stage<'_>, case: &Case, entries: &[Entry]) -> Vec<Outcome> {
    stage.progress.step(case.name, "all at the same time");
    if let Some(Err(failure)) = stage.server.map(crate::server::Server::clear) {
        stage.progress.print_line(&failure);
    }
    let mut outcomes: Vec<_> = entries.iter().map(Outcome::new).collect();
    // First the bursts, one contestant after the other; then all streams together, which are hardly any work.
    let mut running = Vec::new();
    for (number, (entry, outcome)) in entries.iter().zip(&mut outcomes).enumerate() {
        let begun = begin(stage, entry, format!("exact-{number}")).await;
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

type Begun = (Vec<Box<dyn Running>>, Tally, Instant);

/// Starts one instance in this process, or two on Redis, and asks for everything at once.
/// Its keys are its own: another's may be of another type.
async fn begin(stage: &Stage<'_>, entry: &Entry, prefix: String) -> Result<Begun, Failure> {
    let mut instances = Vec::new();
    for _ in 0..if entry.place == Place::Redis { 2 } else { 1 } {
        let setup = Setup { url: stage.url(), prefix: prefix.clone(), keys: 2, rate: RATE };
        instances.push(stage.start(entry, setup).await?);
    }
    let (mut tally, origin) = (Tally::default(), Instant::now());
    let calls = instances.iter().flat_map(|instance| (0..BURST).map(move |_| ask(&**instance, BURST_KEY, origin)));
    for answered in join_all(calls).await {
        keep(&mut tally, answered);
    }
    Ok((instances, tally, origin))
}

async fn stream(instances: &[Box<dyn Running>], tally: &mut Tally, origin: Instant) {
    let mut due = tokio::time::interval(PERIOD);
    for call in 0..CALLS as usize {
        due.tick().await;
        keep(tally, ask(&*instances[call % instances.len()], STREAM_KEY, origin).await);
    }
}

async fn ask(instance: &dyn Running, key: usize, origin: Instant) -> Result<(Verdict, Admitted), Failure> {
    let start = origin.elapsed();
    let verdict = instance.decide(key).await?;
    Ok((verdict, Admitted { key, start, end: origin.elapsed() }))
}

fn keep(tally: &mut Tally, answered: Result<(Verdict, Admitted), Failure>) {
    match answered {
        Ok((verdict, call)) => {
            tally.count(verdict);
            if verdict == Verdict::Allowed {
                tally.admissions.push(call);
            }
        }
        Err(failure) => tally.fail(failure),
    }
}
