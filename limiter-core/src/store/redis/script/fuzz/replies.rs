//! Fuzz tests of the decoders: replies of any shape, with any text of a server.

use std::thread;
use std::time::Duration;

use limiter_testkit::{Random, full_or};
use redis::{PushKind, Value, VerbatimFormat, parse_redis_value};

use crate::limit::Limit;
use crate::request::{DecisionReply, Request, StoreReply};
use crate::store::redis::command_error::CommandError;
use crate::store::redis::naming::RedisKey;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, Command, CommandBody, LeaseTerms};
use crate::store::redis::script::fuzz::pick;
use crate::store::redis::script::reply::{BatchReply, encode_entry};
use crate::{Error, ErrorKind, Key};

// The number of replies of each kind in a full run. Any other run has a hundredth.
const DECISIONS: u32 = 9_000_000;
const TREES: u32 = 600_000;
const BATCHES: u32 = 700_000;
const WIRES: u32 = 400_000;

fn share(full: u32) -> u32 {
    full_or(full, full / 100)
}

/// Nearly valid replies.
#[test]
fn no_decision_reply_makes_the_decoder_panic() {
    in_three_threads(share(DECISIONS) / STEPS, |random, decoder| {
        let mut reply = Value::Array(decoder.answer(random));
        for _ in 0..STEPS {
            decoder.read(&reply);
            if let Value::Array(values) = &mut reply {
                change(values, random);
            }
        }
    });
}

/// Nearly valid replies to a batch. An invalid part is the error of one entry or of the whole batch.
#[test]
fn no_batch_reply_makes_the_decoder_panic() {
    let limit = Limit::WIDEST;
    let entries = [None, Some(LeaseTerms::default()), None];
    let entries = entries.map(|lease| BatchEntry { limit, cost: 1, calls: 3, is_charge: false, lease });
    let command = Command { keys: three_keys(), body: CommandBody::Batch(entries.into()) };
    let mut random = Random::new(1);
    let (mut grants, mut errors, mut refused) = (0, 0, 0);
    let batches = share(BATCHES);
    for _ in 0..batches {
        let mut values =
            vec![Value::Int(integer(&mut random).saturating_abs()), Value::BulkString(packed(&mut random))];
        for _ in 0..random.below(2) {
            values.extend([Value::Int(i64::try_from(random.below(3)).expect("small")), tree(&mut random, 0)]);
        }
        if random.below(4) == 0 {
            change(&mut values, &mut random);
        }
        match command.decode_batch(Value::Array(values)) {
            Ok(BatchReply { entries, leases }) => {
                assert_eq!((entries.len(), leases.len()), (3, 1));
                assert!(leases.iter().all(|lease| lease.permits == 0 || lease.id.is_some()), "a lease has an end");
                for entry in entries {
                    let Ok(grant) = entry else {
                        errors += 1;
                        continue;
                    };
                    grants += 1;
                    assert!(grant.granted <= 3, "more calls than were made");
                    let place = u32::try_from(random.any() >> 32).expect("32 bits");
                    let answer = grant.reply_for_call(place >> random.below(32), u32::MAX >> random.below(32));
                    assert!(!answer.allowed || answer.retry_after == Some(Duration::ZERO), "allowed and to wait");
                    assert!(answer.remaining >= grant.remaining, "of those after it");
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Protocol);
                refused += 1;
            }
        }
    }
    println!("{grants} grants, {errors} errors, {refused} refused");
    assert!(grants > batches / 20 && errors > batches / 8 && refused > batches / 200, "of each kind");
}

/// Three packed entries and a lease, of any numbers, and sometimes of another length.
fn packed(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..3 {
        let [any, remaining] = [(); 2].map(|()| u32::try_from(random.any() >> 32).expect("32 bits"));
        let granted = if random.below(16) == 0 { any } else { any % 4 };
        let [retry_after, reset_after] = [(); 2].map(|()| integer(random));
        bytes.extend(encode_entry(granted, remaining, retry_after, reset_after));
    }
    let [permits, mark] = [(); 2].map(|()| u32::try_from(random.any() >> (32 + random.below(32))).expect("32 bits"));
    bytes.extend(permits.to_be_bytes().into_iter().chain(mark.to_be_bytes()).chain(integer(random).to_be_bytes()));
    if random.below(16) == 0 {
        bytes.truncate(pick(random, bytes.len()));
    }
    bytes
}

