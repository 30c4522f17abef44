//! The commands that call a script: EVALSHA with its keys and arguments.

use std::cell::LazyCell;
use std::time::Duration;

use redis::{Cmd, Value};

use super::Program;
use super::action::Action;
use super::block_arguments::{self, BlockArguments, CountedBlock};
use super::packed_arguments::PackedArguments;
use super::reply::{self, BatchReply, EntryCalls};
use super::slot_arguments::SlotArguments;
use crate::calendar::{Calendar, Edges};
use crate::clock::Clock;
use crate::local::leases::LeaseId;
use crate::request::settlement::CounterChange;
use crate::request::sharing::{self, in_redis};
use crate::request::{DecisionReply, Request};
use crate::store::redis::naming::RedisKey;
use crate::store::redis::packed::DeclaredCounts;
use crate::{Algorithm, Error, Layout, Limit};

/// The upper bound of a time argument, in microseconds: 142 years. A Lua number holds it exactly.
const MAX_MICROS: u64 = 1 << 52;

/// A script call without the script's digest.
#[derive(Debug)]
pub(crate) struct Command {
    /// The key of each request, or of each entry of a batch. All are in one slot.
    pub(crate) keys: Vec<RedisKey>,
    pub(crate) body: CommandBody,
}

/// What is known of the times of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerTimes {
    /// The time for which it has lost no permits, as far as this process can know. Only a receipt needs it.
    pub(crate) known_for: Duration,
    /// The microseconds by which its clock is ahead of this process's. Only calendars need them.
    pub(crate) clock_lead: i64,
}

/// The arguments of a command, and the bounds of the numbers in its reply.
#[derive(Debug)]
pub(crate) enum CommandBody {
    Decision(DecisionBody),
    Batch(Vec<BatchEntry>),
    Slots(SlotArguments),
    /// A decision or a batch, with the blocks of its keys. The keys of these are the last ones.
    Blocks {
        inner: Box<Self>,
        blocks: BlockArguments,
    },
    /// A decision or a batch about packed counts, whose names without hashes are the keys of the command. It has no
    /// blocks: a packed rule has none, and requests of others are in another call.
    Packed {
        inner: Box<Self>,
        packed: PackedArguments,
    },
}

/// The body of a command about one decision.
#[derive(Debug)]
pub(crate) struct DecisionBody {
    arguments: Vec<Argument>,
    /// The limit of each request.
    limits: Vec<Limit>,
    format: ReplyFormat,
    /// The number of observed requests.
    observed: usize,
}

/// The format of the reply to one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyFormat {
    Decision,
    /// With a report of each request. If it is allowed, with one of each observed request too.
    WithReports,
    /// With a report of each request that is not observed.
    WithReportsOfEnforced,
    Charge,
    /// The one of a charge, or the refusal of a receipt. The last key is the receipt's mark.
    Once,
}

/// Identical calls of a batch: the limit and the cost of each, and their number.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct BatchEntry {
    pub(crate) limit: Limit,
    pub(crate) cost: u32,
    pub(crate) calls: u32,
    /// A charge is an entry of one call.
    pub(crate) is_charge: bool,
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
    /// The edges of a calendar around the time that the server is expected to have.
    Edges(Calendar),
    /// The cost of a request that shares its counter with others of the decision, the permits of earlier ones that count
    /// as taken, and those that it takes; `None` if it is observed. Of a settlement that returns permits: none, those that
    /// it returns, and those that the call keeps.
    SharedCost {
        cost: u32,
        pending: u32,
        taken: Option<u32>,
    },
}

/// Bytes of packed lease terms.
const LEASE_BYTES: usize = 22;

