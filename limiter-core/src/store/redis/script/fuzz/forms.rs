//! The forms of a sliding window's log, in the scripts and in memory: the same replies to random calls, the sizes of short
//! logs, and the calls that change the form.

use std::collections::BTreeMap;
use std::time::Duration;

use limiter_testkit::{Random, Reply, full_or};

use super::loaded_scripts::LoadedScripts;
use super::pick;
use crate::clock::Clock;
use crate::request::{RefundInfo, Request, StoreReply};
use crate::store::memory::MemoryStore;
use crate::store::redis::script::action::Action;
use crate::store::redis::script::command::{BatchEntry, Command, CommandBody, LeaseTerms};
use crate::{Key, Limit, Source};

const LONG: u8 = 1;
const LEASED: u8 = 6;
const SHORT: u8 = 7;

/// Milliseconds of windows: with units of 1 ms, with the most units, and with units of several milliseconds.
const WINDOWS: [u64; 6] = [10_000, 1 << 24, (1 << 24) + 1, 86_400_000, 1_000_000_007, 31_622_400_000];

impl LoadedScripts {
    fn value(&self) -> Option<Vec<u8>> {
        match self.command(&["GET"], &[]) {
            Reply::Nil => None,
            reply => Some(reply.bytes()),
        }
    }

    fn set_value(&self, value: &[u8]) {
        assert!(matches!(self.command(&["SET"], &[value, b"PX", b"1000000"]), Reply::Status(_)));
    }

    fn take(&self, limit: Limit, cost: u32) -> u32 {
        self.batch(entry(limit, cost, 1)).0.granted
    }

    fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Takes one permit at each of so many milliseconds.
    fn take_at_instants(&self, limit: Limit, instants: u64) {
        for _ in 0..instants {
            assert_eq!(self.take(limit, 1), 1);
            self.advance_millis(1);
        }
    }

    /// The version and the length of the value.
    fn form(&self) -> (u8, usize) {
        self.value().map_or((0, 0), |value| (value[0], value.len()))
    }
}

fn entry(limit: Limit, cost: u32, calls: u32) -> BatchEntry {
    BatchEntry { limit, cost, calls, is_charge: false, lease: None }
}

/// The long form of a short log.
fn as_long(value: &[u8]) -> Vec<u8> {
    let mut long = vec![LONG];
    long.extend(&value[1..7]);
    long.extend([0; 4]);
    let (mut offset, mut total) = (0_u32, 0_u32);
    let mut runs = value[7..].to_vec();
    if runs.len() % 4 == 1 {
        // The first run is at the base.
        runs.splice(0..0, [0; 3]);
    }
    for run in runs.chunks(4) {
        offset += u32::from_be_bytes([0, run[0], run[1], run[2]]);
        total += u32::from(run[3]);
        long.extend(offset.to_be_bytes().into_iter().chain(total.to_be_bytes()));
    }
    long
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("small")
}

/// The parts of a reply that both stores have.
fn parts(reply: &StoreReply) -> (bool, u32, Option<Duration>, Duration, u64) {
    (reply.allowed, reply.remaining, reply.retry_after, reply.reset_after, reply.stamp)
}

