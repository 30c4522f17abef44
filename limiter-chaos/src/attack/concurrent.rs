//! Concurrent calls on a real clock and a healthy store. Each algorithm is checked by its worst window, and by its
//! exact bound where it has one.

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use limiter_testkit::history::{Admission, feasible};
use limiter_testkit::{RedisServer, unique};
use rate_limited::{Algorithm, Limiter, OnError};

use super::bounds::{check_every_stretch, check_server_windows, check_worst_window};
use super::calls::{Admitted, Demand, Load, Target, admitted_between_resets};
use super::charges::check_calls_after_charges;
use super::round::{Outcome, Round, connect, runtime};
use crate::transport::{Transport, limiter_builder};

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let is_memory = round.once_in(3) && !round.leases && round.transport == Transport::Plain;
    let processes = if is_memory { 1 } else { round.index(3) + 1 };
    let prefix = unique("concurrent");
    let server = shared_server(round.transport);
    let builder = || {
        let on_redis = || {
            // Nothing may time out here, so that the store makes every decision.
            let builder = limiter_builder(&server.url(), server.ca_certificate());
            builder.prefix(&prefix).deadline(Duration::from_secs(30))
        };
        let builder = if is_memory { Limiter::builder() } else { on_redis() };
        builder.on_error(OnError::Raise).leases(round.leases)
    };
    let limiters: Vec<Limiter> = (0..processes).map(|_| connect(&runtime, builder)).collect::<Result<_, _>>()?;
    let mut targets = Target::for_round(round, (20, 400));
    for target in &mut targets {
        target.resets = round.once_in(5);
    }
    let tasks = round.random.between(5, 60);
    let demand = Demand::random(round, tasks);
    let load = Load::start(runtime.handle(), &limiters, &targets, demand, round);
    let lasts = if round.short { (300, 500) } else { (1_000, 3_000) };
    sleep(round.millis(lasts.0, lasts.1));
    let calls = runtime.block_on(load.stop(round));
    for (target, calls) in targets.iter().zip(calls) {
        for part in admitted_between_resets(&calls) {
            check_exactly(target, &part)?;
            if !is_memory {
                check_server_windows(target.limit, &part)?;
            }
        }
        check_calls_after_charges(target.limit, &calls)?;
    }
    Ok(())
}

/// Returns the server that all rounds with this transport share.
pub(super) fn shared_server(transport: Transport) -> &'static RedisServer {
    static WITH_TLS: OnceLock<RedisServer> = OnceLock::new();
    match transport {
        Transport::Plain => RedisServer::shared(),
        Transport::Tls => WITH_TLS.get_or_init(|| transport.server().start()),
    }
}

/// Checks the admissions of a run without faults.
pub(super) fn check_exactly(target: &Target, admitted: &[Admitted]) -> Outcome {
    let limit = target.limit;
    check_worst_window(limit, admitted, |_, _| 1)?;
    check_every_stretch(limit, admitted)?;
    if limit.algorithm() == Algorithm::SlidingWindow {
        let admission = |call: &Admitted| Admission { start: call.start, end: call.end, cost: call.cost };
        let admissions: Vec<_> = admitted.iter().map(admission).collect();
        feasible(&admissions, limit.window(), limit.max())
            .map_err(|violation| format!("sliding_window: {violation}"))?;
    }
    Ok(())
}