impl BatchEntry {
    /// The entry of one call. The terms of its lease are still to be set.
    pub(crate) fn of_call(action: &Action, request: &Request<'_>) -> Self {
        let lease = action.takes_leases().then(LeaseTerms::default);
        Self { limit: request.limit, cost: request.cost, calls: 1, is_charge: action.is_charge(), lease }
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

/// The script's module for a limit.
fn module(limit: Limit) -> &'static str {
    match (limit.layout(), limit.algorithm()) {
        (Layout::Zset, _) => "zset",
        // No plan brings calls at once to the counters' scripts.
        (Layout::Compact, Algorithm::SlidingWindow | Algorithm::Concurrent) => "sliding_window",
        (Layout::Compact, Algorithm::FixedWindow) => "fixed_window",
        (Layout::Compact, Algorithm::SlidingCounter) => "sliding_counter",
        (Layout::Compact, Algorithm::TokenBucket) => "token_bucket",
        (Layout::Compact, Algorithm::LeakyBucket) => "leaky_bucket",
        (Layout::Compact, Algorithm::Calendar) => "calendar",
    }
}

impl Command {
    /// The command for a batch. `keys` are those of the entries.
    pub(crate) fn batch(keys: Vec<RedisKey>, entries: Vec<BatchEntry>) -> Self {
        let packed = PackedArguments::new(true, &keys, entries.iter().map(|entry| entry.limit.packed()));
        Self { keys, body: CommandBody::Batch(entries) }.with_packed(packed)
    }

    /// Adds the description of packed counts.
    fn with_packed(self, packed: Option<PackedArguments>) -> Self {
        match packed {
            None => self,
            Some(packed) => Self { body: CommandBody::Packed { inner: Box::new(self.body), packed }, ..self },
        }
    }

    /// The command for one decision. `keys` are those of the requests, and then the mark of a receipt.
    pub(crate) fn decide(action: &Action, requests: &[Request<'_>], keys: Vec<RedisKey>) -> Self {
        let micros = |wait: &Duration| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX).min(MAX_MICROS);
        let (operation, number) = match action {
            Action::Peek | Action::FirstLook { with_reports: false } => ("look", 0),
            Action::PeekWithReports | Action::FirstLook { with_reports: true } => ("survey", 0),
            Action::Take { max_wait, .. } => ("take", micros(max_wait)),
            Action::TakeWithReports => ("report", 0),
            Action::Charge => ("charge", 0),
            Action::Refund(info) => ("refund", info.stamp),
            Action::Settle(settlement) if settlement.once.is_some() => ("once", settlement.info.stamp),
            Action::Settle(settlement) => ("charge", settlement.info.stamp),
            Action::Reset => ("forget", 0),
        };
        let mut arguments = vec![Argument::Word(operation), Argument::Number(number)];
        let mut end = None;
        let mut push = |limit: Limit, burst: Argument, cost: Argument| {
            arguments.push(Argument::Word(module(limit)));
            arguments.extend([limit.window_millis(), limit.max().into()].map(Argument::Number));
            arguments.extend([burst, cost]);
        };
        match action {
            // A refund needs no capacity, but the permits that the call keeps.
            Action::Refund(info) => {
                for (Request { limit, cost, .. }, kept) in sharing::refunds(requests, info.max_permits, in_redis) {
                    push(limit, Argument::Number(kept.into()), Argument::Number(cost.into()));
                }
            }
            Action::Settle(settlement) => {
                end = settlement.once.map(|once| Argument::Number(once.end));
                for CounterChange { charged: Request { limit, cost, .. }, returned, kept } in
                    settlement.changes(requests, in_redis)
                {
                    let cost = match returned {
                        0 => Argument::Number(cost.into()),
                        _ => Argument::SharedCost { cost, pending: returned, taken: Some(kept) },
                    };
                    push(limit, Argument::burst(limit), cost);
                }
            }
            Action::Charge => {
                for Request { limit, cost, .. } in sharing::takes(requests, in_redis).iter() {
                    push(*limit, Argument::burst(*limit), Argument::Number((*cost).into()));
                }
            }
            _ if sharing::may_share(requests) => {
                let takes = sharing::takes(requests, in_redis);
                for (index, (request, take)) in requests.iter().zip(takes.iter()).enumerate() {
                    let pending = sharing::pending(requests, index, in_redis);
                    let taken = (!request.role.is_observed()).then_some(take.cost);
                    let cost = Argument::SharedCost { cost: request.cost, pending, taken };
                    push(request.limit, Argument::burst(request.limit), cost);
                }
            }
            _ => {
                for Request { limit, cost, .. } in requests {
                    push(*limit, Argument::burst(*limit), Argument::Number((*cost).into()));
                }
            }
        }
        arguments.extend(end);
        let format = match action {
            Action::TakeWithReports => ReplyFormat::WithReports,
            Action::PeekWithReports | Action::FirstLook { with_reports: true } => ReplyFormat::WithReportsOfEnforced,
            Action::Settle(settlement) if settlement.once.is_some() => ReplyFormat::Once,
            Action::Charge | Action::Settle(_) => ReplyFormat::Charge,
            _ => ReplyFormat::Decision,
        };
        let observed = requests.len() - sharing::enforced(requests);
        let limits = requests.iter().map(|request| request.limit).collect();
        let packed = PackedArguments::new(false, &keys, requests.iter().map(|request| request.limit.packed()));
        let command = Self { keys, body: CommandBody::Decision(DecisionBody { arguments, limits, format, observed }) };
        if packed.is_some() {
            return command.with_packed(packed);
        }
        let blocks = requests.iter().enumerate().filter(|_| action.uses_blocks());
        let blocks = blocks.filter_map(|(index, request)| {
            Some(CountedBlock { index, calls: 1, layout: request.limit.layout(), block: request.block? })
        });
        command.with_blocks(blocks, action.begins_blocks())
    }

