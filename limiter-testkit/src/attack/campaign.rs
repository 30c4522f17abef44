//! Rounds of all scenarios in turn, until the budget is used up.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::panics;
use super::report::{Report, Violation};
use super::round::Round;
use super::scenarios::Scenario;
use super::watchdog::Watchdog;
use crate::random::Random;

/// A round that takes longer hangs, however busy the machine. A round of the longest scenario takes a minute.
const HANGS: Duration = Duration::from_secs(300);

/// When an attack ends.
#[derive(Debug, Clone, Copy)]
pub enum Budget {
    /// After the round in which this much time is over.
    Time(Duration),
    /// After so many rounds of each scenario.
    Rounds(u64),
    /// After this one round of each scenario.
    Round(u64),
}

/// An attack to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides all parameters of all rounds.
    pub seed: u64,
    /// When to end.
    pub budget: Budget,
    /// What to run.
    pub scenarios: Vec<Scenario>,
    /// Whether rounds are as short as they can be.
    pub short: bool,
    /// Whether to end with the first violation.
    pub first: bool,
}

/// Runs an attack. `progress` gets a line before each round, and each violation when it is found.
///
/// Panics of all threads of this process are counted from here on, and the process is aborted if a round hangs.
#[must_use]
pub fn run(plan: &Plan, progress: &dyn Fn(&str)) -> Report {
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
            let found = play(plan, *scenario, round, &mut report);
            let after = began.elapsed();
            for what in found {
                let violation = Violation { scenario: scenario.name, round, seed: plan.seed, after, what };
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

/// Plays one round and returns its violations.
fn play(plan: &Plan, scenario: Scenario, number: u64, report: &mut Report) -> Vec<String> {
    let name = format!("seed {}, scenario {}, round {number}", plan.seed, scenario.name);
    let _watchdog = Watchdog::start(HANGS, name);
    let mut round = Round {
        random: Random::new(seed_of(plan.seed, scenario.name, number)),
        short: plan.short,
        counts: BTreeMap::new(),
    };
    let began = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (scenario.round)(&mut round)));
    let line = report.lines.entry(scenario.name).or_default();
    line.rounds += 1;
    line.took += began.elapsed();
    for (what, times) in round.counts {
        *line.counts.entry(what).or_default() += times;
    }
    let mut found = panics::take();
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(what)) => found.push(what),
        // The panic itself has been noted.
        Err(_) => {
            let was_slow = |panic: &String| panic.contains("not within") || panic.contains("no free port");
            let noted = found.len();
            found.retain(|panic| !was_slow(panic));
            line.unjudged += u64::from(found.len() < noted);
        }
    }
    found
}

/// A seed of its own for each round of each scenario.
fn seed_of(seed: u64, name: &str, round: u64) -> u64 {
    // FNV-1a, and the numbers mixed in by the generator itself.
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
    fn each_round_of_each_scenario_has_a_seed_of_its_own() {
        let seeds =
            [(1, "a", 0), (1, "a", 1), (1, "b", 0), (2, "a", 0)].map(|(seed, name, round)| seed_of(seed, name, round));
        let distinct: std::collections::BTreeSet<_> = seeds.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(seed_of(1, "a", 1), seeds[1]);
    }

    #[test]
    fn a_violation_names_the_round_that_shows_it_again() {
        let fails = |round: &mut Round| if round.once_in(3) { Err("an example".to_owned()) } else { Ok(()) };
        let scenario = Scenario { name: "example", about: "", short: true, round: fails };
        let plan = Plan { seed: 5, budget: Budget::Rounds(100), scenarios: vec![scenario], short: true, first: true };
        let found = run(&plan, &|_| {}).violations.remove(0);
        let again = Plan { budget: Budget::Round(found.round), ..plan };
        let report = run(&again, &|_| {});
        assert_eq!((report.violations.len(), report.violations[0].round), (1, found.round));
    }
}
