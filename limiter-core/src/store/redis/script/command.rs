//! The commands that call a script: EVALSHA with its keys and arguments.

use std::mem::replace;
use std::time::Duration;

use redis::{Cmd, Value};

use super::Program;
use super::reply::{self, BatchReply, EntryCalls};
use crate::clock::Clock;
use crate::request::sharing::{self, in_redis};
use crate::request::{DecisionReply, LeaseId, RefundInfo, Request};
use crate::{Algorithm, Error, Layout, Limit};

/// The operation of one decision.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Takes the permits. A leaky bucket may delay the call by up to `max_wait`.
    Take {
        max_wait: Duration,
        /// The process may lease permits of the limit.
        leases: bool,
    },
    /// Takes the permits of several requests without a wait. The reply to an allowed call has a report of each request.
    TakeWithReports,
    Peek,
    Refund(Box<RefundInfo>),
    Reset,
}

impl Action {
    /// The longest delay of the permits that it takes; `None` if it takes none.
    pub(crate) fn max_wait(&self) -> Option<Duration> {
        match self {
            Self::Take { max_wait, .. } => Some(*max_wait),
            Self::TakeWithReports => Some(Duration::ZERO),
            Self::Peek | Self::Refund(_) | Self::Reset => None,
        }
    }
}

/// The upper bound of a time argument, in microseconds: 142 years. A Lua number holds it exactly.
const MAX_MICROS: u64 = 1 << 52;

/// Builds the commands of one limiter.
#[derive(Debug)]
pub(crate) struct Commands {
    clock: Clock,
}

/// A command without the script's digest.
#[derive(Debug)]
pub(crate) struct Command {
    program: Program,
    keys: KeyNames,
    arguments: Vec<Argument>,
    limits: CommandLimits,
    /// True if an allowed reply has a report of each request.
    has_reports: bool,
    /// The number of observed requests.
    observed: usize,
    /// The number of entries of limits with leases.
    leases: usize,
}

/// The limits of a command, which bound the numbers of its reply.
#[derive(Debug)]
enum CommandLimits {
    /// The limit of each request.
    Decision(Vec<Limit>),
    /// The kinds of a batch, and the kind of each entry.
    Batch { kinds: Vec<BatchEntry>, indices: Vec<usize> },
}

/// The names of several keys, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct KeyNames {
    text: String,
    /// The end of each name.
    ends: Vec<usize>,
}

/// Identical calls of a batch: the limit and the cost of each, and their number.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct BatchEntry {
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
    pub(crate) calls: u32,
    /// `None` for a limit without leases.
    pub(crate) lease: Option<LeaseTerms>,
}

/// The part of a batch entry that is about leases.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Default)]
pub(crate) struct LeaseTerms {
    /// The most permits to lease. Without any, no lease is granted.
    pub(crate) wanted: u32,
    /// The mark of a log that has none yet: a random number.
    pub(crate) new_mark: u32,
    /// Unused permits of an earlier lease.
    pub(crate) returned: Option<ReturnedPermits>,
}

/// Unused permits of a lease, which go back to the store.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct ReturnedPermits {
    pub(crate) permits: u32,
    pub(crate) id: LeaseId,
}