    /// Adds the blocks of requests, or of entries with so many calls, by their indices. A key without a name for its block in
    /// its own slot has none.
    pub(crate) fn with_blocks(mut self, blocks: impl Iterator<Item = CountedBlock>, begins: bool) -> Self {
        let mut described = BlockArguments::new(matches!(self.body, CommandBody::Batch(_)), begins);
        for CountedBlock { index, calls, layout, block } in blocks {
            if let Some(key) = self.keys.get(index).and_then(|key| key.block_key(layout, block.rule())) {
                self.keys.push(key);
                described.add(index, calls, block.block());
            }
        }
        if described.is_empty() {
            return self;
        }
        Self { body: CommandBody::Blocks { inner: Box::new(self.body), blocks: described }, ..self }
    }

    /// The slot of its keys.
    pub(crate) fn slot(&self) -> u16 {
        self.keys.first().map_or(0, |key| key.slot)
    }

    pub(crate) fn program(&self) -> Program {
        match self.body {
            CommandBody::Decision(_) => Program::Decide,
            CommandBody::Batch(_) => Program::Batch,
            CommandBody::Slots(_) => Program::Slots,
            CommandBody::Blocks { .. } => Program::Blocks,
            CommandBody::Packed { .. } => Program::Packed,
        }
    }

    /// Remembers that the counts with these indices have keys of their own.
    pub(crate) fn remember_moved_out(&self, indices: &[usize]) {
        if let CommandBody::Packed { packed, .. } = &self.body {
            packed.remember(indices);
        }
    }

    /// Returns whether it uses several Redis keys, which may be on two nodes while their slot moves.
    pub(crate) fn has_several_keys(&self) -> bool {
        if let CommandBody::Packed { packed, .. } = &self.body {
            return packed.has_several_keys(&self.keys);
        }
        self.keys.iter().any(|key| *key != self.keys[0])
    }

    /// Returns whether it is about a receipt, which gives back only permits that its server cannot have lost.
    pub(crate) fn is_once(&self) -> bool {
        matches!(self.body.inner(), CommandBody::Decision(DecisionBody { format: ReplyFormat::Once, .. }))
    }

    /// The EVALSHA command for the script with this digest. With a manual clock it carries the time.
    pub(crate) fn with_digest(&self, sha: &str, clock: &Clock) -> Cmd {
        self.for_server(sha, clock, ServerTimes::default(), &DeclaredCounts::default())
    }

