//! The script on a server does what the model does: its replies, its values and its notices.

use std::collections::HashMap;
use std::time::Duration;

use limiter_testkit::{Client, Random, RedisServer, Reply, full_or, unique};
use redis::{Arg, Value};

use super::model::{MAX_ENTRIES, StoredSlots};
use super::*;
use crate::Key;
use crate::clock::Clock;
use crate::clock::ManualClock;
use crate::store::redis::naming::Naming;
use crate::store::redis::script::{Program, sources};

mod invariant;
mod schedules;

/// The script, a connection to its server, and a subscription to all its notices.
struct Script {
    client: Client,
    subscription: redis::Connection,
    digest: String,
    naming: Naming,
    clock: ManualClock,
}

impl Script {
    fn new(server: &RedisServer) -> Self {
        Self::with_replaced(server, &[])
    }

    /// Loads the script with other texts in place of some that it has.
    fn with_replaced(server: &RedisServer, texts: &[(&str, &str)]) -> Self {
        let clock = ManualClock::new();
        let mut source = sources(&Clock::Manual(clock.clone()))[Program::Slots as usize].clone();
        for (text, replacement) in texts {
            assert_eq!(source.matches(text).count(), 1, "the script has this text once: {text}");
            source = source.replace(text, replacement);
        }
        let mut client = server.client().expect("the server accepts connections");
        let digest = client.call(&["SCRIPT", "LOAD", &source]).expect("the server replies");
        let digest = String::from_utf8(digest.bytes()).expect("a digest is text");
        let naming = Naming::new(&unique("slots"), None, false);
        let mut subscription =
            redis::Client::open(server.url()).and_then(|client| client.get_connection()).expect("a server");
        let pattern = naming.notice_channel_prefix() + "*";
        subscription
            .send_packed_command(&redis::cmd("PSUBSCRIBE").arg(pattern).get_packed_command())
            .and_then(|()| subscription.recv_response())
            .expect("a subscription");
        Self { client, subscription, digest, naming, clock }
    }

    fn key(&self, name: &str) -> RedisKey {
        self.naming.slots_key(&Key::new(name))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("64 bits")
    }

    fn call(&mut self, operation: &SlotOperation) -> Value {
        let clock = Clock::Manual(self.clock.clone());
        let command = operation.clone().command(&self.naming.notice_channel_prefix()).with_digest(&self.digest, &clock);
        let arguments: Vec<&[u8]> =
            command.args_iter().map(|argument| if let Arg::Simple(bytes) = argument { bytes } else { &[] }).collect();
        match self.client.call(&arguments).expect("the server replies") {
            Reply::Integer(number) => Value::Int(number),
            Reply::Bulk(bytes) => Value::BulkString(bytes),
            _ => Value::Nil,
        }
    }

    fn send(&mut self, process: SlotProcessId, messages: &[(RedisKey, SlotMessage)]) -> Option<Vec<SlotReply>> {
        let reply = self.call(&SlotOperation::Send { process, messages: messages.to_vec() });
        decode_messages(&reply, messages.len()).ok()
    }

    fn peek(&mut self, key: &RedisKey) -> Option<Vec<SlotHolder>> {
        let reply = self.call(&SlotOperation::Peek(key.clone()));
        decode_peek(&reply).ok()
    }

    fn reset(&mut self, key: &RedisKey) {
        decode_reset(&self.call(&SlotOperation::Reset(key.clone()))).expect("a reply to a reset");
    }

    /// The notices since the last call: their channels, and the keys in them.
    fn notices(&mut self) -> Vec<(String, Vec<u8>)> {
        let end = self.naming.notice_channel_prefix() + "end";
        self.client.call(&["PUBLISH", &end, ""]).expect("the server replies");
        let mut notices = Vec::new();
        loop {
            let message = self.subscription.recv_response().expect("a message");
            let (_, _, channel, key): (String, String, String, Vec<u8>) =
                redis::from_redis_value(message).expect("a message of a pattern");
            if channel == end {
                return notices;
            }
            notices.push((channel, key));
        }
    }

    fn command(&mut self, name: &str, key: &RedisKey, arguments: &[&[u8]]) -> Reply {
        let arguments: Vec<&[u8]> = [name.as_bytes(), &key.name].into_iter().chain(arguments.iter().copied()).collect();
        self.client.call(&arguments).expect("the server replies")
    }
}

/// A message of a process that runs calls and wants more, with a limit of `max` slots for a second.
fn message(number: u32, run: u16, want: u16, max: u16) -> SlotMessage {
    let hold = run;
    SlotMessage { number, run, hold, want, least: 0, waiting: 0, max, slot_time: 100, asks_again: false }
}

