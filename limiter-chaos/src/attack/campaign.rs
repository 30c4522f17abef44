//! Runs rounds of all scenarios in turn until the budget is used up.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use limiter_testkit::Random;

use super::panics;
use super::report::{Report, Violation};
use super::round::Round;
use super::scenarios::Scenario;
use super::watchdog::Watchdog;
use crate::transport::Transport;

/// The time after which a round counts as hanging, even on a busy machine. A round of the longest scenario takes a
/// minute.
const ROUND_TIMEOUT: Duration = Duration::from_secs(300);

/// The end of an attack.
#[derive(Debug, Clone, Copy)]
pub enum Budget {
    /// Ends after the round in which this time is over.
    Time(Duration),
    /// Ends after this many rounds of each scenario.
    Rounds(u64),
    /// Runs this round of each scenario alone.
    Round(u64),
}

/// The parameters of an attack.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all parameters of all rounds.
    pub seed: u64,
    /// The end of the attack.
    pub budget: Budget,
    /// The scenarios to run.
    pub scenarios: Vec<Scenario>,
    /// True for rounds of about a second.
    pub short: bool,
    /// True for limiters with leases. From then on each limit of this process may be leased.
    pub leases: bool,
    /// The transport of the limiters' connections.
    pub transport: Transport,
    /// True to end with the first violation.
    pub first: bool,
}

/// Runs an attack. `progress` receives a line before each round, and each violation when it is found.
///
/// From this call on, panics of all threads of this process are counted. The process is aborted if a round hangs.
#[must_use]
pub fn run(plan: &Plan, progress: &dyn Fn(&str)) -> Report {
    if plan.leases {
        rate_limited::Limit::lease_any();
    }
    panics::watch();
    panics::take();
    let began = Instant::now();
    let mut report = Report { seed: plan.seed, ..Report::default() };
    let first = if let Budget::Round(round) = plan.budget { round } else { 0 };
    for round in first.. {
        for scenario in &plan.scenarios {
            let left = match plan.budget {
                Budget::Time(time) => match time.checked_sub(began.elapsed()) {
                    None => return report,
                    Some(left) => format!("{left:.0?} left"),
                },
                Budget::Rounds(rounds) if round >= rounds => return report,
                Budget::Rounds(rounds) => format!("of {rounds}"),
                Budget::Round(only) if round > only => return report,
                Budget::Round(_) => String::new(),
            };
            progress(&format!("{} round {round} {left}, {} violations", scenario.name, report.violations.len()));
            let violations = run_round(plan, *scenario, round, &mut report);
            let after = began.elapsed();
            for what in violations {
                let violation = Violation {
                    scenario: scenario.name,
                    round,
                    seed: plan.seed,
                    short: plan.short,
                    leases: plan.leases,
                    transport: plan.transport,
                    after,
                    what,
                };
                progress(&format!("{violation}\n"));
                report.violations.push(violation);
            }
            if plan.first && !report.violations.is_empty() {
                return report;
            }
        }
    }
    report
}

/// Runs one round and returns its violations.
fn run_round(plan: &Plan, scenario: Scenario, number: u64, report: &mut Report) -> Vec<String> {
    let name = format!("seed {}, scenario {}, round {number}", plan.seed, scenario.name);
    let _watchdog = Watchdog::start(ROUND_TIMEOUT, name);
    let mut round = Round {
        random: Random::new(round_seed(plan.seed, scenario.name, number)),
        short: plan.short,
        leases: plan.leases,
        transport: plan.transport,
        counts: BTreeMap::new(),
    };
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (scenario.round)(&mut round)));
    let line = report.lines.entry(scenario.name).or_default();
    line.rounds += 1;
    line.took += began.elapsed();
    for (what, times) in round.counts {
        *line.counts.entry(what).or_default() += times;
    }
    let mut violations = panics::take();
    match result {
        Ok(Ok(())) => {}
        Ok(Err(what)) => violations.push(what),
        // The panic hook has recorded the panic. Panics about slow servers and ports do not count as violations.
        Err(_) => {
            let was_slow = |panic: &String| panic.contains("not within") || panic.contains("no free port");
            let recorded = violations.len();
            violations.retain(|panic| !was_slow(panic));
            line.unchecked += u64::from(violations.len() < recorded);
        }
    }
    violations
}

/// Returns the seed of one round of one scenario.
fn round_seed(seed: u64, name: &str, round: u64) -> u64 {
    // The hash is FNV-1a; the generator itself mixes in the numbers.
    let hash = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    let mixed = Random::new(seed ^ hash).any();
    Random::new(mixed ^ round).any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_of_each_scenario_has_its_own_seed() {
        let seeds = [(1, "a", 0), (1, "a", 1), (1, "b", 0), (2, "a", 0)]
            .map(|(seed, name, round)| round_seed(seed, name, round));
        let distinct: std::collections::BTreeSet<_> = seeds.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(round_seed(1, "a", 1), seeds[1]);
    }

    #[test]
    fn the_round_named_by_a_violation_reproduces_it() {
        let fails = |round: &mut Round| if round.once_in(3) { Err("an example".to_owned()) } else { Ok(()) };
        let scenario = Scenario { name: "example", about: "", short: true, leases: false, tls: false, round: fails };
        let plan = Plan {
            seed: 5,
            budget: Budget::Rounds(100),
            scenarios: vec![scenario],
            short: true,
            leases: false,
            transport: Transport::Plain,
            first: true,
        };
        let violations = run(&plan, &|_| {}).violations.remove(0);
        let again = Plan { budget: Budget::Round(violations.round), ..plan };
        let report = run(&again, &|_| {});
        assert_eq!((report.violations.len(), report.violations[0].round), (1, violations.round));
    }
}