    /// The EVALSHA command for a server of which more is known. `declared` are the packed counts whose own keys it has.
    pub(crate) fn for_server(&self, sha: &str, clock: &Clock, times: ServerTimes, declared: &DeclaredCounts) -> Cmd {
        let ServerTimes { known_for, clock_lead } = times;
        // Of calendars alone, and read at most once.
        let server_millis = LazyCell::new(|| clock.wall_micros().saturating_add_signed(clock_lead) / 1000);
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha);
        if let CommandBody::Packed { packed, .. } = &self.body {
            packed.push_keys(&mut command, &self.keys, declared);
        } else {
            command.arg(self.keys.len());
            for key in &self.keys {
                command.arg(&*key.name);
            }
        }
        if let CommandBody::Blocks { blocks, .. } = &self.body {
            blocks.push_to(&mut command);
        }
        match self.body.inner() {
            CommandBody::Decision(decision) => {
                decision.arguments.iter().for_each(|argument| argument.push_to(&mut command, || *server_millis));
                if decision.format == ReplyFormat::Once {
                    command.arg(u64::try_from(known_for.as_micros()).unwrap_or(MAX_MICROS));
                }
            }
            CommandBody::Batch(entries) => push_batch(entries, &mut command, || *server_millis),
            CommandBody::Slots(arguments) => arguments.push_to(&mut command),
            CommandBody::Blocks { .. } | CommandBody::Packed { .. } => {} // Neither is around another.
        }
        if let CommandBody::Packed { packed, .. } = &self.body {
            packed.push_description(&mut command, self.keys.len(), declared);
        }
        match clock {
            Clock::System => {}
            #[cfg(feature = "test-util")]
            Clock::Manual(_) => {
                let micros = clock.now().micros();
                command.arg(micros / 1_000_000).arg(micros % 1_000_000);
            }
        }
        command
    }

    pub(crate) fn decode(&self, reply: &Value) -> Result<DecisionReply, Error> {
        match &self.body {
            CommandBody::Blocks { .. } => BlockArguments::decode(reply, |reply| self.decode_inner(reply)),
            _ => self.decode_inner(reply),
        }
    }

    fn decode_inner(&self, reply: &Value) -> Result<DecisionReply, Error> {
        let (limits, observed, format): (&[Limit], _, _) = match self.body.inner() {
            CommandBody::Decision(decision) => (&decision.limits, decision.observed, decision.format),
            _ => (&[], 0, ReplyFormat::Decision),
        };
        let (enforced, observed) = limits.split_at(limits.len().saturating_sub(observed));
        match format {
            ReplyFormat::Charge => reply::decode_charge(reply, limits),
            ReplyFormat::Decision => reply::decode(reply, enforced, None),
            ReplyFormat::WithReports => reply::decode(reply, enforced, Some(observed)),
            ReplyFormat::WithReportsOfEnforced => reply::decode(reply, enforced, Some(&[])),
            ReplyFormat::Once => match reply::decode_refusal(reply) {
                Some(refusal) => Ok(DecisionReply::refused(refusal)),
                None => reply::decode_charge(reply, limits),
            },
        }
    }

    pub(crate) fn decode_batch(&self, mut reply: Value) -> Result<BatchReply, Error> {
        let CommandBody::Blocks { blocks, .. } = &self.body else { return self.decode_batch_inner(reply) };
        let times = blocks.take_times(&mut reply)?;
        let mut decoded = self.decode_batch_inner(reply)?;
        block_arguments::add_times(&mut decoded.entries, &times);
        Ok(decoded)
    }

    fn decode_batch_inner(&self, reply: Value) -> Result<BatchReply, Error> {
        let entries: &[BatchEntry] = if let CommandBody::Batch(entries) = self.body.inner() { entries } else { &[] };
        let leases = entries.iter().filter(|entry| entry.lease.is_some()).count();
        let calls = |&BatchEntry { limit, cost, calls, is_charge, .. }: &BatchEntry| EntryCalls {
            limit,
            cost,
            calls: (!is_charge).then_some(calls),
        };
        reply::decode_batch(reply, entries.iter().map(calls), leases)
    }
}

