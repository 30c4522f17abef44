//! The script, the command that calls it, and its reply.

use std::time::Duration;

use redis::{Cmd, Value};

use super::call::Action;
use crate::clock::Clock;
use crate::store::{Answer, Question};
use crate::{Algorithm, Error, ErrorKind, Layout, Limit};

/// Clock, algorithms and decision are files of their own and one script. Only the modules of the algorithms that a call
/// asks for are made, since a script makes everything anew each time it runs.
const SOURCE: &str = concat!(
    include_str!("lua/clock.lua"),
    include_str!("lua/sliding_window.lua"),
    "local function make(name)\n",
    "if name == 'sliding_window' then return sliding_window() end\n",
    "local algorithms = {}\n",
    include_str!("lua/arithmetic.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_counter.lua"),
    include_str!("lua/bucket.lua"),
    include_str!("lua/token_bucket.lua"),
    include_str!("lua/leaky_bucket.lua"),
    include_str!("lua/zset.lua"),
    "return algorithms[name]()\n",
    "end\n",
    include_str!("lua/decide.lua"),
);

/// The expression of the script that reads the server's clock.
#[cfg(feature = "test-util")]
const SERVER_TIME: &str = "redis.call('TIME')";
/// What a limiter with a clock of its own puts in its place: seconds and microseconds, as TIME gives them.
#[cfg(feature = "test-util")]
const GIVEN_TIME: &str = "{ ARGV[#ARGV - 1], ARGV[#ARGV] }";

/// Microseconds, 142 years: numbers beyond the script's are not told apart.
const FAR: u64 = 1 << 52;

/// The script, and how one limiter calls it.
pub(super) struct Script {
    prefix: String,
    source: String,
    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only a clock that tests move is asked"))]
    clock: Clock,
}

/// A command before the script's digest is put into it, and how to read what comes back.
pub(super) struct Command {
    keys: Vec<String>,
    arguments: Vec<Argument>,
}

enum Argument {
    Word(&'static str),
    Number(u64),
}

impl Script {
    pub(super) fn new(prefix: String, clock: Clock) -> Self {
        let source = match &clock {
            Clock::System => SOURCE.to_owned(),
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => SOURCE.replace(SERVER_TIME, GIVEN_TIME),
        };
        Self { prefix, source, clock }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn command(&self, action: &Action, questions: &[Question<'_>]) -> Command {
        let keys = questions.iter().map(|question| self.name(question)).collect();
        let (what, with) = match action {
            Action::Peek => ("look", 0),
            Action::Take { patience } => ("take", u64::try_from(patience.as_micros()).unwrap_or(u64::MAX).min(FAR)),
            Action::Refund(granted) => ("refund", granted.stamp),
            Action::Reset => ("forget", 0),
        };
        let mut arguments = vec![Argument::Word(what), Argument::Number(with)];
        for Question { limit, cost, .. } in questions {
            arguments.push(Argument::Word(module(*limit)));
            let numbers = [limit.window_millis(), limit.max().into(), limit.burst().into(), (*cost).into()];
            arguments.extend(numbers.map(Argument::Number));
        }
        #[cfg(feature = "test-util")]
        if let Clock::Manual(_) = &self.clock {
            let micros = self.clock.now().micros();
            arguments.extend([micros / 1_000_000, micros % 1_000_000].map(Argument::Number));
        }
        Command { keys, arguments }
    }

    fn name(&self, Question { key, limit, .. }: &Question<'_>) -> String {
        let tag = match (limit.layout(), limit.algorithm()) {
            (Layout::Zset, _) => return key.set(),
            (Layout::Compact, Algorithm::SlidingWindow) => "sw",
            (Layout::Compact, Algorithm::FixedWindow) => "fw",
            (Layout::Compact, Algorithm::SlidingCounter) => "sc",
            (Layout::Compact, Algorithm::TokenBucket) => "tb",
            (Layout::Compact, Algorithm::LeakyBucket) => "lb",
        };
        // One key, one slot: the hash tag is around the whole subject, which contains no brace.
        format!("{}:{{{}}}:{tag}:{}", self.prefix, key.subject(), limit.window_millis())
    }
}

/// What the script calls the module that counts.
fn module(limit: Limit) -> &'static str {
    match (limit.layout(), limit.algorithm()) {
        (Layout::Zset, _) => "zset",
        (Layout::Compact, Algorithm::SlidingWindow) => "sliding_window",
        (Layout::Compact, Algorithm::FixedWindow) => "fixed_window",
        (Layout::Compact, Algorithm::SlidingCounter) => "sliding_counter",
        (Layout::Compact, Algorithm::TokenBucket) => "token_bucket",
        (Layout::Compact, Algorithm::LeakyBucket) => "leaky_bucket",
    }
}

impl Command {
    pub(super) fn with(&self, sha: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha).arg(self.keys.len()).arg(&self.keys);
        for argument in &self.arguments {
            match argument {
                Argument::Word(word) => command.arg(word),
                Argument::Number(number) => command.arg(number),
            };
        }
        command
    }

    pub(super) fn read(&self, reply: &Value) -> Result<Answer, Error> {
        answer(reply, self.keys.len())
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "the script's reply is not one of this limiter's"))
    }
}

fn answer(reply: &Value, questions: usize) -> Option<Answer> {
    let Value::Array(values) = reply else { return None };
    let integers: Vec<i64> = values
        .iter()
        .map(|value| if let Value::Int(integer) = value { Some(*integer) } else { None })
        .collect::<Option<_>>()?;
    let [allowed, which, remaining, retry, reset, stamp, delay] = integers[..] else { return None };
    Some(Answer {
        allowed: match allowed {
            0 => false,
            1 => true,
            _ => return None,
        },
        which: usize::try_from(which).ok().filter(|which| *which < questions)?,
        remaining: u32::try_from(remaining).ok()?,
        retry_after: match retry {
            -1 => None,
            micros => Some(Duration::from_micros(u64::try_from(micros).ok()?)),
        },
        reset_after: Duration::from_micros(u64::try_from(reset).ok()?),
        stamp: u64::try_from(stamp).ok()?,
        delay: Duration::from_micros(u64::try_from(delay).ok()?),
    })
}
