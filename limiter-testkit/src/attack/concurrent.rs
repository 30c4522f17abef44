//! Concurrent calls on a real clock, on a sound store: each algorithm is judged by its worst window, and as exactly as it
//! promises where nothing fails.

use std::thread::sleep;
use std::time::Duration;

use rate_limited::{Algorithm, Limiter, OnError};

use super::bounds::{keeps_each_server_window, keeps_every_stretch, keeps_the_worst_window};
use super::calls::{Admitted, Demand, Load, Subject, admitted_between_resets};
use super::round::{Outcome, Round, runtime};
use crate::history::{Admission, feasible};
use crate::server::{RedisServer, unique};

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let is_memory = round.once_in(3);
    let processes = if is_memory { 1 } else { round.index(3) + 1 };
    let prefix = unique("concurrent");
    let limiters: Vec<Limiter> = (0..processes)
        .map(|_| {
            let builder = Limiter::builder().on_error(OnError::Raise);
            let on_redis = |builder: rate_limited::Builder| {
                // Nothing may time out here: every decision is the store's.
                builder.url(&RedisServer::shared().url()).prefix(&prefix).deadline(Duration::from_secs(30))
            };
            let builder = if is_memory { builder } else { on_redis(builder) };
            runtime.block_on(builder.connect()).expect("the store is there")
        })
        .collect();
    let mut subjects = Subject::of_all_algorithms(round, (20, 400));
    for subject in &mut subjects {
        subject.resets = round.once_in(5);
    }
    let tasks = round.random.between(5, 60);
    let demand = Demand::random(round, tasks);
    let load = Load::start(runtime.handle(), &limiters, &subjects, demand, round);
    let lasts = if round.short { (300, 500) } else { (1_000, 3_000) };
    sleep(round.millis(lasts.0, lasts.1));
    let calls = runtime.block_on(load.stop(round));
    for (subject, calls) in subjects.iter().zip(calls) {
        for part in admitted_between_resets(&calls) {
            exact(subject, &part)?;
            if !is_memory {
                keeps_each_server_window(subject.limit, &part)?;
            }
        }
    }
    Ok(())
}

/// Judges what was admitted where nothing failed.
fn exact(subject: &Subject, admitted: &[Admitted]) -> Outcome {
    let limit = subject.limit;
    keeps_the_worst_window(limit, admitted, |_, _| 1)?;
    keeps_every_stretch(limit, admitted)?;
    if limit.algorithm() == Algorithm::SlidingWindow {
        let admission = |call: &Admitted| Admission { start: call.start, end: call.end, cost: call.cost };
        let admissions: Vec<_> = admitted.iter().map(admission).collect();
        feasible(&admissions, limit.window(), limit.max())
            .map_err(|violation| format!("sliding_window: {violation}"))?;
    }
    Ok(())
}
