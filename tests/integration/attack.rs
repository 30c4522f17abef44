//! A short run of the attack. `limiter_chaos::attack` has the scenarios and their checks.

use std::ffi::OsStr;
use std::thread;

use limiter_chaos::Transport;
use limiter_chaos::attack::{Budget, Plan, run, scenarios};
use limiter_testkit::ForkLibrary;

use crate::child_process;

#[test]
fn short_attack_finds_no_violation() {
    let library = ForkLibrary::build();
    let variable = &library.variable();
    thread::scope(|scope| {
        // Fixed seeds. The program `attack` runs others.
        for (seed, leases, tls) in
            [("1", "false", "false"), ("2", "false", "false"), ("3", "true", "false"), ("4", "false", "true")]
        {
            scope.spawn(move || {
                let (name, path) = variable;
                let options = [("SEED", seed), ("LEASES", leases), ("TLS", tls)];
                let mut variables = options.map(|(name, value)| (name, OsStr::new(value))).to_vec();
                variables.push((name, path.as_os_str()));
                child_process::run("attack::attack_with_one_seed", &variables)
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
    let [leases, tls] =
        ["LEASES", "TLS"].map(|name| child_process::variable(name).parse::<bool>().expect("true or false"));
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| scenario.short && (scenario.leases || !leases) && (scenario.tls || !tls));
    let transport = if tls { Transport::Tls } else { Transport::Plain };
    let plan = Plan { seed, budget: Budget::Rounds(1), scenarios, short: true, leases, transport, first: false };
    let report = run(&plan, &|_| {});
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
}
