//! Calendars in the scripts and in memory: the same replies to random calls, whatever the clock of the caller shows.

use std::time::Duration;

use limiter_testkit::{Random, full_or};
use redis::Value;

use super::loaded_scripts::LoadedScripts;
use super::pick;
use crate::clock::Clock;
use crate::request::{BatchEntryReply, DecisionReply, RefundInfo, Request, StoreReply};
use crate::store::memory::MemoryStore;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, Command, CommandBody};
use crate::{Key, Limit, Source};

/// Calendars of each period. Those of one row share counters.
const CALENDARS: [[&str; 4]; 6] = [
    ["hour@UTC", "hour@Asia/Kolkata", "hour@Australia/Lord_Howe", "hour@Europe/Berlin"],
    ["day@UTC", "day@Asia/Tokyo", "day@America/Santiago", "day@Pacific/Apia"],
    ["week@UTC", "week:sun@UTC", "week:thursday@America/New_York", "week@Asia/Tokyo"],
    ["month", "month:31", "month:15@Africa/Casablanca", "month:2@Pacific/Kiritimati"],
    ["quarter", "quarter:02-28", "quarter@Asia/Tokyo", "quarter:03-31@Europe/Dublin"],
    ["year", "year:04-06@Europe/London", "year:12-31", "year:02-29@Asia/Tokyo"],
];

struct CalendarServer {
    scripts: LoadedScripts,
    /// Calls that were sent once more.
    sent_again: u32,
}

impl CalendarServer {
    /// Sends a command with a wrong time, and then with the right one if the server needs that.
    fn call(&mut self, body: impl Fn() -> CommandBody, clock_lead: i64) -> (Command, Value) {
        self.scripts.send_with_lead(body(), clock_lead).unwrap_or_else(|error| {
            let millis = self.scripts.clock.now().as_millis();
            assert_eq!(error, format!("EDGES {millis}"), "the error has the time of the server");
            self.sent_again += 1;
            self.scripts.send_with_lead(body(), 0).expect("the edges fit")
        })
    }

    fn decide(&mut self, action: &Action, request: Request<'_>, clock_lead: i64) -> DecisionReply {
        let (command, reply) = self.call(|| decision_body(action, request), clock_lead);
        command.decode(&reply).expect("a reply to a decision")
    }

    fn batch(&mut self, entry: BatchEntry, clock_lead: i64) -> BatchEntryReply {
        let (command, reply) = self.call(|| CommandBody::Batch(vec![entry]), clock_lead);
        let mut entries = command.decode_batch(reply).expect("a reply to a batch").entries;
        entries.remove(0).expect("an entry")
    }
}

fn decision_body(action: &Action, request: Request<'_>) -> CommandBody {
    Command::decide(action, &[request], Vec::new()).body
}

/// The parts of a reply that both stores have.
fn parts(reply: &StoreReply) -> (bool, u32, Option<Duration>, Duration, u64) {
    (reply.allowed, reply.remaining, reply.retry_after, reply.reset_after, reply.stamp)
}

