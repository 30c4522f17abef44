//! Sentinels that replace a master under load from one process.

use std::thread::sleep;

use super::calls::{Demand, Load, Target};
use super::faults::{check_bounds, report_keys_without_expiry, wait_for_recovery};
use super::round::{Outcome, Round, connect, runtime};
use crate::transport::limiter_builder;

pub(super) fn failover(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut sentinels = round.transport.sentinels().start();
    let builder = || limiter_builder(&sentinels.url(), sentinels.ca_certificate()).leases(round.leases);
    let limiter = connect(&runtime, builder)?;
    let targets = Target::for_round(round, (200, 2_000));
    let demand = Demand::random(round, 40);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &targets, demand, round);
    sleep(round.millis(300, 2_000));
    let old = sentinels.master();
    let began = load.elapsed();
    let (how, promotion) = match round.random.below(3) {
        0 => ("replaced while it ran", sentinels.fail_over()),
        1 => {
            sentinels.pause(old);
            let promotion = sentinels.wait_for_promotion(old);
            sleep(round.millis(1, 1_000));
            // The old master acts as a second master until the sentinels reconfigure it.
            sentinels.resume(old);
            ("stopped", promotion)
        }
        _ => {
            sentinels.kill(old);
            let promotion = sentinels.wait_for_promotion(old);
            sleep(round.millis(1, 1_000));
            sentinels.restart(old);
            ("killed", promotion)
        }
    };
    let promoted = load.elapsed();
    round.count("failovers", 1);
    sleep(round.millis(1, 3_000));
    runtime.block_on(wait_for_recovery(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    let mut violations = Vec::new();
    report_keys_without_expiry(round, sentinels.server(promotion.master), &mut violations);
    if let Some(violation) = violations.pop() {
        return Err(violation);
    }
    check_bounds(&targets, &calls).map_err(|what| {
        format!("{what}\nrefunds: {}, a master was {how} at {began:.3?}, replaced by {promoted:.3?}", demand.refunds)
    })
}
