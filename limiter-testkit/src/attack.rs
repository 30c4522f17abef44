//! An attack on the limiter: random calls and faults, round after round, each judged for safety.
//!
//! A [`Scenario`] is one kind of attack. Each of its rounds has parameters of its own, which follow from the seed, the
//! scenario's name and the round's number alone. So a violation names the one round that shows it again, as far as the
//! machine's own timing lets it.
//!
//! Only safety is judged: too many permits, a permit lost or given back wrongly, a key without an expiry, a command that was
//! sent twice, a wait that is never served, a panic on any thread, a hang. Speed is not, so a busy machine fails no round.
//!
//! The program `attack` runs all scenarios for minutes or hours; a test runs each for a short time, in a process of its
//! own, because panics and hangs are watched for the whole process.

mod bounds;
mod calls;
mod campaign;
mod clocks;
mod cluster;
mod concurrent;
mod dropping;
mod drops;
mod faults;
mod forks;
mod ledger;
mod panics;
mod replies;
mod report;
mod round;
mod scenarios;
mod schedules;
mod sentinels;
mod waiters;
mod watchdog;

pub use campaign::{Budget, Plan, run};
pub use report::{Line, Report, Violation};
pub use scenarios::{Scenario, scenarios};
