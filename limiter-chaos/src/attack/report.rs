//! The report of an attack: counts and violations.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::transport::Transport;

/// A violated guarantee.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The scenario.
    pub scenario: &'static str,
    /// The number of its round.
    pub round: u64,
    /// The seed of the whole attack.
    pub seed: u64,
    /// True if the rounds were short.
    pub short: bool,
    /// True if the limiters had leases.
    pub leases: bool,
    /// The transport of the limiters' connections.
    pub transport: Transport,
    /// The start of the round, since the start of the attack.
    pub after: Duration,
    /// The description.
    pub what: String,
}

/// The rounds of one scenario.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// The number of rounds.
    pub rounds: u64,
    /// The number of rounds that could not be checked, because a server did not start or the machine stalled for too
    /// long.
    pub unchecked: u64,
    /// The time that the rounds took.
    pub took: Duration,
    /// The counts of the rounds, by name.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The results of an attack.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The rounds of each scenario, by its name.
    pub lines: BTreeMap<&'static str, Line>,
    /// The violations, in the order in which they were found.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, round, seed, short, leases, transport, after, what } = self;
        let short = if *short { " --short" } else { "" };
        let leases = if *leases { " --leases" } else { "" };
        let tls = if *transport == Transport::Tls { " --tls" } else { "" };
        write!(
            f,
            "VIOLATION in round {round} of `{scenario}`, after {after:.1?}: {what}\n\
             repeat: cargo run --release -p limiter-chaos --bin attack -- \
             --seed {seed} --only {scenario} --round {round}{short}{leases}{tls}"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (name, Line { rounds, unchecked, took, counts }) in &self.lines {
            let counts: Vec<_> = counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
            let unchecked = if *unchecked > 0 { format!(" ({unchecked} not checked)") } else { String::new() };
            writeln!(f, "{name:<12} {rounds} rounds{unchecked} in {took:.1?}: {}", counts.join(", "))?;
        }
        for violation in &self.violations {
            writeln!(f, "\n{violation}")?;
        }
        let rounds: u64 = self.lines.values().map(|line| line.rounds).sum();
        write!(f, "\n{} violations in {rounds} rounds", self.violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_printed_with_the_arguments_that_repeat_its_round() {
        let violation = |short, leases, transport| {
            let what = "an example".to_owned();
            Violation { scenario: "faults", round: 3, seed: 7, short, leases, transport, after: Duration::ZERO, what }
                .to_string()
        };
        for (short, leases, transport, options) in [
            (false, false, Transport::Plain, ""),
            (true, false, Transport::Plain, " --short"),
            (false, true, Transport::Plain, " --leases"),
            (false, false, Transport::Tls, " --tls"),
            (true, true, Transport::Tls, " --short --leases --tls"),
        ] {
            let text = violation(short, leases, transport);
            assert!(text.ends_with(&format!(" -- --seed 7 --only faults --round 3{options}")), "{text}");
        }
    }
}
