//! Tests of the rows of docs/reliability.md with short faults, as far as results do not depend on the machine's speed.
//!
//! Each run keeps the algorithm's bound, decides every call and makes one connection attempt at a time. After the fault
//! the store decides again. `limiter_chaos::faults` has the faults and the checks, and the program of that name
//! measures the rest.

use std::time::Duration;

use limiter_chaos::Transport;
use limiter_chaos::faults::{Miss, Pace, Row, Storm, row, run, storm};

use crate::deadlines::DEADLINE;

fn assert_bounds(name: &str, pace: &Pace) {
    assert_bounds_of(&row(name).expect("a row of that name"), pace);
}

fn assert_bounds_of(row: &Row, pace: &Pace) {
    let (name, report) = (row.name, run(row, pace, &|_| {}));
    assert_eq!(report.deadline, DEADLINE);
    let misses: Vec<_> = row.unsafe_outcomes(&report).iter().map(Miss::to_string).collect();
    assert!(misses.is_empty(), "{name}: {}\n{report:#?}", misses.join("; "));
}

/// Defines a test for each row.
macro_rules! rows {
    ($($test:ident: $name:literal),+ $(,)?) => {
        $(#[test] fn $test() { assert_bounds($name, &Pace::SHORT); })+

        #[test]
        fn every_row_has_a_test() {
            let tested = [$($name,)+ "outage"];
            for row in limiter_chaos::faults::rows() {
                assert!(tested.contains(&row.name), "{} has no test", row.name);
            }
        }
    };
}

rows! {
    bounds_hold_when_a_server_is_killed_and_restarted: "kill",
    bounds_hold_when_a_server_is_stopped_and_continued: "stop",
    bounds_hold_when_a_network_is_cut: "cut",
    bounds_hold_on_a_half_open_connection: "half-open",
    bounds_hold_when_a_network_drops_all_data: "stall",
    bounds_hold_when_a_network_is_too_slow: "delay",
    bounds_hold_when_replies_are_garbled: "garble",
    bounds_hold_when_replies_are_truncated: "cut-reply",
    bounds_hold_when_scripts_are_flushed: "script-flush",
    bounds_hold_when_all_keys_are_flushed: "flushall",
    bounds_hold_when_a_server_is_out_of_memory: "maxmemory",
    bounds_hold_when_permissions_are_revoked: "acl",
    bounds_hold_when_the_password_changes: "password",
    bounds_hold_when_a_master_under_sentinels_dies: "sentinel",
    bounds_hold_for_two_processes_when_the_master_dies: "two",
    bounds_hold_when_a_master_of_a_cluster_dies: "cluster",
    bounds_hold_while_a_slot_migrates_repeatedly: "slots",
    bounds_hold_with_ten_thousand_tasks_during_a_reconnect: "reconnect",
}

/// Most calls are decided by leases when the fault begins.
#[test]
fn bounds_hold_with_leases() {
    for name in ["kill", "half-open", "slots", "cluster"] {
        assert_bounds_of(&row(name).expect("a row of that name").with_leases(), &Pace::SHORT);
    }
}

/// A garbled byte ends the session of a connection.
#[test]
fn bounds_hold_with_tls_when_replies_are_garbled() {
    assert_bounds_of(&row("garble").expect("a row of that name").with_tls(), &Pace::SHORT);
}

/// Calls at four times the limits, before, during and after an outage.
#[test]
fn long_outage_gives_no_fresh_quota() {
    assert_bounds("outage", &Pace { fault: Duration::from_secs(2), ..Pace::SHORT });
}

/// Dropped futures, cut connections and restarts cause no panic, no hang and no key without a TTL.
#[test]
fn random_faults_and_drops_cause_no_violation() {
    let report = storm(&Storm { calls: 100_000, seed: 7, transport: Transport::Plain }, &|_| {});
    assert!(report.wrong.is_empty(), "{report:#?}");
    assert_eq!(report.calls, 100_000);
    // The numbers depend on the machine.
    assert!(report.dropped > 0 && report.by_store > 0 && report.by_standby > 0 && report.keys > 0, "{report:#?}");
}