impl CommandBody {
    /// The decision or the batch inside of blocks, or of packed counts.
    fn inner(&self) -> &Self {
        if let Self::Blocks { inner, .. } | Self::Packed { inner, .. } = self { inner } else { self }
    }

    /// The entries of a batch. Empty for others.
    pub(crate) fn into_entries(self) -> Vec<BatchEntry> {
        match self {
            Self::Batch(entries) => entries,
            Self::Blocks { inner, .. } | Self::Packed { inner, .. } => inner.into_entries(),
            Self::Decision(_) | Self::Slots(_) => Vec::new(),
        }
    }
}

/// Stands for the number of calls of a charge.
const CHARGE: &str = "+";

/// Adds the arguments of a batch: the kinds of its entries, and the kind of each entry if there are several.
fn push_batch(entries: &[BatchEntry], command: &mut Cmd, server_millis: impl Fn() -> u64) {
    let mut kinds: Vec<BatchEntry> = Vec::new();
    let kind_of = |entry: &BatchEntry| {
        if entry.has_own_kind() {
            return 0;
        }
        // Usually there is one kind.
        kinds.iter().position(|known| known == entry).unwrap_or_else(|| {
            kinds.push(*entry);
            kinds.len() - 1
        })
    };
    let mut indices: Vec<_> = entries.iter().map(kind_of).collect();
    // They are behind the kinds that were searched.
    for (entry, index) in entries.iter().zip(&mut indices).filter(|(entry, _)| entry.has_own_kind()) {
        *index = kinds.len();
        kinds.push(*entry);
    }
    command.arg(kinds.len());
    for BatchEntry { limit, cost, calls, is_charge, lease } in &kinds {
        command.arg(if lease.is_some() { "leased_window" } else { module(*limit) });
        command.arg(limit.window_millis()).arg(limit.max());
        lease.map_or(Argument::burst(*limit), LeaseTerms::argument).push_to(command, &server_millis);
        command.arg(cost);
        if *is_charge {
            command.arg(CHARGE);
        } else {
            command.arg(calls);
        }
    }
    if kinds.len() > 1 {
        command.arg(indices);
    }
}

impl Argument {
    /// The capacity of a bucket, or the edges of a calendar.
    fn burst(limit: Limit) -> Self {
        limit.calendar_periods().map_or(Self::Number(limit.burst().into()), Self::Edges)
    }

    /// Adds it to a command. `server_millis` returns the time that the server is expected to have.
    fn push_to(&self, command: &mut Cmd, server_millis: impl Fn() -> u64) {
        match self {
            Self::Edges(calendar) => {
                let Edges { before, start, end, after } = calendar.edges_at(server_millis());
                command.arg(format!("{before} {start} {end} {after}"))
            }
            Self::Word(word) => command.arg(word),
            Self::Number(number) => command.arg(number),
            Self::Bytes(bytes) => command.arg(bytes),
            Self::SharedCost { cost, pending, taken } => {
                let taken = taken.map_or("-".to_owned(), |taken| taken.to_string());
                command.arg(format!("{cost} {pending} {taken}"))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of kinds of a batch, and the numbers that follow them: the kind of each entry.
    fn kinds_of_entries(entries: &[BatchEntry]) -> (usize, Vec<usize>) {
        let keys = entries.iter().map(|_| RedisKey { slot: 0, name: "a".into() }).collect();
        let command = Command { keys, body: CommandBody::Batch(entries.to_vec()) }.with_digest("sha", &Clock::System);
        let arguments = command.args_iter().skip(3 + entries.len());
        let numbers = arguments.map(|argument| match argument {
            redis::Arg::Simple(bytes) => str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0),
            _ => 0,
        });
        let numbers: Vec<usize> = numbers.collect();
        let kinds = numbers[0];
        (kinds, numbers[1 + kinds * 6..].to_vec())
    }

    #[test]
    fn entries_of_one_kind_are_described_once_and_those_with_a_lease_each() {
        let plain = BatchEntry { limit: Limit::WIDEST, cost: 1, calls: 1, is_charge: false, lease: None };
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