#[derive(Debug)]
enum Argument {
    Word(&'static str),
    Number(u64),
    Bytes([u8; LEASE_BYTES]),
    /// The cost of a request that shares its counter with others of the decision, the permits of earlier ones that count
    /// as taken, and those that it takes; `None` if it is observed.
    SharedCost {
        cost: u32,
        pending: u32,
        taken: Option<u32>,
    },
}

/// Bytes of packed lease terms.
const LEASE_BYTES: usize = 22;

impl Commands {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock }
    }

    /// The command for one decision. `keys` are the names of the requests' keys.
    pub(crate) fn decide(&self, action: &Action, requests: &[Request<'_>], keys: KeyNames) -> Command {
        let micros = |wait: &Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX).min(MAX_MICROS);
        let (operation, number) = match action {
            Action::Peek => ("look", 0),
            Action::Take { max_wait, .. } => ("take", micros(max_wait)),
            Action::TakeWithReports => ("report", 0),
            Action::Refund(info) => ("refund", info.stamp),
            Action::Reset => ("forget", 0),
        };
        let mut arguments = vec![Argument::Word(operation), Argument::Number(number)];
        let mut push = |limit: Limit, burst: u32, cost: Argument| {
            arguments.push(Argument::Word(module(limit)));
            let numbers = [limit.window_millis(), limit.max().into(), burst.into()];
            arguments.extend(numbers.map(Argument::Number));
            arguments.push(cost);
        };
        match action {
            // A refund needs no capacity, but the permits that the call keeps.
            Action::Refund(info) => {
                for (Request { limit, cost, .. }, kept) in sharing::refunds(requests, info.max_permits, in_redis) {
                    push(limit, kept, Argument::Number(cost.into()));
                }
            }
            _ if sharing::may_share(requests) => {
                let takes = sharing::takes(requests, in_redis);
                for (index, (request, take)) in requests.iter().zip(takes.iter()).enumerate() {
                    let pending = sharing::pending(requests, index, in_redis);
                    let taken = (!request.role.is_observed()).then_some(take.cost);
                    let cost = Argument::SharedCost { cost: request.cost, pending, taken };
                    push(request.limit, request.limit.burst(), cost);
                }
            }
            _ => {
                for Request { limit, cost, .. } in requests {
                    push(*limit, limit.burst(), Argument::Number((*cost).into()));
                }
            }
        }
        arguments.extend(self.time());
        let has_reports = matches!(action, Action::TakeWithReports);
        let observed = requests.len() - sharing::enforced(requests);
        let limits = CommandLimits::Decision(requests.iter().map(|request| request.limit).collect());
        Command { program: Program::Decide, keys, arguments, limits, has_reports, observed, leases: 0 }
    }

    /// The command for a batch. `keys` are the names of the entries' keys.
    pub(crate) fn batch(&self, keys: KeyNames, entries: &[BatchEntry]) -> Command {
        let (mut kinds, mut leases): (Vec<BatchEntry>, _) = (Vec::new(), 0);
        let kind_of = |entry: &BatchEntry| {
            if entry.lease.is_some() {
                leases += 1;
                if entry.has_own_kind() {
                    return 0;
                }
            }
            // Usually there is one kind.
            kinds.iter().position(|known| known == entry).unwrap_or_else(|| {
                kinds.push(*entry);
                kinds.len() - 1
            })
        };
        let mut indices: Vec<_> = entries.iter().map(kind_of).collect();
        if leases > 0 {
            // They are behind the kinds that were searched.
            for (entry, index) in entries.iter().zip(&mut indices).filter(|(entry, _)| entry.has_own_kind()) {
                *index = kinds.len();
                kinds.push(*entry);
            }
        }
        let mut arguments = vec![Argument::Number(kinds.len() as u64)];
        for BatchEntry { limit, cost, calls, lease } in &kinds {
            arguments.push(Argument::Word(if lease.is_some() { "leased_window" } else { module(*limit) }));
            arguments.extend([limit.window_millis(), limit.max().into()].map(Argument::Number));
            arguments.push(lease.map_or(Argument::Number(limit.burst().into()), LeaseTerms::argument));
            arguments.extend([*cost, *calls].map(|number| Argument::Number(number.into())));
        }
        if kinds.len() > 1 {
            arguments.extend(indices.iter().map(|index| Argument::Number(*index as u64)));
        }
        arguments.extend(self.time());
        let limits = CommandLimits::Batch { kinds, indices };
        Command { program: Program::Batch, keys, arguments, limits, has_reports: false, observed: 0, leases }
    }

    /// The time of a manual clock, which each command carries.
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
}

impl BatchEntry {
    /// The entry of one call without a lease.
    pub(crate) fn of_call(request: &Request<'_>) -> Self {
        Self { limit: request.limit, cost: request.cost, calls: 1, lease: None }
    }

    /// Returns whether no other entry is of its kind: marks are random, and permits are returned once.
    fn has_own_kind(&self) -> bool {
        self.lease.is_some_and(|terms| !terms.is_empty())
    }
}

impl LeaseTerms {
    /// Returns whether nothing is leased or returned.
    pub(crate) fn is_empty(self) -> bool {
        self.wanted == 0 && self.returned.is_none()
    }

    /// The script's argument: empty, or packed as the header of `lua/batch.lua` describes.
    fn argument(self) -> Argument {
        if self.is_empty() {
            return Argument::Word("");
        }
        let Self { wanted, new_mark, returned } = self;
        let (permits, LeaseId { mark, end }) =
            returned.map_or((0, LeaseId { mark: 0, end: 0 }), |returned| (returned.permits, returned.id));
        let mut bytes = [0; LEASE_BYTES];
        bytes[..4].copy_from_slice(&wanted.to_be_bytes());
        bytes[4..8].copy_from_slice(&new_mark.to_be_bytes());
        bytes[8..12].copy_from_slice(&permits.to_be_bytes());
        // A time in milliseconds fits into 6 bytes until the year 10889.
        bytes[12..18].copy_from_slice(&end.to_be_bytes()[2..]);
        bytes[18..].copy_from_slice(&mark.to_be_bytes());
        Argument::Bytes(bytes)
    }
}