/// Replies of any shape, with errors in them.
#[test]
fn no_reply_makes_the_decoder_panic() {
    in_three_threads(share(TREES), |random, decoder| match random.below(8) {
        0 => decoder.decode_or_convert(Value::Array(decoder.answer(random))),
        _ => decoder.decode_or_convert(tree(random, 3)),
    });
}

/// Bytes as they come over the wire, through the client's own parser.
#[test]
fn no_bytes_of_a_reply_make_the_decoder_panic() {
    in_three_threads(share(WIRES), |random, decoder| match parse_redis_value(&wire(random)) {
        Ok(reply) => decoder.decode_or_convert(reply),
        Err(error) => decoder.convert(error.into()),
    });
}

fn three_keys() -> Vec<RedisKey> {
    ["a", "b", "c"].map(|name| RedisKey { slot: 0, name: name.into() }).into()
}

fn in_three_threads(rounds: u32, fuzz: impl Fn(&mut Random, &mut Decoder) + Sync) {
    thread::scope(|scope| {
        for seed in 0..3 {
            let fuzz = &fuzz;
            scope.spawn(move || {
                let action = [Action::Peek, Action::TakeWithReports, Action::PeekWithReports];
                let action = action[usize::try_from(seed).expect("small")].clone();
                let (mut random, mut decoder) = (Random::new(seed), Decoder::new(&action));
                for _ in 0..rounds / 2 {
                    fuzz(&mut random, &mut decoder);
                }
                println!("{} answers, {} errors", decoder.answers, decoder.errors);
                assert!(decoder.answers > rounds / 50 && decoder.errors > rounds / 8, "of both kinds");
            });
        }
    });
}

/// A decoder of the replies to one command, with the number of replies that it could decode.
struct Decoder {
    command: Command,
    requests: usize,
    has_reports: bool,
    answers: u32,
    errors: u32,
}

impl Decoder {
    fn new(action: &Action) -> Self {
        let key = Key::new("a");
        let requests = [Request::new(&key, Limit::WIDEST, 1); 3];
        let command = Command::decide(action, &requests, three_keys());
        let has_reports = matches!(action, Action::TakeWithReports | Action::PeekWithReports);
        Self { command, requests: requests.len(), has_reports, answers: 0, errors: 0 }
    }

    /// Integers that may be a reply: seven, and two for the report of each request.
    fn answer(&self, random: &mut Random) -> Vec<Value> {
        let is_allowed = random.below(2) == 0;
        let mut values = vec![Value::Int(is_allowed.into()), Value::Int(0)];
        values.extend((0..5).map(|place| Value::Int(integer(random).saturating_abs() >> (8 * place))));
        let reports = if self.has_reports { 2 * self.requests } else { 0 };
        values.extend((0..reports).map(|_| Value::Int(integer(random).saturating_abs() >> 32)));
        values
    }

    /// Decodes a reply, or converts the error in it.
    fn decode_or_convert(&mut self, reply: Value) {
        match reply.extract_error() {
            Ok(reply) => self.read(&reply),
            Err(error) => self.convert(error.into()),
        }
    }

    fn read(&mut self, reply: &Value) {
        match self.command.decode(reply) {
            Ok(DecisionReply { reply: StoreReply { request_index, .. }, per_request }) => {
                let reports = per_request.map_or(0, |per_request| per_request.reports.len());
                assert_eq!(reports, if self.has_reports { self.requests } else { 0 });
                assert!(request_index < self.requests);
                self.answers += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Protocol);
                self.errors += 1;
            }
        }
    }

    fn convert(&mut self, error: CommandError) {
        let _ =
            (error.is_no_script(), error.is_connection_lost(), error.is_cluster_disabled(), error.is_cluster_down());
        let _ = error.redirect();
        let text = Error::from(error).to_string();
        // A key has a brace in it, and a server's text may repeat a key.
        assert!(!text.is_empty() && !text.contains('{'), "{text}");
        self.errors += 1;
    }
}

/// The number of changes to one reply.
const STEPS: u32 = 9;