/// Calls, charges, refunds and resets, with counts around the most permits of a short run and numbers of runs around the most
/// of a short log. Sometimes the test makes a short log long.
#[test]
fn the_scripts_agree_with_the_memory_store_in_each_form() {
    let scripts = LoadedScripts::new();
    let memory = MemoryStore::new(1000, Clock::Manual(scripts.clock.clone()), Source::Store);
    let (mut random, key) = (Random::new(43), Key::new("a"));
    let mut forms = BTreeMap::<(u8, u8), u32>::new();
    let (mut denied, mut refunds) = (0, 0);
    let rounds = full_or(3_000, 150);
    for round in 0..rounds {
        scripts.delete_keys();
        // Each round begins between 2010 and 2040, so no log of an earlier round counts.
        scripts.clock.rewind(scripts.clock.now());
        scripts.clock.advance(Duration::from_secs(random.between(1_262_304_000, 2_208_988_800)));
        let window = WINDOWS[pick(&mut random, WINDOWS.len())];
        let most = [random.between(1, 30), random.between(240, 280), random.between(1_000, 4_000)];
        let limit = Limit::new(small(most[pick(&mut random, 3)]), Duration::from_millis(window)).expect("a limit");
        memory.reset(&Request::new(&key, limit, 0));
        let mut receipts: Vec<(u64, u32)> = Vec::new();
        let mut calls_in_a_window = 20;
        let mut before = None;
        for step in 0..80 {
            if step % 20 == 0 {
                calls_in_a_window = [2, 6, 12, 40][pick(&mut random, 4)];
            }
            let micros = window * 1_000;
            match random.below(16) {
                0 => scripts.clock.rewind(Duration::from_micros(random.below(micros / 3))),
                1 => scripts.clock.advance(Duration::from_micros(micros - random.below(3))),
                2..=4 => scripts.clock.advance(Duration::from_micros(random.below(3))),
                _ => scripts.clock.advance(Duration::from_micros(random.below(2 * micros / calls_in_a_window))),
            }
            if let Some(value) = scripts.value().filter(|value| value[0] == SHORT && random.below(40) == 0) {
                scripts.set_value(&as_long(&value));
                before = Some(LONG);
            }
            let cost = match random.below(16) {
                0 => random.between(250, 260),
                1 => random.between(100, 130),
                _ => random.below(4),
            };
            let request = Request::new(&key, limit, small(cost));
            let cost = request.cost;
            let what = format!("round {round}, step {step}, {request:?}");
            match random.below(12) {
                0 => {
                    let reply = scripts.decide(&Action::Peek, request).reply;
                    assert_eq!(parts(&reply), parts(&memory.peek(&[request])), "{what}");
                }
                1 => {
                    let charge = scripts.decide(&Action::Charge, request).per_request.expect("a charge");
                    assert_eq!(charge.charges, memory.charge(&[request]).per_request.expect("one").charges, "{what}");
                }
                2 => {
                    let charge = BatchEntry { is_charge: true, ..entry(limit, cost, 1) };
                    let charge = scripts.batch(charge).0.charge().expect("a charge");
                    assert_eq!([charge][..], memory.charge(&[request]).per_request.expect("one").charges, "{what}");
                }
                3 | 4 if !receipts.is_empty() => {
                    let (stamp, cost) = receipts.swap_remove(pick(&mut random, receipts.len()));
                    let request = Request { cost: small(random.between(1, cost.into())), ..request };
                    scripts.decide(&Action::Refund(Box::new(RefundInfo::from_store(stamp))), request);
                    memory.refund(&[request], stamp);
                    refunds += 1;
                }
                5 if random.below(8) == 0 => {
                    scripts.decide(&Action::Reset, request);
                    memory.reset(&request);
                }
                6 | 7 => {
                    let reply = scripts.decide(&Action::TAKE_NOW, request).reply;
                    assert_eq!(parts(&reply), parts(&memory.decide(&[request])), "{what}");
                    denied += u32::from(!reply.allowed);
                    receipts.extend((reply.allowed && cost > 0).then_some((reply.stamp, cost)));
                }
                _ => {
                    let calls = [1, 1, small(random.between(2, 3))][pick(&mut random, 3)];
                    let batch = scripts.batch(entry(limit, cost, calls)).0;
                    let own: Vec<_> = (0..calls).map(|_| memory.decide(&[request])).collect();
                    for (index, own) in (0..).zip(&own) {
                        let reply = batch.reply_for_call(index, cost);
                        assert_eq!(
                            (reply.allowed, reply.remaining, reply.retry_after),
                            (own.allowed, own.remaining, own.retry_after),
                            "call {index}, {what}"
                        );
                        denied += u32::from(!reply.allowed);
                    }
                    assert_eq!(own.last().map(|own| own.reset_after), Some(batch.reset_after), "{what}");
                    receipts.extend((batch.granted > 0 && cost > 0).then_some((batch.stamp, cost)));
                }
            }
            let value = scripts.value();
            if let Some(value) = &value {
                assert!(
                    value[0] != SHORT || matches!((value.len(), value.len() % 4), (8..=60, 0) | (11..=63, 3)),
                    "{what}: {value:?}"
                );
            }
            let after = value.map(|value| value[0]);
            if let (Some(before), Some(after)) = (before, after) {
                *forms.entry((before, after)).or_default() += 1;
            }
            before = after;
        }
    }
    println!("{forms:?}, {denied} denied, {refunds} refunds");
    for change in [(SHORT, SHORT), (SHORT, LONG), (LONG, SHORT), (LONG, LONG)] {
        assert!(forms.get(&change).is_some_and(|count| *count > rounds), "{change:?}: {forms:?}");
    }
    assert!(denied > 5 * rounds && refunds > 2 * rounds);
}

