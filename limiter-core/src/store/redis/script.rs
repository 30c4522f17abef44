//! The scripts, the commands that call them, and their replies.

use std::array::from_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::call::Action;
use super::failure::Refusal;
use crate::clock::Clock;
use crate::store::naming::Naming;
use crate::store::{Answer, Question};
use crate::{Algorithm, Error, ErrorKind, Layout, Limit};

/// Files of their own make one script: the clock, the algorithms, and what decides. Only the modules of the algorithms that
/// a call asks for are made, since a script makes everything anew each time it runs.
macro_rules! script {
    ($($decides:literal),+) => {
        concat!(
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
            $(include_str!($decides),)+
        )
    };
}

/// Which script a command calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// One decision, of any kind.
    Decide,
    /// Many decisions, each about one count.
    Group,
}

impl Program {
    pub(super) const ALL: [Self; 2] = [Self::Decide, Self::Group];

    const fn source(self) -> &'static str {
        match self {
            Self::Decide => script!("lua/decide.lua"),
            Self::Group => script!("lua/sliding_at_once.lua", "lua/group.lua"),
        }
    }
}

/// The expression of the script that reads the server's clock.
#[cfg(feature = "test-util")]
const SERVER_TIME: &str = "redis.call('TIME')";
/// What a limiter with a clock of its own puts in its place: seconds and microseconds, as TIME gives them.
#[cfg(feature = "test-util")]
const GIVEN_TIME: &str = "{ ARGV[#ARGV - 1], ARGV[#ARGV] }";

/// Microseconds, 142 years: numbers beyond the script's are not told apart.
const FAR: u64 = 1 << 52;

/// The scripts, and how one limiter calls them.
pub(super) struct Script {
    naming: Arc<Naming>,
    clock: Clock,
}

/// A command before the script's digest is put into it, and how to read what comes back.
pub(super) struct Command {
    program: Program,
    keys: Vec<String>,
    arguments: Vec<Argument>,
}

/// Calls of one kind in a group: what they ask, and how many they are.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Rc<str>,
    pub(super) limit: Limit,
    pub(super) cost: u32,
    pub(super) calls: u32,
}

/// What the script says of an entry.
#[derive(Debug)]
pub(super) struct Grant {
    /// Calls that are granted, and what is left after them.
    pub(super) granted: u32,
    pub(super) remaining: u32,
    /// For the calls that are not.
    pub(super) retry_after: Option<Duration>,
    pub(super) reset_after: Duration,
    pub(super) stamp: u64,
}

enum Argument {
    Word(&'static str),
    Number(u64),
}

impl Script {
    pub(super) fn new(naming: Arc<Naming>, clock: Clock) -> Self {
        Self { naming, clock }
    }

    /// The source of each program, in their order.
    pub(super) fn sources(&self) -> [String; 2] {
        Program::ALL.map(|program| match &self.clock {
            Clock::System => program.source().to_owned(),
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => program.source().replace(SERVER_TIME, GIVEN_TIME),
        })
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
        arguments.extend(self.time());
        Command { program: Program::Decide, keys, arguments }
    }

    pub(super) fn group(&self, entries: &[Entry]) -> Command {
        let keys = entries.iter().map(|entry| entry.name.to_string()).collect();
        let mut kinds: Vec<(Limit, u32, u32)> = Vec::new();
        let mut kind_of = |entry: &Entry| {
            let kind = (entry.limit, entry.cost, entry.calls);
            // Mostly there is one.
            kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        };
        let places: Vec<_> = entries.iter().map(&mut kind_of).collect();
        let mut arguments = vec![Argument::Number(kinds.len() as u64)];
        for (limit, cost, calls) in &kinds {
            arguments.push(Argument::Word(module(*limit)));
            let limits = [limit.window_millis(), limit.max().into(), limit.burst().into()];
            arguments.extend(limits.map(Argument::Number));
            arguments.extend([*cost, *calls].map(|number| Argument::Number(number.into())));
        }
        if kinds.len() > 1 {
            arguments.extend(places.into_iter().map(|place| Argument::Number(place as u64)));
        }
        arguments.extend(self.time());
        Command { program: Program::Group, keys, arguments }
    }

    /// Where tests move the clock, its time goes with each command.
    fn time(&self) -> Vec<Argument> {
        match &self.clock {
            Clock::System => Vec::new(),
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => {
                let micros = self.clock.now().micros();
                [micros / 1_000_000, micros % 1_000_000].map(Argument::Number).into()
            }
        }
    }

    /// What the count of a question is called in Redis.
    pub(super) fn name(&self, question: &Question<'_>) -> String {
        self.naming.name(question)
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
    pub(super) fn program(&self) -> Program {
        self.program
    }

    /// Whether its keys may be asked about in calls of their own.
    pub(super) fn is_divisible(&self) -> bool {
        matches!(self.program, Program::Group) && self.keys.len() > 1
    }

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
        answer(reply, self.keys.len()).ok_or_else(strange)
    }

    /// What is said of each entry of a group.
    pub(super) fn read_group(&self, reply: Value) -> Result<Vec<Result<Grant, Error>>, Error> {
        let Value::Array(values) = reply else { return Err(strange()) };
        let mut values = values.into_iter();
        let Some(Value::Int(stamp)) = values.next() else { return Err(strange()) };
        let stamp = u64::try_from(stamp).map_err(|_| strange())?;
        let mut grants = Vec::with_capacity(self.keys.len());
        for _ in &self.keys {
            let fields: [Value; 4] = from_fn(|_| values.next().unwrap_or(Value::Nil));
            grants.push(match fields {
                [error @ Value::ServerError(_), ..] => {
                    Err(error.extract_error().map_err(Refusal::from).err().map_or_else(strange, Error::from))
                }
                fields => grant(&fields, stamp).ok_or_else(strange),
            });
        }
        if values.next().is_some() { Err(strange()) } else { Ok(grants) }
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Protocol, "the script's reply is not one of this limiter's")
}

fn grant(fields: &[Value; 4], stamp: u64) -> Option<Grant> {
    let [Value::Int(granted), Value::Int(remaining), Value::Int(retry), Value::Int(reset)] = *fields else {
        return None;
    };
    Some(Grant {
        granted: u32::try_from(granted).ok()?,
        remaining: u32::try_from(remaining).ok()?,
        retry_after: after(retry)?,
        reset_after: Duration::from_micros(u64::try_from(reset).ok()?),
        stamp,
    })
}

/// -1 is never.
fn after(micros: i64) -> Option<Option<Duration>> {
    match micros {
        -1 => Some(None),
        micros => Some(Some(Duration::from_micros(u64::try_from(micros).ok()?))),
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
        retry_after: after(retry)?,
        reset_after: Duration::from_micros(u64::try_from(reset).ok()?),
        stamp: u64::try_from(stamp).ok()?,
        delay: Duration::from_micros(u64::try_from(delay).ok()?),
    })
}
