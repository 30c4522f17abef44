//! An attack on the limiter: rounds of random calls and faults, each of which is checked for safety.
//!
//! A [`Scenario`] is one kind of attack. The parameters of a round follow from the seed, the scenario's name and the
//! round's number alone. So a violation names the round that reproduces it, as far as the machine's timing allows.
//!
//! Only safety is checked. Speed is not, so a busy machine fails no round. These are violations:
//!
//! - too many permits, a lost permit or a wrong refund;
//! - a call that is allowed although charges before it have used its limit up;
//! - a key without an expiry;
//! - a command that was sent twice;
//! - a wait that is never served;
//! - a panic on any thread, or a hang.
//!
//! The program `attack` runs all scenarios for minutes or hours. A test runs each for a short time in a process of its
//! own, because panics and hangs are detected for the whole process.

mod bounds;
mod calls;
mod campaign;
mod charges;
mod clocks;
mod cluster;
mod concurrent;
mod dropping;
mod drops;
mod faults;
mod flood;
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
