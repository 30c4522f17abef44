//! Sentinels that replace a master under load from one process.

use std::thread::sleep;

use rate_limited::Limiter;

use super::calls::{Demand, Load, Subject};
use super::faults::{comes_back, judge, keys_without_expiry};
use super::round::{Outcome, Round, runtime};
use crate::sentinel::Sentinels;

pub(super) fn failover(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut sentinels = Sentinels::start();
    let limiter = runtime.block_on(Limiter::builder().url(&sentinels.url()).connect());
    let limiter = limiter.map_err(|error| format!("sound sentinels: {error}"))?;
    let subjects = Subject::of_all_algorithms(round, (200, 2_000));
    let demand = Demand::random(round, 40);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &subjects, demand, round);
    sleep(round.millis(300, 2_000));
    let fallen = sentinels.master();
    let began = load.elapsed();
    let (how, promotion) = match round.random.below(3) {
        0 => ("replaced while it lived", sentinels.fail_over()),
        1 => {
            sentinels.pause(fallen);
            let promotion = sentinels.wait_for_promotion(fallen);
            sleep(round.millis(1, 1_000));
            // It says that it is a master until the sentinels see it.
            sentinels.resume(fallen);
            ("stopped", promotion)
        }
        _ => {
            sentinels.kill(fallen);
            let promotion = sentinels.wait_for_promotion(fallen);
            sleep(round.millis(1, 1_000));
            sentinels.restart(fallen);
            ("killed", promotion)
        }
    };
    let promoted = load.elapsed();
    round.count("failovers", 1);
    sleep(round.millis(1, 3_000));
    runtime.block_on(comes_back(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    let mut wrong = Vec::new();
    keys_without_expiry(round, sentinels.server(promotion.master), &mut wrong);
    if let Some(wrong) = wrong.pop() {
        return Err(wrong);
    }
    judge(&subjects, &calls).map_err(|what| {
        format!("{what}\nrefunds: {}, a master was {how} at {began:.3?}, done with by {promoted:.3?}", demand.refunds)
    })
}
