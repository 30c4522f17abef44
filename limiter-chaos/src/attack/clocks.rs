//! A server's wall clock that steps under load. The steps free no more permits than docs/algorithms.md states, and
//! block no key.

use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError};

use super::bounds::check_worst_window;
use super::calls::{Demand, Load, Target, admitted_between_resets};
use super::faults::report_keys_without_expiry;
use super::round::{Outcome, Round, connect, runtime};

/// A step of the clock. Instants are since the load began; the clock's offsets are in microseconds.
#[derive(Debug, Clone, Copy)]
struct ClockStep {
    began: Duration,
    ended: Duration,
    before: i64,
    after: i64,
}

/// The time that a slow machine may add to a wait.
const MAX_EXTRA_WAIT: Duration = Duration::from_secs(20);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = RedisServer::builder().shifted_clock().start();
    let builder = || Limiter::builder().url(server.url()).deadline(Duration::from_secs(30)).on_error(OnError::Raise);
    let limiter = connect(&runtime, builder)?;
    let targets = Target::for_round(round, (200, 1_500));
    let demand = Demand::random(round, 25);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &targets, demand, round);
    let (mut steps, mut offset): (Vec<ClockStep>, i64) = (Vec::new(), 0);
    for _ in 0..if round.short { 2 } else { 6 } {
        let pause = if round.once_in(2) { 100 } else { 900 };
        sleep(round.millis(1, pause));
        let next = match round.random.below(6) {
            0 => 0,
            1 => offset - i64::from(round.small(1, 3_600)) * 1_000_000,
            2 => offset + i64::from(round.small(1, 3_600)) * 1_000_000,
            3 => offset + i64::from(round.small(1, 1_500)) * 1_000,
            // `set_clock` tolerates half a second, so it does not wait for smaller steps.
            _ => offset - i64::from(round.small(1, 1_500)) * 1_000,
        };
        let began = load.elapsed();
        server.set_clock(next);
        if next < offset {
            // A receipt from before the step may match the new count once the clock reaches its time again.
            load.discard_receipts();
        }
        steps.push(ClockStep { began, ended: load.elapsed(), before: offset, after: next });
        offset = next;
        round.count("steps", 1);
    }
    sleep(round.millis(1, 500));
    let calls = runtime.block_on(load.stop(round));
    for (target, calls) in targets.iter().zip(&calls) {
        let window = target.limit.window();
        // A step that frees permits too early splits the run. The bound holds on each side of it.
        let factor = |start: Duration, end: Duration| {
            let is_freeing = |index: &usize| frees_permits(&steps[..=*index], window);
            let within = |index: &usize| steps[*index].began <= end && start <= steps[*index].ended + MAX_CLOCK_AGE;
            u64::try_from((0..steps.len()).filter(within).filter(is_freeing).count()).expect("few") + 1
        };
        for part in admitted_between_resets(calls) {
            check_worst_window(target.limit, &part, factor).map_err(|what| format!("{what}\nsteps: {steps:?}"))?;
        }
    }
    let mut violations = Vec::new();
    report_keys_without_expiry(round, &server, &mut violations);
    if let Some(violation) = violations.pop() {
        return Err(violation);
    }
    for target in &targets {
        let give_up_at = Instant::now()
            + 3 * target.limit.window() * (1 + target.limit.burst() / target.limit.max())
            + MAX_EXTRA_WAIT;
        while runtime.block_on(limiter.check(&target.key, &target.limit)).is_ok_and(|decision| decision.is_denied()) {
            if Instant::now() > give_up_at {
                return Err(format!("{:?} stays denied after {steps:?}", target.limit));
            }
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// The greatest age of the clock reading that a server may use.
const MAX_CLOCK_AGE: Duration = Duration::from_millis(5);

/// Returns true if the last of these steps may free permits too early: a step forward, or a step back by about a window
/// or more.
fn frees_permits(steps: &[ClockStep], window: Duration) -> bool {
    let Some(last) = steps.last() else { return false };
    let micros = |time: Duration| i64::try_from(time.as_micros()).expect("short");
    // The newest stamp is no later than the latest time that the clock has shown.
    let newest = steps.iter().map(|step| micros(step.ended) + step.before).max().unwrap_or_default();
    let ahead = newest - (micros(last.began) + last.after);
    last.after > last.before || ahead + 5_000 >= micros(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_forward_and_long_steps_back_free_permits() {
        let at = |millis: u64, before: i64, after: i64| {
            let (began, ended) = (Duration::from_millis(millis), Duration::from_millis(millis + 10));
            ClockStep { began, ended, before: before * 1_000, after: after * 1_000 }
        };
        let window = Duration::from_millis(500);
        assert!(frees_permits(&[at(0, 0, 1)], window));
        assert!(!frees_permits(&[at(0, 0, -400)], window));
        assert!(frees_permits(&[at(0, 0, -600)], window));
        assert!(frees_permits(&[at(0, 0, -300), at(100, -300, -700)], window), "together more than a window");
        assert!(!frees_permits(&[at(0, 0, -300), at(400, -300, -600)], window), "the clock has caught up meanwhile");
    }
}
