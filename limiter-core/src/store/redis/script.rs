//! The scripts, the commands that call them, and their replies.

use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::call::Action;
use super::failure::Refusal;
use crate::clock::Clock;
use crate::denied_until::Asked;
use crate::store::naming::Naming;
use crate::store::{Answer, Question};
use crate::{Algorithm, Error, ErrorKind, Layout, Limit};

/// Files of their own make one script: the clock, the algorithms, and what decides. Only the modules of the algorithms that
/// a call asks for are made, since a script makes everything anew each time it runs.
macro_rules! script {
    ($($decides:literal),+) => {
        concat!(
            include_str!("lua/clock.lua"),
            "local function make(name)\n",
            include_str!("lua/sliding_window.lua"),
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
    keys: Names,
    arguments: Vec<Argument>,
}

/// What counts are called, one after the other.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Names {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
}

/// Calls of one kind in a group: what they ask, and how many they are.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) limit: Limit,
    pub(super) cost: u32,
    pub(super) calls: u32,
    pub(super) asked: Option<Asked>,
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
        let mut keys = Names::default();
        questions.iter().for_each(|question| self.name(question, &mut keys));
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

    /// `keys` are the names of the entries.
    pub(super) fn group(&self, keys: Names, entries: &[Entry]) -> Command {
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

    /// Adds what the count of a question is called in Redis.
    pub(super) fn name(&self, question: &Question<'_>, names: &mut Names) {
        self.naming.write(question, &mut names.text);
        names.ends.push(names.text.len());
    }
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut from = 0;
        self.ends.iter().map(move |end| &self.text[replace(&mut from, *end)..*end])
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        names.into_iter().fold(Self::default(), |mut names, name| {
            names.text.push_str(name);
            names.ends.push(names.text.len());
            names
        })
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

    pub(super) fn names(&self) -> &Names {
        &self.keys
    }

    /// Returns whether it is about several Redis keys, which may be in two places while their slot moves.
    pub(super) fn has_several_keys(&self) -> bool {
        let mut names = self.keys.iter();
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    pub(super) fn with(&self, sha: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha).arg(self.keys.len());
        for key in self.keys.iter() {
            command.arg(key);
        }
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
        let (Some(Value::Int(stamp)), Some(Value::BulkString(told))) = (values.next(), values.next()) else {
            return Err(strange());
        };
        let stamp = u64::try_from(stamp).map_err(|_| strange())?;
        let (grants, rest) = told.as_chunks();
        if grants.len() != self.keys.len() || !rest.is_empty() {
            return Err(strange());
        }
        let mut grants: Vec<_> = grants.iter().map(|told| grant(told, stamp).ok_or_else(strange)).collect();
        while let Some(place) = values.next() {
            let (Value::Int(place), Some(error @ Value::ServerError(_))) = (place, values.next()) else {
                return Err(strange());
            };
            let grant = usize::try_from(place).ok().and_then(|place| grants.get_mut(place)).ok_or_else(strange)?;
            *grant = Err(error.extract_error().map_err(Refusal::from).err().map_or_else(strange, Error::from));
        }
        Ok(grants)
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Protocol, "the script's reply is not one of this limiter's")
}

/// What is said of one entry, as the script packs it.
fn grant(told: &[u8; 24], stamp: u64) -> Option<Grant> {
    let (granted, rest) = told.split_first_chunk()?;
    let (remaining, rest) = rest.split_first_chunk()?;
    let (retry, reset) = rest.split_first_chunk()?;
    Some(Grant {
        granted: u32::from_be_bytes(*granted),
        remaining: u32::from_be_bytes(*remaining),
        retry_after: after(i64::from_be_bytes(*retry))?,
        reset_after: Duration::from_micros(u64::try_from(i64::from_be_bytes(*reset.first_chunk()?)).ok()?),
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
