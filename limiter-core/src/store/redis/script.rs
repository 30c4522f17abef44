//! The script, the command that calls it, and its reply.

use std::time::Duration;

use redis::{Cmd, Value};

use super::call::{Action, Call};
use crate::clock::Clock;
use crate::store::Answer;
use crate::{Error, ErrorKind};

const SLIDING_WINDOW: &str = include_str!("lua/sliding_window.lua");

/// The line of the scripts that reads the server's clock.
#[cfg(feature = "test-util")]
const SERVER_TIME: &str = "redis.call('TIME')";
/// What a limiter with a clock of its own puts in its place: seconds and microseconds, as TIME gives them.
#[cfg(feature = "test-util")]
const GIVEN_TIME: &str = "{ ARGV[5], ARGV[6] }";

/// The script of one algorithm, for the keys of one limiter.
pub(super) struct Script {
    prefix: String,
    source: String,
    clock: Clock,
}

/// A call as the arguments of a command, and how to read what comes back.
pub(super) enum Command {
    Evaluate { key: String, arguments: Vec<u64> },
    Delete { key: String },
}

impl Script {
    pub(super) fn sliding_window(prefix: String, clock: Clock) -> Self {
        let source = match &clock {
            Clock::System => SLIDING_WINDOW.to_owned(),
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => SLIDING_WINDOW.replace(SERVER_TIME, GIVEN_TIME),
        };
        Self { prefix, source, clock }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn command(&self, call: &Call) -> Command {
        // One key, one slot: the hash tag is around the whole subject, which contains no brace.
        let window = call.limit.window_millis();
        let key = format!("{}:{{{}}}:sw:{window}", self.prefix, call.key.subject());
        let take = match call.action {
            Action::Take => 1,
            Action::Peek => 0,
            Action::Reset => return Command::Delete { key },
        };
        let arguments = vec![window, call.limit.max().into(), call.cost.into(), take];
        Command::Evaluate { key, arguments: self.with_time(arguments) }
    }

    #[cfg(feature = "test-util")]
    fn with_time(&self, mut arguments: Vec<u64>) -> Vec<u64> {
        if let Clock::Manual(_) = &self.clock {
            let micros = self.clock.now().micros();
            arguments.extend([micros / 1_000_000, micros % 1_000_000]);
        }
        arguments
    }

    #[cfg(not(feature = "test-util"))]
    fn with_time(&self, arguments: Vec<u64>) -> Vec<u64> {
        let Clock::System = self.clock;
        arguments
    }
}

impl Command {
    pub(super) fn with(&self, sha: &str) -> Cmd {
        match self {
            Self::Evaluate { key, arguments } => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(sha).arg(1).arg(key).arg(arguments);
                command
            }
            Self::Delete { key } => {
                let mut command = redis::cmd("DEL");
                command.arg(key);
                command
            }
        }
    }

    pub(super) fn read(&self, reply: &Value) -> Result<Answer, Error> {
        match self {
            Self::Evaluate { .. } => answer(reply),
            Self::Delete { .. } => Some(NOTHING_TAKEN),
        }
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "the script's reply is not one of this limiter's"))
    }
}

/// A key's answer after it was forgotten.
const NOTHING_TAKEN: Answer =
    Answer { allowed: true, remaining: 0, retry_after: Some(Duration::ZERO), reset_after: Duration::ZERO, stamp: 0 };

fn answer(reply: &Value) -> Option<Answer> {
    let Value::Array(values) = reply else { return None };
    let [Value::Int(allowed), Value::Int(remaining), Value::Int(retry), Value::Int(reset), Value::Int(stamp)] =
        values.as_slice()
    else {
        return None;
    };
    Some(Answer {
        allowed: match allowed {
            0 => false,
            1 => true,
            _ => return None,
        },
        remaining: u32::try_from(*remaining).ok()?,
        retry_after: match retry {
            -1 => None,
            micros => Some(Duration::from_micros(u64::try_from(*micros).ok()?)),
        },
        reset_after: Duration::from_micros(u64::try_from(*reset).ok()?),
        stamp: u64::try_from(*stamp).ok()?,
    })
}
