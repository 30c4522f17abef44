//! Both scripts of decisions on a server, under a clock that the test moves.

use std::cell::RefCell;

use limiter_testkit::{Client, RedisServer, Reply, unique};
use redis::{Arg, Value, parse_redis_value};

use crate::clock::{Clock, ManualClock};
use crate::request::{DecisionReply, Request};
use crate::store::redis::naming::RedisKey;
use crate::store::redis::packed::DeclaredCounts;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, Command, CommandBody, ServerTimes};
use crate::store::redis::script::reply::{BatchEntryReply, BatchReply, LeaseReply};
use crate::store::redis::script::sources;

/// Both scripts, a connection to their server, and the names of two keys.
pub(super) struct LoadedScripts {
    client: RefCell<Client>,
    /// The digests of the scripts, in the order of [`sources`].
    digests: [String; 2],
    keys: [RedisKey; 2],
    /// The time of the next call.
    pub(super) clock: ManualClock,
}

impl LoadedScripts {
    pub(super) fn new() -> Self {
        Self::with_sources(|source| source)
    }

    /// Loads the scripts with another text in place of one that each has.
    pub(super) fn with_replaced(text: &str, replacement: &str) -> Self {
        Self::with_sources(|source| {
            assert!(source.contains(text), "each script has this text: {text}");
            source.replace(text, replacement)
        })
    }

    fn with_sources(change: impl Fn(String) -> String) -> Self {
        let clock = ManualClock::new();
        let mut client = RedisServer::timeless().client().expect("the server accepts connections");
        let [decide, batch, ..] = sources(&Clock::Manual(clock.clone()));
        let digests = [decide, batch].map(|source| {
            let digest = client.call(&["SCRIPT", "LOAD", &change(source)]).expect("the server replies");
            String::from_utf8(digest.bytes()).expect("a digest is text")
        });
        let keys = ["lease", "other"].map(|name| RedisKey { slot: 0, name: unique(name).as_str().into() });
        Self { client: RefCell::new(client), digests, keys, clock }
    }

    pub(super) fn delete_keys(&self) {
        let [first, second] = &self.keys;
        let [first, second] = [first, second].map(|key| String::from_utf8_lossy(&key.name));
        self.call(&["DEL", &*first, &*second]);
    }

    /// Calls a command on the first key.
    pub(super) fn command(&self, command: &[&str], arguments: &[&[u8]]) -> Reply {
        let words = command.iter().map(|word| word.as_bytes());
        let all: Vec<_> = words.chain([&*self.keys[0].name]).chain(arguments.iter().copied()).collect();
        self.call(&all)
    }

    /// Makes one decision about the first key.
    pub(super) fn decide(&self, action: &Action, request: Request<'_>) -> DecisionReply {
        self.decide_on(0, action, request)
    }

    /// Makes one decision about the key with this index.
    pub(super) fn decide_on(&self, key: usize, action: &Action, request: Request<'_>) -> DecisionReply {
        let command = Command::decide(action, &[request], vec![self.keys[key].clone()]);
        let reply = self.send(&command, 0);
        command.decode(&as_value(reply)).expect("a reply to a decision")
    }

    /// Sends a batch of one entry about the first key.
    pub(super) fn batch(&self, entry: BatchEntry) -> (BatchEntryReply, LeaseReply) {
        self.batch_on(0, entry)
    }

    /// Sends a batch of one entry about the key with this index.
    pub(super) fn batch_on(&self, key: usize, entry: BatchEntry) -> (BatchEntryReply, LeaseReply) {
        let command = Command { keys: vec![self.keys[key].clone()], body: CommandBody::Batch(vec![entry]) };
        let reply = self.send(&command, 1);
        let BatchReply { mut entries, leases } = command.decode_batch(as_value(reply)).expect("a reply to a batch");
        let no_lease = LeaseReply { permits: 0, id: None };
        (entries.remove(0).expect("an entry"), leases.first().copied().unwrap_or(no_lease))
    }

    /// Sends a command about the first key to a server whose clock is thought to be ahead by so many microseconds. The error
    /// is the time of the server, if it needs the edges of a calendar around it.
    pub(super) fn send_with_lead(&self, body: CommandBody, clock_lead: i64) -> Result<(Command, Value), String> {
        let command = Command { keys: vec![self.keys[0].clone()], body };
        let script = usize::from(matches!(command.body, CommandBody::Batch(_)));
        match self.send_to(&command, script, ServerTimes { clock_lead, ..ServerTimes::default() }) {
            Reply::Error(error) => Err(error),
            reply => Ok((command, as_value(reply))),
        }
    }

    fn send(&self, command: &Command, script: usize) -> Reply {
        self.send_to(command, script, ServerTimes::default())
    }

    fn send_to(&self, command: &Command, script: usize, times: ServerTimes) -> Reply {
        let command = command.for_server(
            &self.digests[script],
            &Clock::Manual(self.clock.clone()),
            times,
            &DeclaredCounts::default(),
        );
        let arguments: Vec<&[u8]> =
            command.args_iter().map(|argument| if let Arg::Simple(bytes) = argument { bytes } else { &[] }).collect();
        self.call(&arguments)
    }

    fn call(&self, arguments: &[impl AsRef<[u8]>]) -> Reply {
        self.client.borrow_mut().call(arguments).expect("the server replies")
    }
}

fn as_value(reply: Reply) -> Value {
    match reply {
        Reply::Array(values) => Value::Array(values.into_iter().map(as_value).collect()),
        Reply::Integer(number) => Value::Int(number),
        Reply::Error(error) => parse_redis_value(format!("-{error}\r\n").as_bytes()).expect("an error"),
        other => Value::BulkString(other.bytes()),
    }
}
