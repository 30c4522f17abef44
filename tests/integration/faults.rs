//! The rows of docs/reliability.md, with short faults, judged by what holds on every machine: the algorithms' bounds, a
//! decision for every call, one connection attempt at a time, and a store that decides again. `limiter_testkit::faults` has what is
//! done and what is kept to; the program of that name measures what depends on the machine's speed.

use std::time::Duration;

use limiter_testkit::faults::{Miss, Pace, Storm, row, run, storm};

use crate::deadlines::DEADLINE;

fn keeps_its_bar(name: &str, pace: &Pace) {
    let row = row(name).expect("a row of that name");
    let report = run(&row, pace, &|_| {});
    assert_eq!(report.deadline, DEADLINE);
    let misses: Vec<_> = row.unsafe_outcomes(&report).iter().map(Miss::to_string).collect();
    assert!(misses.is_empty(), "{name}: {}\n{report:#?}", misses.join("; "));
}

/// Makes a test of each row.
macro_rules! rows {
    ($($test:ident: $name:literal),+ $(,)?) => {
        $(#[test] fn $test() { keeps_its_bar($name, &Pace::SHORT); })+

        #[test]
        fn every_row_is_a_test() {
            let tested = [$($name,)+ "outage"];
            for row in limiter_testkit::faults::rows() {
                assert!(tested.contains(&row.name), "{} is not", row.name);
            }
        }
    };
}

rows! {
    a_server_is_killed_and_started_again: "kill",
    a_server_is_stopped_and_goes_on: "stop",
    a_network_is_cut: "cut",
    the_other_end_is_gone: "half-open",
    a_network_swallows_everything: "stall",
    a_network_is_too_slow: "delay",
    replies_are_garbled: "garble",
    replies_end_in_their_middle: "cut-reply",
    scripts_are_flushed: "script-flush",
    everything_is_flushed: "flushall",
    a_server_is_full: "maxmemory",
    rights_are_taken_away: "acl",
    a_password_is_changed: "password",
    a_master_dies_under_sentinels: "sentinel",
    a_master_of_two_processes_dies: "two",
    a_master_of_a_cluster_dies: "cluster",
    a_slot_moves_again_and_again: "slots",
    ten_thousand_tasks_wait_for_one_connection: "reconnect",
}

/// At four times the limits, across the change over and back.
#[test]
fn a_long_outage_is_not_a_fresh_quota() {
    keeps_its_bar("outage", &Pace { fault: Duration::from_secs(2), ..Pace::SHORT });
}

/// Futures dropped at random points, cuts and restarts: no panic, no hang, no key without a time to live.
#[test]
fn a_storm_leaves_nothing_behind() {
    let report = storm(&Storm { calls: 100_000, seed: 7 }, &|_| {});
    assert!(report.wrong.is_empty(), "{report:#?}");
    assert_eq!(report.calls, 100_000);
    // How many of each depends on the machine.
    assert!(report.dropped > 0 && report.by_store > 0 && report.by_standby > 0 && report.keys > 0, "{report:#?}");
}
