//! Processes with leases that are stopped at random, and an evaluation outside of the limiter. Only safety is checked.
//!
//! `limiter_chaos::fleet` has the processes and the evaluation, and the program of that name runs them for longer.

use std::time::Duration;

use limiter_chaos::fleet::{FleetPlan, FleetReport, is_member, run, run_member};
use limiter_testkit::{RedisServer, full_or};

use crate::child_process;
use crate::support::limit;

/// Two processes call as fast as they can, and two at a rate.
const LOADS: [&str; 4] = ["32:max", "8:max", "8:5000", "4:500"];

/// Runs the processes with a limit, and asserts that no window has more admissions.
#[track_caller]
fn assert_within(text: &str, lease_any_limit: bool) -> FleetReport {
    let plan = FleetPlan {
        limit: limit(text),
        loads: LOADS.map(|load| load.parse().expect("a load")).into(),
        length: Duration::from_secs(full_or(5, 2)),
        max_pause: Duration::from_millis(400),
        seed: 1,
        leases: true,
        lease_any_limit,
        // Several, so that callers find a lease at its end before the worker ends it.
        threads: 2,
    };
    let server = RedisServer::start();
    let no_variables: [(&str, &str); 0] = [];
    let report = run(&plan, &server, || child_process::command("fleet::make_calls_of_one_process", &no_variables));
    assert!(report.is_within(plan.limit), "{text}: {report:?}");
    report
}

#[test]
fn no_window_of_stopped_processes_with_leases_is_above_its_limit() {
    for (text, lease_any_limit) in [("10000/1s", false), ("100000/640ms", false), ("50000/300ms", true)] {
        let report = assert_within(text, lease_any_limit);
        assert!(report.admitted_by_lease() > 0, "{text}: {report:?}");
    }
}

#[test]
fn a_small_limit_is_never_leased_and_no_window_is_above_it() {
    let report = assert_within("5/10s", false);
    assert_eq!(report.admitted_by_lease(), 0, "{report:?}");
}

#[test]
#[ignore = "is one of several processes"]
fn make_calls_of_one_process() {
    if is_member() {
        run_member();
    }
}