/// Changes one value; sometimes adds or removes some.
fn change(values: &mut Vec<Value>, random: &mut Random) {
    if values.is_empty() || random.below(12) == 0 {
        return values.push(tree(random, 1));
    }
    let place = pick(random, values.len());
    match random.below(12) {
        0 => values.truncate(place),
        1 => values[place] = tree(random, 0),
        _ => values[place] = Value::Int(integer(random)),
    }
}

fn tree(random: &mut Random, depth: usize) -> Value {
    let leaves = 10;
    let nodes = if depth == 0 { 0 } else { 5 };
    let several = |random: &mut Random| (0..pick(random, 4)).map(|_| tree(random, depth - 1)).collect::<Vec<_>>();
    match pick(random, leaves + nodes) {
        0 => Value::Nil,
        1 | 2 => Value::Int(integer(random)),
        3 => Value::BulkString(text(random).into_bytes()),
        4 => Value::SimpleString(text(random)),
        5 => Value::Okay,
        6 => Value::Double(f64::from_bits(random.any())),
        7 => Value::Boolean(random.below(2) == 0),
        8 => Value::VerbatimString { format: VerbatimFormat::Text, text: text(random) },
        9 => parse_redis_value(format!("-{}\r\n", text(random)).as_bytes()).unwrap_or_default(),
        10 => Value::Array(several(random)),
        11 => Value::Set(several(random)),
        12 => Value::Push { kind: PushKind::Message, data: several(random) },
        13 => Value::Map(several(random).into_iter().map(|value| (value, Value::Nil)).collect()),
        _ => Value::Attribute { data: Box::new(tree(random, depth - 1)), attributes: Vec::new() },
    }
}

fn integer(random: &mut Random) -> i64 {
    const EDGES: [i64; 9] =
        [0, 1, -1, 1 << 32, (1 << 32) - 1, 1 << 53, i64::MAX, i64::MIN, i64::MAX / 1_000_000 * 1_000_000];
    match pick(random, 4) {
        0 => EDGES[pick(random, EDGES.len())],
        1 => i64::try_from(random.any() >> 32).unwrap_or(0),
        2 => i64::try_from(random.below(100)).unwrap_or(0),
        _ => i64::try_from(random.any() >> (1 + random.below(63))).unwrap_or(0),
    }
}

/// Words of servers and of proxies, put together at random.
fn text(random: &mut Random) -> String {
    const WORDS: [&str; 24] = [
        "ERR",
        "NOSCRIPT",
        "@user_script:",
        "7: -OOM",
        "FOREIGN",
        "WRONGTYPE",
        "DB index",
        "ACL failure",
        "MOVED",
        "ASK",
        "3999 host:6381",
        "The user executing the script",
        "it's",
        "'rl:{secret}'",
        "rl:{secret}10ms",
        "\"",
        "`",
        "-",
        ": ",
        "end of input",
        "LOADING",
        "BUSY",
        "ü€",
        "\0",
    ];
    let mut text = String::new();
    for _ in 0..pick(random, 4) {
        text.push_str(WORDS[pick(random, WORDS.len())]);
        text.push_str(["", " "][pick(random, 2)]);
    }
    text
}

/// A reply of which some bytes are changed, removed or inserted.
fn wire(random: &mut Random) -> Vec<u8> {
    let mut bytes = match pick(random, 3) {
        0 => format!("-{}\r\n", text(random)).into_bytes(),
        1 => format!("*2\r\n${}\r\n{}\r\n_\r\n", pick(random, 20), text(random)).into_bytes(),
        _ => {
            let numbers = [7, 13][pick(random, 2)];
            let mut reply = format!("*{numbers}\r\n");
            for _ in 0..numbers {
                reply.push_str(&format!(":{}\r\n", random.below(2)));
            }
            reply.into_bytes()
        }
    };
    for _ in 0..pick(random, 3) {
        let place = pick(random, bytes.len());
        let byte = u8::try_from(random.below(256)).expect("a byte");
        match pick(random, 4) {
            0 => bytes[place] ^= 1 << random.below(8),
            1 => bytes[place] = b"*$:+-_,#!=(%~|>\r\n0129"[pick(random, 21)],
            2 => bytes.insert(place, byte),
            _ if bytes.len() > 1 => bytes.truncate(place.max(1)),
            _ => {}
        }
    }
    bytes
}
