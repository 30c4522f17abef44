//! Random schedules of processes that lease permits of one key, by the real scripts and the real table of leases.
//!
//! No window has more admitted permits than the limit allows. An admission is at the instant of its script run, or at
//! the instant at which a call found its lease in force. Messages take any time or are lost, processes pause, and the
//! server's clock steps back by less than a window. A process pauses only between its steps here. The models of loom
//! stop calls inside a step.
//!
//! In the extended schedules two keys compete for one place of each process's table, the sizes of leases follow the
//! demand, and processes change their `max`.
//!
//! Charges take permits between all that. They may exceed the limit, but no grant after one does: see `judge`.
//!
//! A ledger has the permits that the store may count, if all calls are of processes with leases. A permit that was
//! returned is not counted any more.
//!
//! Each rule of leases is needed: the judge finds a window above the limit if it is broken. The rule about marks is
//! missing here, because few random schedules need it. A test in `leases.rs` breaks it.

use limiter_testkit::full_or;

use super::loaded_scripts::LoadedScripts;
use scenario::{Counts, LeaseRules, Scenario};
use simulation::Simulation;

mod event;
mod judge;
mod ledger;
mod process;
mod scenario;
mod server;
mod simulation;

const PLAIN: Scenario = Scenario {
    rules: LeaseRules::Worker,
    has_resets: false,
    has_steps: false,
    has_demands: false,
    has_second_key: false,
    has_max_changes: false,
    has_charges: false,
    has_ledger: false,
};
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
/// Two keys and changes of `max`, with sizes by demand and with random ones, which fill limits more often.
const EXTENDED: [Scenario; 4] = [
    PLAIN.extended(),
    WITH_BOTH.extended(),
    Scenario { has_demands: false, ..PLAIN.extended() },
    Scenario { has_demands: false, ..WITH_BOTH.extended() },
];

#[test]
fn no_window_has_more_permits_than_its_limit() {
    let counts = run(&LoadedScripts::new(), &ALL, full_or(1_000, 40));
    assert_eq!(counts.over, 0, "schedules over the limit");
    let Counts { schedules, full, leased, leases, refunds, returns, resets, steps, .. } = counts;
    assert!(full > schedules / 2, "a limit that is not reached shows nothing: {full} of {schedules}");
    let of_each_kind = [leased / 20, leases / 4, refunds / 4, returns / 4, resets, steps * 2];
    assert!(of_each_kind.iter().all(|count| *count > schedules), "of each kind");
}

#[test]
fn no_window_has_more_permits_than_its_limit_with_two_keys_and_changes_of_max() {
    let counts = run(&LoadedScripts::new(), &EXTENDED, full_or(1_250, 25));
    assert_eq!(counts.over, 0, "schedules over the limit");
    let Counts { schedules, full, leased, leases, returns, max_changes, refused, .. } = counts;
    assert!(full > schedules / 2, "a limit that is not reached shows nothing: {full} of {schedules}");
    let of_each_kind = [leased / 20, leases / 4, returns / 4, max_changes, refused * 2];
    assert!(of_each_kind.iter().all(|count| *count > schedules), "of each kind");
}

/// The scenario with charges.
const fn charged(scenario: Scenario) -> Scenario {
    Scenario { has_charges: true, ..scenario }
}

#[test]
fn no_grant_exceeds_its_limit_with_the_charges_before_it() {
    let scenarios = [charged(PLAIN), charged(WITH_BOTH), charged(WITH_BOTH.extended())];
    let counts = run(&LoadedScripts::new(), &scenarios, full_or(1_000, 40));
    assert_eq!(counts.over, 0, "schedules over the limit");
    let Counts { schedules, full, leased, leases, returns, charges, .. } = counts;
    assert!(full > schedules / 2, "a limit that is not reached shows nothing: {full} of {schedules}");
    assert!([leased / 20, leases / 4, returns / 4, charges / 2].iter().all(|count| *count > schedules), "of each kind");
}

#[test]
fn the_judge_catches_charges_that_a_log_with_leases_does_not_count() {
    let scripts = LoadedScripts::with_replaced("request.max, WRAP - 1 - log.used", "request.max, 0");
    assert!(run(&scripts, &[charged(PLAIN)], full_or(500, 20)).over > 0);
}

const WITH_LEDGER: Scenario = Scenario { has_ledger: true, ..PLAIN };

/// A refund or the return of a lease removes its own permits. Else those of others would be removed, and its own ones
/// would stay for a window, although no process has them.
#[test]
fn the_store_counts_no_permit_that_was_returned() {
    let with_demands = Scenario { has_demands: true, has_second_key: true, ..WITH_LEDGER };
    let scenarios = [WITH_LEDGER, with_demands, Scenario { has_resets: true, ..WITH_LEDGER }];
    let counts = run(&LoadedScripts::new(), &scenarios, full_or(1_000, 40));
    assert_eq!(
        (counts.over, counts.beyond_ledger),
        (0, 0),
        "schedules over the limit, and script calls beyond the ledger"
    );
    let Counts { schedules, leases, refunds, returns, .. } = counts;
    assert!([leases / 4, refunds / 4, returns / 4].iter().all(|count| *count > schedules), "of each kind");
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

/// Checks that a broken rule is caught in a scenario, and in the extended one with sizes at random and by demand.
#[track_caller]
fn assert_caught(scripts: &LoadedScripts, scenario: Scenario, schedules: u64) {
    let random_sizes = Scenario { has_demands: false, ..scenario.extended() };
    for scenario in [scenario, random_sizes, scenario.extended()] {
        assert!(run(scripts, &[scenario], schedules).over > 0, "{scenario:?}");
    }
}

#[test]
fn the_judge_catches_ends_counted_from_the_reply() {
    assert_caught(&LoadedScripts::new(), Scenario { rules: LeaseRules::EndFromReply, ..PLAIN }, full_or(500, 30));
}

#[test]
fn the_judge_catches_permits_given_back_while_they_can_be_taken() {
    assert_caught(&LoadedScripts::new(), Scenario { rules: LeaseRules::EarlyReturn, ..PLAIN }, full_or(500, 10));
}

#[test]
fn the_ledger_catches_receipts_with_the_time_of_the_call() {
    let scenario = Scenario { rules: LeaseRules::ReceiptAtCall, ..WITH_LEDGER };
    let counts = run(&LoadedScripts::new(), &[scenario], full_or(500, 40));
    assert!(counts.over == 0 && counts.beyond_ledger > 0);
}

#[test]
fn the_judge_catches_leases_stamped_at_their_grant() {
    // One millisecond later: a reply without a stamp ahead of the clock would be rejected.
    let (text, replacement) = ("stamped_at = now_ceil + log.ahead", "stamped_at = now_ceil + 1");
    assert_caught(&LoadedScripts::with_replaced(text, replacement), PLAIN, full_or(500, 40));
}

#[test]
fn the_judge_catches_stamps_ahead_of_the_clock_as_a_proof_of_time() {
    let (text, replacement) = ("max(now_floor, stamp - unit - ahead)", "max(now_floor, stamp - unit)");
    assert_caught(&LoadedScripts::with_replaced(text, replacement), PLAIN, full_or(500, 80));
}

#[test]
fn the_judge_catches_resets_that_forget_leases() {
    let (text, replacement) = ("or log.newest < now_floor then", "or log.newest < now_floor or true then");
    assert_caught(&LoadedScripts::with_replaced(text, replacement), WITH_RESETS, full_or(500, 40));
}
