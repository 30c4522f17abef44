//! The scripts, the commands that call them, and their replies.

use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::Clock;
use crate::local::denial_cache::CacheVersion;
use crate::request::{Request, StoreReply};
use crate::store::naming::Naming;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::worker::call::Action;
use crate::{Algorithm, Error, ErrorKind, Layout, Limit};

/// Files of their own make one script: the clock, the algorithms, and what decides. Only the modules of the algorithms that
/// a call asks for are made, since a script makes everything anew each time it runs.
macro_rules! script {
    ($($decides:literal),+) => {
        concat!(
            include_str!("script/lua/clock.lua"),
            "local function make(name)\n",
            include_str!("script/lua/sliding_window.lua"),
            "if name == 'sliding_window' then return sliding_window() end\n",
            "local algorithms = {}\n",
            include_str!("script/lua/arithmetic.lua"),
            include_str!("script/lua/fixed_window.lua"),
            include_str!("script/lua/sliding_counter.lua"),
            include_str!("script/lua/bucket.lua"),
            include_str!("script/lua/token_bucket.lua"),
            include_str!("script/lua/leaky_bucket.lua"),
            include_str!("script/lua/zset.lua"),
            "return algorithms[name]()\n",
            "end\n",
            $(include_str!($decides),)+
        )
    };
}

/// Which script a command calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// One decision, of any kind.
    Decide,
    /// Many decisions, each about one count.
    Batch,
}

impl Program {
    pub(crate) const ALL: [Self; 2] = [Self::Decide, Self::Batch];

    const fn source(self) -> &'static str {
        match self {
            Self::Decide => script!("script/lua/decide.lua"),
            Self::Batch => script!("script/lua/sliding_at_once.lua", "script/lua/group.lua"),
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
pub(crate) struct Script {
    naming: Arc<Naming>,
    clock: Clock,
}

/// A command before the script's digest is put into it, and how to read what comes back.
pub(crate) struct Command {
    program: Program,
    keys: KeyNames,
    arguments: Vec<Argument>,
}

/// What counts are called, one after the other.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyNames {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
}

/// Calls of one kind in a group: what they ask, and how many they are.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
    pub(crate) calls: u32,
    pub(crate) version: Option<CacheVersion>,
}

/// What the script says of an entry.
#[derive(Debug)]
pub(crate) struct BatchEntryReply {
    /// Calls that are granted, and what is left after them.
    pub(crate) granted: u32,
    pub(crate) remaining: u32,
    /// For the calls that are not.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reset_after: Duration,
    pub(crate) stamp: u64,
}

enum Argument {
    Word(&'static str),
    Number(u64),
}

impl Script {
    pub(crate) fn new(naming: Arc<Naming>, clock: Clock) -> Self {
        Self { naming, clock }
    }

    /// The source of each program, in their order.
    pub(crate) fn sources(&self) -> [String; 2] {
        Program::ALL.map(|program| match &self.clock {
            Clock::System => program.source().to_owned(),
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => program.source().replace(SERVER_TIME, GIVEN_TIME),
        })
    }

    pub(crate) fn command(&self, action: &Action, requests: &[Request<'_>]) -> Command {
        let mut keys = KeyNames::default();
        requests.iter().for_each(|request| self.name(request, &mut keys));
        let (what, with) = match action {
            Action::Peek => ("look", 0),
            Action::Take { max_wait } => ("take", u64::try_from(max_wait.as_micros()).unwrap_or(u64::MAX).min(FAR)),
            Action::Refund(granted) => ("refund", granted.stamp),
            Action::Reset => ("forget", 0),
        };
        let mut arguments = vec![Argument::Word(what), Argument::Number(with)];
        for Request { limit, cost, .. } in requests {
            arguments.push(Argument::Word(module(*limit)));
            let numbers = [limit.window_millis(), limit.max().into(), limit.burst().into(), (*cost).into()];
            arguments.extend(numbers.map(Argument::Number));
        }
        arguments.extend(self.time());
        Command { program: Program::Decide, keys, arguments }
    }

    /// `keys` are the names of the entries.
    pub(crate) fn group(&self, keys: KeyNames, entries: &[BatchEntry]) -> Command {
        let mut kinds: Vec<(Limit, u32, u32)> = Vec::new();
        let mut kind_of = |entry: &BatchEntry| {
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
        Command { program: Program::Batch, keys, arguments }
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

    /// Adds what the count of a request is called in Redis.
    pub(crate) fn name(&self, request: &Request<'_>, names: &mut KeyNames) {
        self.naming.write(request, &mut names.text);
        names.ends.push(names.text.len());
    }
}

impl KeyNames {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut from = 0;
        self.ends.iter().map(move |end| &self.text[replace(&mut from, *end)..*end])
    }
}

impl<'a> FromIterator<&'a str> for KeyNames {
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
    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn names(&self) -> &KeyNames {
        &self.keys
    }

    /// Returns whether it is about several Redis keys, which may be in two places while their slot moves.
    pub(crate) fn has_several_keys(&self) -> bool {
        let mut names = self.keys.iter();
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    pub(crate) fn with(&self, sha: &str) -> Cmd {
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

    pub(crate) fn read(&self, reply: &Value) -> Result<StoreReply, Error> {
        answer(reply, self.keys.len()).ok_or_else(strange)
    }

    /// What is said of each entry of a group.
    pub(crate) fn read_group(&self, reply: Value) -> Result<Vec<Result<BatchEntryReply, Error>>, Error> {
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
            *grant = Err(error.extract_error().map_err(CommandError::from).err().map_or_else(strange, Error::from));
        }
        Ok(grants)
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Protocol, "the script's reply is not one of this limiter's")
}

/// What is said of one entry, as the script packs it.
fn grant(told: &[u8; 24], stamp: u64) -> Option<BatchEntryReply> {
    let (granted, rest) = told.split_first_chunk()?;
    let (remaining, rest) = rest.split_first_chunk()?;
    let (retry, reset) = rest.split_first_chunk()?;
    Some(BatchEntryReply {
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

fn answer(reply: &Value, requests: usize) -> Option<StoreReply> {
    let Value::Array(values) = reply else { return None };
    let integers: Vec<i64> = values
        .iter()
        .map(|value| if let Value::Int(integer) = value { Some(*integer) } else { None })
        .collect::<Option<_>>()?;
    let [allowed, request_index, remaining, retry, reset, stamp, delay] = integers[..] else { return None };
    Some(StoreReply {
        allowed: match allowed {
            0 => false,
            1 => true,
            _ => return None,
        },
        request_index: usize::try_from(request_index).ok().filter(|index| *index < requests)?,
        remaining: u32::try_from(remaining).ok()?,
        retry_after: after(retry)?,
        reset_after: Duration::from_micros(u64::try_from(reset).ok()?),
        stamp: u64::try_from(stamp).ok()?,
        delay: Duration::from_micros(u64::try_from(delay).ok()?),
    })
}

#[cfg(test)]
mod fuzz;
