//! Schedules of calls as text, with one operation per line. A failed schedule can be read, stored and replayed.
//!
//! ```text
//! # The behaviour that it protects, on one line.
//! check sliding_window 5/10s cost 2
//! wait 9999ms
//! look token_bucket 5/10s burst 7
//! ```
//!
//! | line | operation |
//! |---|---|
//! | `check <limit> cost <n>` | makes a call of that cost |
//! | `charge <limit> cost <n>` | charges so many permits, whether they fit or not |
//! | `look <limit>` | peeks at a call of cost 1 |
//! | `refund <n>` | refunds the n-th allowed call, unless there is none or it was refunded before |
//! | `reset <limit>` | resets the count |
//! | `wait <duration>`, `back <duration>` | moves the clock forward, or back |
//! | `repeat <n>` … `end` | repeats the lines in between n times |
//! | `merging` | first line only: runs merge, so a denial may last longer by up to a 128th of the window |

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
pub use shrink::{shrink, shrink_schedule};

/// A sequence of operations on one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// True if runs of the log merge. A denial may then last longer by up to a 128th of the window.
    pub merging: bool,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

/// One operation of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// A call of this cost.
    Check {
        /// The limit of the call.
        limit: Limit,
        /// The permits of the call.
        cost: u32,
    },
    /// A charge, which takes permits whether they fit or not.
    Charge {
        /// The limit of the charge.
        limit: Limit,
        /// The permits of the charge.
        cost: u32,
    },
    /// A peek, which takes no permits.
    Look {
        /// The limit of the peek.
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

const ALGORITHM_NAMES: [(Algorithm, &str); 5] = [
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
            Self::Check { limit, cost } => write!(f, "check {} cost {cost}", NamedLimit(limit)),
            Self::Charge { limit, cost } => write!(f, "charge {} cost {cost}", NamedLimit(limit)),
            Self::Look { limit } => write!(f, "look {}", NamedLimit(limit)),
            Self::Reset { limit } => write!(f, "reset {}", NamedLimit(limit)),
            Self::Refund(number) => write!(f, "refund {number}"),
            Self::Wait(by) => write!(f, "wait {}", DurationText(*by)),
            Self::Back(by) => write!(f, "back {}", DurationText(*by)),
        }
    }
}

/// Displays a limit with its algorithm and burst.
struct NamedLimit<'a>(&'a Limit);

impl fmt::Display for NamedLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(limit) = self;
        let (_, name) =
            ALGORITHM_NAMES.iter().find(|(algorithm, _)| *algorithm == limit.algorithm()).expect("all have names");
        write!(f, "{name} {limit}")?;
        if limit.burst() == limit.max() { Ok(()) } else { write!(f, " burst {}", limit.burst()) }
    }
}

/// Displays a duration in whole milliseconds, or else in microseconds.
struct DurationText(Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        if micros.is_multiple_of(1_000) { write!(f, "{}ms", micros / 1_000) } else { write!(f, "{micros}us") }
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut schedule = Self::default();
        let mut repeated: Option<(usize, usize)> = None; // the repetitions, and the index of the first operation
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
                cost.parse().ok().and_then(|cost| Some(Self::Check { limit: parse_limit(limit)?, cost }))
            }
            ["charge", ref limit @ .., "cost", cost] => {
                cost.parse().ok().and_then(|cost| Some(Self::Charge { limit: parse_limit(limit)?, cost }))
            }
            ["look", ref limit @ ..] => parse_limit(limit).map(|limit| Self::Look { limit }),
            ["reset", ref limit @ ..] => parse_limit(limit).map(|limit| Self::Reset { limit }),
            ["refund", number] => number.parse().ok().map(Self::Refund),
            ["wait", by] => parse_duration(by).map(Self::Wait),
            ["back", by] => parse_duration(by).map(Self::Back),
            _ => None,
        }
        .ok_or_else(|| format!("not an operation: {line}"))
    }
}

fn parse_limit(words: &[&str]) -> Option<Limit> {
    let (name, limit, burst) = match words {
        [name, limit] => (name, limit, None),
        [name, limit, "burst", burst] => (name, limit, Some(burst.parse().ok()?)),
        _ => return None,
    };
    let (algorithm, _) = ALGORITHM_NAMES.iter().find(|(_, known)| known == name)?;
    let limit = limit.parse::<Limit>().ok()?.with_algorithm(*algorithm);
    burst.map_or(Some(limit), |burst| limit.with_burst(burst).ok())
}

/// Parses a duration in the units of a limit's window, or in `us`.
fn parse_duration(text: &str) -> Option<Duration> {
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
    fn a_schedule_survives_a_round_trip_as_text() {
        let lines = [
            "check sliding_window 5/10s cost 0",
            "check token_bucket 4294967295/ms burst 7 cost 4294967295",
            "charge token_bucket 5/10s burst 7 cost 4294967295",
            "look leaky_bucket 1/366d",
            "reset sliding_counter 2/1s500ms",
            "refund 12",
            "wait 9999ms",
            "wait 0ms",
            "back 3us",
            "check fixed_window 1/s cost 1",
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
