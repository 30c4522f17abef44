//! `limiter bench`: decisions per second, and their latencies.

use std::future::pending;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::signal;
use tokio::time::{MissedTickBehavior, interval};

use crate::arguments::BenchArguments;
use crate::connection::Connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

mod latencies;
mod load;
mod progress;
mod report;
mod tally;

pub(crate) use latencies::Latencies;
use load::{Load, RunningLoad};
use progress::Progress;
use report::Report;

/// The prefix of all keys of a run, whatever the option: they never meet those of a service.
const PREFIX: &str = "rl-bench";

/// The deadline of a decision: that which services have by default.
const DEADLINE: Duration = Duration::from_millis(100);

/// The time between two looks at the progress.
const TICK: Duration = Duration::from_millis(100);

/// Measures decisions and writes the figures. SIGINT ends the run early, with the figures so far.
///
/// # Errors
/// The store cannot be reached, or no call was decided at all. Or the output cannot be written.
pub(crate) async fn run(
    arguments: &BenchArguments,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Failure> {
    // A cached denial would measure this process and not the store.
    let builder = connection.builder().prefix(PREFIX).deadline(DEADLINE).remember_denials(Duration::ZERO);
    let mut interrupt = pin!(interrupt());
    let limiter = tokio::select! {
        biased; // so that the signal is handled from here on
        () = &mut interrupt => return Ok(Exit::INTERRUPTED),
        connected = builder.connect() => connected?,
    };
    let BenchArguments { tasks, keys, limit, seconds } = *arguments;
    let load = Load { limiter, limit, keys, tasks };

    let progress = Progress::new(Duration::from_secs(seconds.into()), !output.is_json());
    let started = Instant::now();
    let running = load.start();
    let was_interrupted = tokio::select! {
        () = interrupt => true,
        () = wait(&running, started, Duration::from_secs(seconds.into()), &progress) => false,
    };
    let tallies = running.stop().await;
    let elapsed = started.elapsed();
    progress.finish();

    let tally = tallies.total();
    let written = Report { arguments, tally: &tally, elapsed, was_interrupted }.write(output);
    for (kind, failed) in &tally.errors {
        output.warn(format_args!("{} calls failed ({kind}): {}", failed.count, failed.first));
    }
    let first = tally.errors.into_values().next().map(|failed| failed.first);
    match first.filter(|_| tally.allowed + tally.denied == 0) {
        _ if was_interrupted => Ok(output.settle(written, Exit::INTERRUPTED)),
        Some(error) => Err(error.into()),
        // The figures are all that was done.
        None => written.map(|()| Exit::SUCCESS),
    }
}

/// Waits for SIGINT.
async fn interrupt() {
    if signal::ctrl_c().await.is_err() {
        // Without a handler the signal ends the process, as it does by default.
        pending::<()>().await;
    }
}

/// Waits until the time is over.
async fn wait(running: &RunningLoad, started: Instant, total: Duration, progress: &Progress) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < total {
        ticks.tick().await;
        progress.show(started.elapsed(), running.tallies.decisions());
    }
}