fn process(number: u16) -> SlotProcessId {
    u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

#[test]
fn a_full_value_takes_calls_that_run_and_no_others() {
    let mut script = Script::new(RedisServer::timeless());
    let (key, mut model) = (script.key("full"), StoredSlots::default());
    let now = script.now_ms();
    let mut send = |number: u16, message: SlotMessage| {
        let expected = model.apply(now, process(number), &message).0;
        assert_eq!(script.send(process(number), &[(key.clone(), message)]), Some(vec![expected]));
        expected
    };
    let full = u16::try_from(MAX_ENTRIES).expect("16 bits");
    for number in 0..full {
        assert_eq!(send(number, message(1, 0, 1, 5000)).state, MessageState::Fresh);
    }
    let waiting = SlotMessage { waiting: 3, ..message(1, 0, 3, 5000) };
    let refused = send(full, waiting);
    assert_eq!((refused.state, refused.granted, refused.in_use), (MessageState::Full, 0, 1024));
    assert_eq!(refused.first_end, Some(Duration::from_secs(1)));
    let registered = send(full + 1, SlotMessage { run: 2, ..waiting });
    assert_eq!((registered.state, registered.granted, registered.in_use), (MessageState::Full, 2, 1026));
    assert_eq!(send(0, message(2, 0, 0, 5000)).state, MessageState::Fresh);
    assert_eq!(send(full + 1, message(2, 0, 3, 5000)).state, MessageState::Fresh, "it has an entry");
    assert_eq!(script.peek(&key), Some(model.peek(now)));
}

#[test]
fn a_key_expires_after_its_last_end() {
    let server = RedisServer::start();
    let mut client = server.client().expect("the server accepts connections");
    let naming = Naming::new("slots", None, false);
    let key = naming.slots_key(&Key::new("expiry"));
    let name = str::from_utf8(&key.name).expect("text");
    let source = sources(&Clock::System)[Program::Slots as usize].clone();
    let digest = client.call(&["SCRIPT", "LOAD", &source]).expect("the server replies").bytes();
    let digest = String::from_utf8(digest).expect("text");
    let mut send = |number, message| {
        let messages = vec![(key.clone(), message)];
        let operation = SlotOperation::Send { process: process(number), messages };
        let command = operation.command("x:").with_digest(&digest, &Clock::System);
        let arguments: Vec<&[u8]> =
            command.args_iter().map(|argument| if let Arg::Simple(bytes) = argument { bytes } else { &[] }).collect();
        assert!(matches!(client.call(&arguments), Ok(Reply::Bulk(_))));
        server.pttl(name)
    };
    let long = |number| SlotMessage { slot_time: 6000, ..message(number, 1, 1, 9) };
    let is_after = |ttl: i64, millis: i64| (millis + 500..=millis + 2000).contains(&ttl);
    assert!(is_after(send(1, message(1, 1, 1, 9)), 1000));
    assert!(is_after(send(2, long(1)), 60_000));
    assert!(is_after(send(1, message(2, 1, 1, 9)), 60_000), "the other entry is still there");
    send(2, SlotMessage { run: 0, want: 0, hold: 0, ..long(2) });
    assert_eq!(send(1, message(3, 0, 0, 9)), -2, "a value without entries is deleted");
}

#[test]
fn slots_are_granted_where_notices_are_forbidden() {
    let server = RedisServer::start();
    let mut script = Script::new(&server);
    let key = script.key("acl");
    let channels = format!("&{}:*", script.naming.prefix());
    for (user, allowed) in [("plain", "resetchannels"), ("notified", &*channels)] {
        server.command(&["ACL", "SETUSER", user, "on", ">secret", "~*", "+@all", "resetchannels", allowed]);
    }
    for (user, notices) in [("plain", 0), ("notified", 1)] {
        script.client.call(&["AUTH", user, "secret"]).expect("the server replies");
        script.send(process(1), &[(key.clone(), message(1, 0, 4, 4))]);
        let waiting = SlotMessage { waiting: 2, ..message(1, 0, 2, 4) };
        let replies = script.send(process(2), &[(key.clone(), waiting)]).expect("replies");
        assert_eq!((replies[0].granted, replies[0].share), (0, 2), "{user}");
        script.client.call(&["AUTH", "notified", "secret"]).expect("the server replies");
        assert_eq!(script.notices().len(), notices, "{user}");
        script.command("DEL", &key, &[]);
    }
}

#[test]
fn another_reply_is_an_error() {
    let bytes = |state: u8, allow: u8, flag: u8| {
        Value::BulkString(vec![state, 0, 2, 0, allow, 0, 3, flag, 0, 0, 0, 2, 0, 1, 0, 0, 1, 0])
    };
    let reply = decode_messages(&bytes(0, 1, 1), 1).expect("a reply")[0];
    let expected = SlotReply {
        state: MessageState::Fresh,
        granted: 2,
        allow: 1,
        share: 3,
        others_wait: true,
        in_use: 2,
        others_waiting: 1,
        first_end: Some(Duration::from_millis(256)),
    };
    assert_eq!(reply, expected);
    let wrong =
        [bytes(5, 1, 1), bytes(0, 3, 1), bytes(0, 1, 2), Value::Nil, Value::Int(1), Value::BulkString(vec![0; 17])];
    for reply in &wrong {
        assert!(decode_messages(reply, 1).is_err(), "{reply:?}");
    }
    assert!(decode_messages(&bytes(0, 1, 1), 2).is_err() && decode_messages(&bytes(0, 1, 1), 0).is_err());
    assert!(decode_messages(&Value::BulkString(Vec::new()), 0).is_ok());
    assert!(decode_peek(&Value::BulkString(vec![0; 15])).is_err() && decode_peek(&Value::Nil).is_err());
    assert!(decode_peek(&Value::BulkString(vec![0; 32])).is_ok_and(|holders| holders.len() == 2));
    assert!(decode_reset(&Value::Int(0)).is_err() && decode_reset(&Value::Okay).is_err());
}