#[test]
fn the_scripts_agree_with_the_memory_store_whatever_the_callers_clock_shows() {
    let mut server = CalendarServer { scripts: LoadedScripts::new(), sent_again: 0 };
    let memory = MemoryStore::new(1000, Clock::Manual(server.scripts.clock.clone()), Source::Store);
    let (mut random, key) = (Random::new(11), Key::new("a"));
    let (mut denied, mut refunded) = (0, 0);
    for round in 0..full_or(10_000, 300) {
        server.scripts.delete_keys();
        // Each round begins between 2010 and 2040.
        let start = Duration::from_secs(random.between(1_262_304_000, 2_208_988_800));
        server.scripts.clock.rewind(server.scripts.clock.now());
        server.scripts.clock.advance(start);
        let calendars = CALENDARS[pick(&mut random, CALENDARS.len())];
        let max = 1 + u32::try_from(random.below(5)).expect("small");
        let limits = calendars.map(|calendar| format!("{max}/{calendar}").parse::<Limit>().expect(calendar));
        memory.reset(&Request::new(&key, limits[0], 0));
        let period = limits[0].window_millis() * 1000;
        let mut receipts: Vec<u64> = Vec::new();
        for step in 0..100 {
            let longest = [period / 1000, period / 3, 2 * period][pick(&mut random, 3)];
            let by = Duration::from_micros(random.below(longest));
            match random.below(16) {
                0 => server.scripts.clock.rewind(by),
                // To a millisecond around an edge.
                1 | 2 => {
                    let millis = u64::try_from(server.scripts.clock.now().as_millis()).expect("a time");
                    let edges = limits[pick(&mut random, 4)].calendar_periods().expect("a calendar").edges_at(millis);
                    let target = Duration::from_millis(edges.end - random.below(2));
                    server.scripts.clock.advance(target.saturating_sub(server.scripts.clock.now()));
                }
                _ => server.scripts.clock.advance(by),
            }
            let limit = limits[pick(&mut random, 4)];
            let cost = u32::try_from(random.below(4)).expect("small");
            let request = Request::new(&key, limit, cost);
            let lead = random.below(5 * period).cast_signed() - (5 * period / 2).cast_signed();
            let lead = if random.below(2) == 0 { 0 } else { lead };
            let what = format!("round {round}, step {step}, {request:?}, lead {lead}");
            match random.below(10) {
                0 => {
                    let reply = server.decide(&Action::Peek, request, lead).reply;
                    assert_eq!(parts(&reply), parts(&memory.peek(&[request])), "{what}");
                }
                1 => {
                    let charge = server.decide(&Action::Charge, request, lead).per_request.expect("a charge");
                    assert_eq!(charge.charges, memory.charge(&[request]).per_request.expect("one").charges, "{what}");
                }
                2 => {
                    let entry = BatchEntry { limit, cost, calls: 1, is_charge: true, lease: None };
                    let charge = server.batch(entry, lead).charge().expect("a charge");
                    assert_eq!([charge][..], memory.charge(&[request]).per_request.expect("one").charges, "{what}");
                }
                3 if !receipts.is_empty() => {
                    let stamp = receipts.swap_remove(pick(&mut random, receipts.len()));
                    let (action, request) =
                        (Action::Refund(Box::new(RefundInfo::from_store(stamp))), Request { cost: 1, ..request });
                    // It needs no edges.
                    let body = decision_body(&action, request);
                    server.scripts.send_with_lead(body, lead).expect("a reply");
                    memory.refund(&[request], stamp);
                    refunded += 1;
                }
                4 if random.below(8) == 0 => {
                    server.decide(&Action::Reset, request, lead);
                    memory.reset(&Request::new(&key, limit, 0));
                }
                5..=7 => {
                    let reply = server.decide(&Action::TAKE_NOW, request, lead).reply;
                    assert_eq!(parts(&reply), parts(&memory.decide(&[request])), "{what}");
                    denied += u32::from(!reply.allowed);
                    receipts.extend((reply.allowed && cost > 0).then_some(reply.stamp));
                }
                _ => {
                    let calls = 1 + u32::try_from(random.below(3)).expect("small");
                    let entry = BatchEntry { limit, cost, calls, is_charge: false, lease: None };
                    let batch = server.batch(entry, lead);
                    let own: Vec<_> = (0..calls).map(|_| memory.decide(&[request])).collect();
                    for (index, own) in (0..).zip(&own) {
                        let reply = batch.reply_for_call(index, cost);
                        assert_eq!(
                            (reply.allowed, reply.remaining, reply.retry_after),
                            (own.allowed, own.remaining, own.retry_after),
                            "call {index}, {what}"
                        );
                    }
                    assert_eq!(own.last().map(|own| own.reset_after), Some(batch.reset_after), "{what}");
                }
            }
        }
    }
    let CalendarServer { sent_again, .. } = server;
    println!("{denied} denied, {refunded} refunded, {sent_again} sent once more");
    assert!(denied > 1_000 && refunded > 300 && sent_again > 300);
}