/// So many runs fit into a hash that keeps short values together.
#[test]
fn a_short_log_has_4_bytes_for_each_of_at_most_14_runs() {
    let (scripts, limit) = (LoadedScripts::new(), "100/10s".parse::<Limit>().expect("a limit"));
    for runs in 1..=14 {
        scripts.take_at_instants(limit, 1);
        assert_eq!(scripts.form(), (SHORT, 4 + 4 * runs));
    }
    scripts.take_at_instants(limit, 1);
    assert_eq!(scripts.form(), (LONG, 11 + 8 * 15));
}

#[test]
fn a_long_log_becomes_short_when_at_most_7_runs_are_left_or_when_it_begins_anew() {
    let (scripts, limit) = (LoadedScripts::new(), "100/10s".parse::<Limit>().expect("a limit"));
    for left in [7, 8] {
        scripts.delete_keys();
        scripts.take_at_instants(limit, 15);
        // The next run is one of those that are left.
        scripts.advance_millis(10_000 - left);
        scripts.take_at_instants(limit, 1);
        let expected = if left == 8 { (LONG, 11 + 8 * 8) } else { (SHORT, 7 + 4 * 7) };
        assert_eq!(scripts.form(), expected, "{left} runs are left");
    }
    scripts.advance_millis(20_000);
    scripts.take_at_instants(limit, 1);
    assert_eq!(scripts.form(), (SHORT, 8));
}

#[test]
fn a_run_of_more_than_255_permits_and_a_lease_are_long() {
    let (scripts, limit) = (LoadedScripts::new(), "1000/10s".parse::<Limit>().expect("a limit"));
    for (cost, form) in [(250, (SHORT, 8)), (5, (SHORT, 8)), (1, (LONG, 19))] {
        assert_eq!(scripts.take(limit, cost), 1, "all calls are of one millisecond");
        assert_eq!(scripts.form(), form, "after {cost} permits more");
    }
    scripts.delete_keys();
    scripts.take_at_instants(limit, 1);
    for (cost, form) in [(255, (SHORT, 12)), (256, (LONG, 11 + 3 * 8))] {
        assert_eq!(scripts.take(limit, cost), 1);
        scripts.advance_millis(1);
        assert_eq!(scripts.form(), form, "after a run of {cost} permits");
    }
    scripts.delete_keys();
    assert_eq!(scripts.take(limit, 256), 1);
    assert_eq!(scripts.form(), (LONG, 19));
    scripts.delete_keys();
    scripts.take_at_instants(limit, 1);
    assert_eq!(scripts.form(), (SHORT, 8));
    let lease = Some(LeaseTerms { wanted: 8, new_mark: 7, returned: None });
    assert_eq!(scripts.batch(BatchEntry { lease, ..entry(limit, 1, 1) }).1.permits, 8);
    assert_eq!(scripts.form(), (LEASED, 15 + 2 * 8));
}

/// The base of a log that is never idle is so long ago that a first gap of 3 bytes cannot reach it. It moves up, in each
/// script, and the log stays short. With the most units, one gap may be too long.
#[test]
fn a_short_log_that_is_never_idle_stays_short() {
    for window in WINDOWS {
        let (scripts, key) = (LoadedScripts::new(), Key::new("a"));
        let limit = Limit::new(5, Duration::from_millis(window)).expect("a limit");
        let unit = window.div_ceil(1 << 24).next_power_of_two();
        let steps = (5 << 24) * unit / (window / 4);
        for step in 0..steps.min(6_000) {
            if step % 3 == 0 {
                assert!(scripts.decide(&Action::TAKE_NOW, Request::new(&key, limit, 1)).reply.allowed);
            } else {
                assert_eq!(scripts.take(limit, 1), 1, "step {step}");
            }
            assert_eq!(scripts.form().0, SHORT, "{window} ms, step {step}");
            scripts.advance_millis(window / 4);
        }
    }
}

/// A window of the most units, from a whole millisecond on.
fn longest_window(scripts: &LoadedScripts, max: u32) -> Limit {
    scripts.delete_keys();
    scripts.clock.rewind(scripts.clock.now());
    scripts.advance_millis(1_700_000_000_000);
    Limit::new(max, Duration::from_millis(1 << 24)).expect("a limit")
}

#[test]
fn a_gap_of_all_units_of_a_window_is_long() {
    let scripts = LoadedScripts::new();
    for (calls, micros, form) in [(1, 1_000, SHORT), (1, 1, LONG), (2, 1_000, SHORT), (2, 1, LONG)] {
        let limit = longest_window(&scripts, 5);
        scripts.take_at_instants(limit, 1);
        // One microsecond before its expiry the permit still counts, and now rounds up to its expiry.
        scripts.clock.advance(Duration::from_micros((1 << 24) * 1_000 - 1_000 - micros));
        assert_eq!(scripts.batch(entry(limit, 1, calls)).0.remaining, 4 - calls);
        assert_eq!(scripts.form().0, form, "{calls} calls, {micros} microseconds before the expiry");
    }
}

