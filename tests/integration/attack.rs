//! A short run of the attack. `limiter_testkit::attack` has the scenarios and their checks.

use std::ffi::OsStr;
use std::thread;

use limiter_testkit::ForkLibrary;
use limiter_testkit::attack::{Budget, Plan, run, scenarios};

use crate::child_process;

#[test]
fn short_attack_finds_no_violation() {
    let library = ForkLibrary::build();
    let variable = &library.variable();
    thread::scope(|scope| {
        // Fixed seeds. The program `attack` runs others.
        for (seed, leases) in [("1", "false"), ("2", "false"), ("3", "true")] {
            scope.spawn(move || {
                let (name, path) = variable;
                child_process::run(
                    "attack::attack_with_one_seed",
                    &[("SEED", OsStr::new(seed)), ("LEASES", OsStr::new(leases)), (*name, path.as_os_str())],
                )
            });
        }
    });
}

/// Runs in its own process, because panics and hangs are watched for the whole process.
#[test]
#[ignore = "needs a process of its own, which it watches for panics and hangs"]
fn attack_with_one_seed() {
    if !child_process::is_child() {
        return;
    }
    let seed = child_process::variable("SEED").parse().expect("a number");
    let leases: bool = child_process::variable("LEASES").parse().expect("true or false");
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| scenario.short && (scenario.leases || !leases));
    let plan = Plan { seed, budget: Budget::Rounds(1), scenarios, short: true, leases, first: false };
    let report = run(&plan, &|_| {});
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
}
