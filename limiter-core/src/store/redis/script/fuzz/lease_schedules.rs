//! Random schedules of processes that lease permits of one key, by the real scripts and the real table of leases.
//!
//! No window has more admitted permits than the limit allows. An admission is at the instant of its script run, or at
//! the instant at which a call found its lease in force. Messages take any time or are lost, processes pause, and the
//! server's clock steps back by less than a window. A process pauses only between its steps here. The models of loom
//! stop calls inside a step.
//!
//! Each rule of leases is needed: the judge finds a window above the limit if it is broken. The rule about marks is
//! missing here, because few random schedules need it. A test in `leases.rs` breaks it.

use limiter_testkit::full_or;

use super::loaded_scripts::LoadedScripts;
use process::LeaseRules;
use simulation::{Counts, Scenario, Simulation};

mod judge;
mod process;
mod simulation;

const PLAIN: Scenario = Scenario { rules: LeaseRules::Worker, has_resets: false, has_steps: false };
const WITH_RESETS: Scenario = Scenario { has_resets: true, ..PLAIN };
const WITH_STEPS: Scenario = Scenario { has_steps: true, ..PLAIN };
const WITH_BOTH: Scenario = Scenario { has_resets: true, has_steps: true, ..PLAIN };

/// Runs so many schedules of each scenario.
fn run(scripts: &LoadedScripts, scenarios: &[Scenario], schedules: u64) -> Counts {
    let mut counts = Counts::default();
    for (number, scenario) in scenarios.iter().enumerate() {
        for seed in 0..schedules {
            let seed = seed * 100 + number as u64;
            let of_schedule = Simulation::run(scripts, *scenario, seed);
            if of_schedule.over > 0 {
                println!("over the limit: scenario {number}, seed {seed}");
            }
            counts.add(&of_schedule);
        }
    }
    println!("{counts:?}");
    counts
}

const ALL: [Scenario; 4] = [PLAIN, WITH_RESETS, WITH_STEPS, WITH_BOTH];

#[test]
fn no_window_has_more_permits_than_its_limit() {
    let counts = run(&LoadedScripts::new(), &ALL, full_or(1_000, 40));
    assert_eq!(counts.over, 0, "schedules over the limit");
    let Counts { schedules, full, leased, leases, refunds, returns, resets, steps, .. } = counts;
    assert!(full > schedules / 2, "a limit that is not reached shows nothing: {full} of {schedules}");
    let of_each_kind = [leased / 20, leases / 4, refunds / 4, returns / 4, resets, steps * 2];
    assert!(of_each_kind.iter().all(|count| *count > schedules), "of each kind");
}

/// Logs with so few runs that calls of one cell of the grid share a run.
#[test]
fn no_window_has_more_permits_than_its_limit_in_logs_with_merged_runs() {
    let scripts = LoadedScripts::with_replaced(", 1, 128, 4294967296", ", 1, 4, 4294967296");
    let counts = run(&scripts, &ALL, full_or(500, 10));
    assert_eq!(counts.over, 0, "schedules over the limit");
}

#[test]
fn a_lease_that_outlives_its_process_s_reset_admits_no_more() {
    let rules = LeaseRules::LeaseOutlivesReset;
    let scenarios = [WITH_RESETS, WITH_BOTH].map(|scenario| Scenario { rules, ..scenario });
    let counts = run(&LoadedScripts::new(), &scenarios, full_or(1_000, 15));
    assert_eq!(counts.over, 0, "schedules over the limit");
}

#[test]
fn the_judge_catches_ends_counted_from_the_reply() {
    let scenario = Scenario { rules: LeaseRules::EndFromReply, ..PLAIN };
    assert!(run(&LoadedScripts::new(), &[scenario], full_or(500, 30)).over > 0);
}

#[test]
fn the_judge_catches_permits_given_back_while_they_can_be_taken() {
    let scenario = Scenario { rules: LeaseRules::EarlyReturn, ..PLAIN };
    assert!(run(&LoadedScripts::new(), &[scenario], full_or(500, 10)).over > 0);
}

/// Returns the number of schedules over the limit, by scripts in which one text is replaced.
fn over_with(text: &str, replacement: &str, scenario: Scenario, schedules: u64) -> u64 {
    run(&LoadedScripts::with_replaced(text, replacement), &[scenario], schedules).over
}

#[test]
fn the_judge_catches_leases_stamped_at_their_grant() {
    // One millisecond later: a reply without a stamp ahead of the clock would be rejected.
    let (text, replacement) = ("stamped_at = now_ceil + log.ahead", "stamped_at = now_ceil + 1");
    assert!(over_with(text, replacement, PLAIN, full_or(500, 40)) > 0);
}

#[test]
fn the_judge_catches_stamps_ahead_of_the_clock_as_a_proof_of_time() {
    let (text, replacement) = ("max(now_floor, stamp - unit - ahead)", "max(now_floor, stamp - unit)");
    assert!(over_with(text, replacement, PLAIN, full_or(500, 80)) > 0);
}

#[test]
fn the_judge_catches_resets_that_forget_leases() {
    let (text, replacement) = ("or log.newest < now_floor then", "or log.newest < now_floor or true then");
    assert!(over_with(text, replacement, WITH_RESETS, full_or(500, 40)) > 0);
}