/// The first live run is as far from the base as a first gap cannot be.
#[test]
fn the_base_of_a_short_log_moves_up_to_the_millisecond() {
    let scripts = LoadedScripts::new();
    for extra in [0, 1] {
        for calls in [1, 2] {
            let limit = longest_window(&scripts, 4);
            scripts.take_at_instants(limit, 1);
            scripts.advance_millis(8_000_000 - 1);
            scripts.take_at_instants(limit, 1);
            scripts.advance_millis((1 << 24) - 8_000_000 - 1 + extra);
            scripts.take_at_instants(limit, 1);
            scripts.advance_millis(8_000_000 - 1);
            assert_eq!(scripts.batch(entry(limit, 1, calls)).0.remaining, 3 - calls);
            assert_eq!(scripts.form(), (SHORT, 15));
            // The earlier of both runs counts for a window, and not longer.
            scripts.advance_millis((1 << 24) - 8_000_000 - 1);
            assert_eq!(scripts.batch(entry(limit, 0, 1)).0.remaining, 3 - calls);
            scripts.advance_millis(1);
            assert_eq!(scripts.batch(entry(limit, 0, 1)).0.remaining, 4 - calls);
        }
    }
}

#[test]
fn a_value_with_the_version_of_a_short_log_and_another_length_is_foreign() {
    let (scripts, key, limit) = (LoadedScripts::new(), Key::new("a"), "100/10s".parse::<Limit>().expect("a limit"));
    for length in 1..=140 {
        let is_short = matches!((length, length % 4), (8..=60, 0) | (11..=63, 3));
        let mut value = vec![0; length];
        value[0] = SHORT;
        scripts.set_value(&value);
        let body = |calls| CommandBody::Batch(vec![entry(limit, 1, calls)]);
        let is_foreign = |calls| {
            let (command, reply) = scripts.send_with_lead(body(calls), 0).expect("a reply");
            command.decode_batch(reply).expect("a reply to a batch").entries[0].is_err()
        };
        if is_short {
            assert_eq!(scripts.take(limit, 1), 1, "an old log of {length} bytes");
            continue;
        }
        assert!(is_foreign(1) && is_foreign(2), "{length} bytes");
        let decision = Command::decide(&Action::TAKE_NOW, &[Request::new(&key, limit, 1)], Vec::new()).body;
        assert!(scripts.send_with_lead(decision, 0).expect_err("foreign").starts_with("FOREIGN"), "{length} bytes");
        assert_eq!(scripts.value(), Some(value), "a foreign value stays as it is");
    }
}

/// A refund drops the runs that have expired, which proved how far time had come. Their receipts stay invalid after the clock
/// has stepped back.
#[test]
fn a_refund_beside_expired_runs_keeps_the_proof_of_their_expiry() {
    let without_proof = LoadedScripts::with_replaced("has_expired_runs or from_run", "from_run");
    for form in [SHORT, LONG] {
        assert_eq!(permits_after_late_refund(&LoadedScripts::new(), form), 8);
        assert_eq!(permits_after_late_refund(&without_proof, form), 9);
    }
}

/// Returns the permits left after the refund of an expired permit. Of ten, three count and one of these is refunded before.
fn permits_after_late_refund(scripts: &LoadedScripts, form: u8) -> u32 {
    let (key, limit) = (Key::new("a"), "10/10s".parse::<Limit>().expect("a limit"));
    scripts.delete_keys();
    let [expired, live] = [1, 3].map(|cost| {
        let stamp = scripts.batch(entry(limit, cost, 1)).0.stamp;
        scripts.advance_millis(9_000);
        stamp
    });
    if form == LONG {
        scripts.set_value(&as_long(&scripts.value().expect("a value")));
    }
    scripts.clock.rewind(Duration::from_millis(7_500));
    let refund = |stamp| {
        let action = Action::Refund(Box::new(RefundInfo::from_store(stamp)));
        scripts.decide(&action, Request::new(&key, limit, 1));
        scripts.batch(entry(limit, 0, 1)).0.remaining
    };
    assert_eq!(refund(live), 8);
    assert_eq!(scripts.form().0, SHORT);
    scripts.clock.rewind(Duration::from_millis(1_000));
    refund(expired)
}
