//! The short form of the attack. `limiter_testkit::attack` has the scenarios and their judges.

use std::ffi::OsStr;
use std::thread;

use limiter_testkit::ForkLibrary;
use limiter_testkit::attack::{Budget, Plan, run, scenarios};

use crate::child;

#[test]
fn no_promise_breaks_under_a_short_attack() {
    let library = ForkLibrary::build();
    let variable = &library.variable();
    thread::scope(|scope| {
        // The same in every run: other seeds are for the program `attack`.
        for seed in ["1", "2"] {
            scope.spawn(move || {
                let (name, path) = variable;
                child::run("attack::attacks", &[("SEED", OsStr::new(seed)), (*name, path.as_os_str())])
            });
        }
    });
}

/// Panics and hangs are watched for the whole process.
#[test]
#[ignore = "needs a process of its own, which it watches for panics and hangs"]
fn attacks() {
    if !child::is_one() {
        return;
    }
    let seed = child::variable("SEED").parse().expect("a number");
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| scenario.short);
    let plan = Plan { seed, budget: Budget::Rounds(1), scenarios, short: true, first: false };
    let report = run(&plan, &|_| {});
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
}
