//! What an attack did, and what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A promise that was not kept.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The scenario.
    pub scenario: &'static str,
    /// The number of its round.
    pub round: u64,
    /// The seed of the whole attack.
    pub seed: u64,
    /// When the round began, since the attack did.
    pub after: Duration,
    /// What happened.
    pub what: String,
}

/// The rounds of one scenario.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// How many.
    pub rounds: u64,
    /// Rounds that could not be judged: a server did not start, or a machine stood still for too long.
    pub unjudged: u64,
    /// How long they took.
    pub took: Duration,
    /// What was done, by name.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The whole attack.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// By scenario.
    pub lines: BTreeMap<&'static str, Line>,
    /// In the order in which they were found.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, round, seed, after, what } = self;
        write!(
            f,
            "VIOLATION in round {round} of `{scenario}`, after {after:.1?}: {what}\n\
             again: cargo run --release -p limiter-testkit --bin attack -- --seed {seed} --only {scenario} --round {round}"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (name, Line { rounds, unjudged, took, counts }) in &self.lines {
            let counts: Vec<_> = counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
            let unjudged = if *unjudged > 0 { format!(" ({unjudged} not judged)") } else { String::new() };
            writeln!(f, "{name:<12} {rounds} rounds{unjudged} in {took:.1?}: {}", counts.join(", "))?;
        }
        for violation in &self.violations {
            writeln!(f, "\n{violation}")?;
        }
        let rounds: u64 = self.lines.values().map(|line| line.rounds).sum();
        write!(f, "\n{} violations in {rounds} rounds", self.violations.len())
    }
}
