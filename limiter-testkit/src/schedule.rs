//! Schedules as text: one operation a line, so that what once failed can be read, kept, and played again.
//!
//! ```text
//! # What it guards, in a line.
//! check sliding_window 5/10s cost 2
//! wait 9999ms
//! look token_bucket 5/10s burst 7
//! ```
//!
//! | line | what happens |
//! |---|---|
//! | `check <limit> cost <n>` | a call of that cost |
//! | `look <limit>` | whether one of cost 1 would be allowed |
//! | `refund <n>` | the permits of the n-th call that was allowed are given back, if there is one and they were not yet |
//! | `reset <limit>` | the count is forgotten |
//! | `wait <duration>`, `back <duration>` | the clock goes forward, or steps back |
//! | `repeat <n>` … `end` | the lines in between, so often |
//! | `merging` | first of all: runs merge, so a denial may last a cell of the grid too long |

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::Limit;

mod any;
mod random;
mod replay;
mod shrink;

pub use any::{AnyOracle, Step};
pub use random::{merging_schedule, random_schedule};
pub use replay::{Store, Subject, replay, verdict_us};
pub use shrink::{shrink, shrunk};

/// What happens on one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Runs merge, so a denial may last a cell of the grid too long.
    pub merging: bool,
    /// In order.
    pub operations: Vec<Operation>,
}

/// One operation of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// A call of this cost.
    Check {
        /// The limit that the call gives.
        limit: Limit,
        /// Permits.
        cost: u32,
    },
    /// A look, which takes nothing.
    Look {
        /// The limit that the look gives.
        limit: Limit,
    },
    /// A reset of the limit's count.
    Reset {
        /// The limit whose count is reset.
        limit: Limit,
    },
    /// A refund of the n-th allowed call, from 1.
    Refund(usize),
    /// A step of the clock forward.
    Wait(Duration),
    /// A step of the clock back.
    Back(Duration),
}

const NAMES: [(Algorithm, &str); 5] = [
    (SlidingWindow, "sliding_window"),
    (FixedWindow, "fixed_window"),
    (SlidingCounter, "sliding_counter"),
    (TokenBucket, "token_bucket"),
    (LeakyBucket, "leaky_bucket"),
];

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.merging {
            writeln!(f, "merging")?;
        }
        self.operations.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check { limit, cost } => write!(f, "check {} cost {cost}", Named(limit)),
            Self::Look { limit } => write!(f, "look {}", Named(limit)),
            Self::Reset { limit } => write!(f, "reset {}", Named(limit)),
            Self::Refund(number) => write!(f, "refund {number}"),
            Self::Wait(by) => write!(f, "wait {}", Span(*by)),
            Self::Back(by) => write!(f, "back {}", Span(*by)),
        }
    }
}

/// With its algorithm and burst.
struct Named<'a>(&'a Limit);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(limit) = self;
        let (_, name) = NAMES.iter().find(|(algorithm, _)| *algorithm == limit.algorithm()).expect("all have names");
        write!(f, "{name} {limit}")?;
        if limit.burst() == limit.max() { Ok(()) } else { write!(f, " burst {}", limit.burst()) }
    }
}

/// In whole milliseconds, or else in microseconds.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        if micros.is_multiple_of(1_000) { write!(f, "{}ms", micros / 1_000) } else { write!(f, "{micros}us") }
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut schedule = Self::default();
        let mut repeated: Option<(usize, usize)> = None; // how often, and from where on
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let operations = &mut schedule.operations;
            match (line.split_once(' '), line, repeated) {
                (_, "merging", _) if operations.is_empty() => schedule.merging = true,
                (Some(("repeat", times)), _, None) => {
                    repeated = Some((times.parse().map_err(|_| line)?, operations.len()));
                }
                (_, "end", Some((times, from))) => {
                    let block = operations.split_off(from);
                    operations.extend(std::iter::repeat_n(block, times).flatten());
                    repeated = None;
                }
                _ => operations.push(line.parse()?),
            }
        }
        if repeated.is_none() { Ok(schedule) } else { Err("`repeat` without `end`".to_owned()) }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["check", ref limit @ .., "cost", cost] => {
                cost.parse().ok().and_then(|cost| Some(Self::Check { limit: named(limit)?, cost }))
            }
            ["look", ref limit @ ..] => named(limit).map(|limit| Self::Look { limit }),
            ["reset", ref limit @ ..] => named(limit).map(|limit| Self::Reset { limit }),
            ["refund", number] => number.parse().ok().map(Self::Refund),
            ["wait", by] => span(by).map(Self::Wait),
            ["back", by] => span(by).map(Self::Back),
            _ => None,
        }
        .ok_or_else(|| format!("not an operation: {line}"))
    }
}

fn named(words: &[&str]) -> Option<Limit> {
    let (name, limit, burst) = match words {
        [name, limit] => (name, limit, None),
        [name, limit, "burst", burst] => (name, limit, Some(burst.parse().ok()?)),
        _ => return None,
    };
    let (algorithm, _) = NAMES.iter().find(|(_, known)| known == name)?;
    let limit = limit.parse::<Limit>().ok()?.with_algorithm(*algorithm);
    burst.map_or(Some(limit), |burst| limit.with_burst(burst).ok())
}

/// The units of a limit's window, and `us`.
fn span(text: &str) -> Option<Duration> {
    if let Some(micros) = text.strip_suffix("us") {
        return micros.parse().ok().map(Duration::from_micros);
    }
    if text == "0ms" {
        return Some(Duration::ZERO);
    }
    format!("1/{text}").parse::<Limit>().ok().map(|limit| limit.window())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let lines = [
            "check sliding_window 5/10s cost 0",
            "check token_bucket 4294967295/1ms burst 7 cost 4294967295",
            "look leaky_bucket 1/366d",
            "reset sliding_counter 2/1s500ms",
            "refund 12",
            "wait 9999ms",
            "wait 0ms",
            "back 3us",
            "check fixed_window 1/1s cost 1",
        ];
        let text = format!("merging\n{}\n", lines.join("\n"));
        let schedule: Schedule = text.parse().expect("a schedule");
        assert_eq!((schedule.operations.len(), schedule.to_string()), (lines.len(), text));
        let repeated: Schedule =
            "# a comment\n\nrepeat 3\n wait 1ms\n refund 1\nend\nwait 2s\n".parse().expect("a schedule");
        assert_eq!(repeated.operations.len(), 7);
        for wrong in
            ["wait", "wait 3", "check 5/10s cost 1", "check fixed_window 5/10s", "repeat 2\nwait 1ms", "end", "x"]
        {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