impl KeyNames {
    /// Adds the name that `write` appends to the buffer.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.text[replace(&mut start, *end)..*end])
    }
}

impl<'a> FromIterator<&'a str> for KeyNames {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut collected = Self::default();
        names.into_iter().for_each(|name| collected.push_with(|text| text.push_str(name)));
        collected
    }
}

/// The script's module for a limit.
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

    pub(crate) fn keys(&self) -> &KeyNames {
        &self.keys
    }

    /// Returns whether it uses several Redis keys, which may be on two nodes while their slot moves.
    pub(crate) fn has_several_keys(&self) -> bool {
        let mut names = self.keys.iter();
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// The EVALSHA command for the script with this digest.
    pub(crate) fn with_digest(&self, sha: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha).arg(self.keys.len());
        for key in self.keys.iter() {
            command.arg(key);
        }
        for argument in &self.arguments {
            match argument {
                Argument::Word(word) => command.arg(word),
                Argument::Number(number) => command.arg(number),
                Argument::Bytes(bytes) => command.arg(bytes),
                Argument::SharedCost { cost, pending, taken } => {
                    let taken = taken.map_or("-".to_owned(), |taken| taken.to_string());
                    command.arg(format!("{cost} {pending} {taken}"))
                }
            };
        }
        command
    }

    pub(crate) fn decode(&self, reply: &Value) -> Result<DecisionReply, Error> {
        let limits: &[Limit] = if let CommandLimits::Decision(limits) = &self.limits { limits } else { &[] };
        reply::decode(reply, limits, self.observed, self.has_reports)
    }

    pub(crate) fn decode_batch(&self, reply: Value) -> Result<BatchReply, Error> {
        let (kinds, indices): (&[BatchEntry], &[usize]) = match &self.limits {
            CommandLimits::Batch { kinds, indices } => (kinds, indices),
            CommandLimits::Decision(_) => (&[], &[]),
        };
        let calls = |&BatchEntry { limit, cost, calls, .. }: &BatchEntry| EntryCalls { limit, cost, calls };
        let entries = indices.iter().map(|index| calls(&kinds[*index]));
        reply::decode_batch(reply, entries, self.leases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers that follow the kinds of a batch: the kind of each entry.
    fn kinds_of_entries(entries: &[BatchEntry]) -> (u64, Vec<u64>) {
        let names = (0..entries.len()).map(|_| "a").collect();
        let Command { arguments, .. } = Commands::new(Clock::System).batch(names, entries);
        let numbers =
            arguments.iter().map(|argument| if let Argument::Number(number) = argument { *number } else { 0 });
        let numbers: Vec<_> = numbers.collect();
        let kinds = numbers[0];
        let fields = usize::try_from(kinds).expect("few") * 6;
        (kinds, numbers[1 + fields..].to_vec())
    }

    #[test]
    fn entries_of_one_kind_are_described_once_and_those_with_a_lease_each() {
        let plain = BatchEntry { limit: Limit::WIDEST, cost: 1, calls: 1, lease: None };
        let idle = BatchEntry { lease: Some(LeaseTerms::default()), ..plain };
        let leased =
            |wanted, new_mark| BatchEntry { lease: Some(LeaseTerms { wanted, new_mark, returned: None }), ..plain };
        let returned = Some(ReturnedPermits { permits: 3, id: LeaseId { mark: 1, end: 2 } });
        let returning = BatchEntry { lease: Some(LeaseTerms { returned, ..LeaseTerms::default() }), ..plain };
        assert_eq!(kinds_of_entries(&[plain; 3]), (1, Vec::new()));
        assert_eq!(kinds_of_entries(&[idle; 3]), (1, Vec::new()));
        assert_eq!(kinds_of_entries(&[returning]), (1, Vec::new()));
        let mixed = [leased(8, 1), plain, returning, idle, plain, leased(8, 2), BatchEntry { calls: 2, ..idle }, idle];
        assert_eq!(kinds_of_entries(&mixed), (6, vec![3, 0, 4, 1, 0, 5, 2, 1]));
        let twice = [returning; 2];
        assert_eq!(kinds_of_entries(&twice), (2, vec![0, 1]), "entries with terms are not compared");
    }
}
