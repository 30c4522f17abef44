//! A server's wall clock that steps under load: what that frees is what docs/algorithms.md says, and it blocks no key.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Limiter, OnError};

use super::bounds::keeps_the_worst_window;
use super::calls::{Demand, Load, Subject, admitted_between_resets};
use super::faults::keys_without_expiry;
use super::round::{Outcome, Round, runtime};
use crate::server::RedisServer;

/// A step of the clock. Instants are since the load began; the clock's offset is in microseconds.
#[derive(Debug, Clone, Copy)]
struct Step {
    began: Duration,
    ended: Duration,
    before: i64,
    after: i64,
}

/// The time that a machine may add to a wait.
const SLACK: Duration = Duration::from_secs(20);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = RedisServer::builder().shifted_clock().start();
    let builder = Limiter::builder().url(&server.url()).deadline(Duration::from_secs(30)).on_error(OnError::Raise);
    let limiter = runtime.block_on(builder.connect()).map_err(|error| format!("a sound server: {error}"))?;
    let subjects = Subject::of_all_algorithms(round, (200, 1_500));
    let demand = Demand::random(round, 25);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &subjects, demand, round);
    let (mut steps, mut offset): (Vec<Step>, i64) = (Vec::new(), 0);
    for _ in 0..if round.short { 2 } else { 6 } {
        let pause = if round.once_in(2) { 100 } else { 900 };
        sleep(round.millis(1, pause));
        let next = match round.random.below(6) {
            0 => 0,
            1 => offset - i64::from(round.small(1, 3_600)) * 1_000_000,
            2 => offset + i64::from(round.small(1, 3_600)) * 1_000_000,
            3 => offset + i64::from(round.small(1, 1_500)) * 1_000,
            // Less than a server needs to show it reliably is no step to wait for.
            _ => offset - i64::from(round.small(1, 1_500)) * 1_000,
        };
        let began = load.elapsed();
        server.set_clock(next);
        steps.push(Step { began, ended: load.elapsed(), before: offset, after: next });
        offset = next;
        round.count("steps", 1);
    }
    sleep(round.millis(1, 500));
    let calls = runtime.block_on(load.stop(round));
    for (subject, calls) in subjects.iter().zip(&calls) {
        let window = subject.limit.window();
        // A step by which permits come back too early ends a stretch: on each side of it the bound holds.
        let times = |start: Duration, end: Duration| {
            let frees = |index: &usize| frees(&steps[..=*index], window);
            let within = |index: &usize| steps[*index].began <= end && start <= steps[*index].ended + SHOWN_LATE;
            u64::try_from((0..steps.len()).filter(within).filter(frees).count()).expect("few") + 1
        };
        for part in admitted_between_resets(calls) {
            keeps_the_worst_window(subject.limit, &part, times).map_err(|what| format!("{what}\nsteps: {steps:?}"))?;
        }
    }
    let mut wrong = Vec::new();
    keys_without_expiry(round, &server, &mut wrong);
    if let Some(wrong) = wrong.pop() {
        return Err(wrong);
    }
    for subject in &subjects {
        let until =
            Instant::now() + 3 * subject.limit.window() * (1 + subject.limit.burst() / subject.limit.max()) + SLACK;
        while runtime.block_on(limiter.check(&subject.key, &subject.limit)).is_ok_and(|decision| decision.is_denied()) {
            if Instant::now() > until {
                return Err(format!("{:?} stays denied after {steps:?}", subject.limit));
            }
            sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// A server may read its clock from a cache that is so old.
const SHOWN_LATE: Duration = Duration::from_millis(5);

/// Returns whether the last of these steps may free permits before their time: forward, or back by about a window or more.
fn frees(steps: &[Step], window: Duration) -> bool {
    let Some(last) = steps.last() else { return false };
    let micros = |time: Duration| i64::try_from(time.as_micros()).expect("short");
    // The newest stamp is no later than the latest time that the clock has ever shown.
    let newest = steps.iter().map(|step| micros(step.ended) + step.before).max().unwrap_or_default();
    let ahead = newest - (micros(last.began) + last.after);
    last.after > last.before || ahead + 5_000 >= micros(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_forward_and_long_ones_back_free_permits() {
        let at = |millis: u64, before: i64, after: i64| {
            let (began, ended) = (Duration::from_millis(millis), Duration::from_millis(millis + 10));
            Step { began, ended, before: before * 1_000, after: after * 1_000 }
        };
        let window = Duration::from_millis(500);
        assert!(frees(&[at(0, 0, 1)], window));
        assert!(!frees(&[at(0, 0, -400)], window));
        assert!(frees(&[at(0, 0, -600)], window));
        assert!(frees(&[at(0, 0, -300), at(100, -300, -700)], window), "together more than a window");
        assert!(!frees(&[at(0, 0, -300), at(400, -300, -600)], window), "the clock has caught up meanwhile");
    }
}
