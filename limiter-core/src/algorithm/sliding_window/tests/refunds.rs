//! Refunds: the log never admits more than if the call had not been made, and exactly as much where runs are not
//! merged.

use limiter_testkit::{Oracle, Random};

use crate::algorithm::AlgorithmInput;
use crate::algorithm::sliding_window::tests::{input_at, newest, relative};
use crate::algorithm::sliding_window::{CAPACITY, Log};

/// An admitted call whose permits were not refunded.
#[derive(Clone, Copy)]
struct AdmittedCall {
    /// The time of the log's clock.
    stamp: u64,
    /// The time of a clock that never steps.
    taken_at: u64,
    cost: u32,
}

fn small(random: &mut Random, low: u64, high: u64) -> u32 {
    u32::try_from(random.between(low, high)).expect("small")
}

/// Removes a random element.
fn pick<T>(random: &mut Random, from: &mut Vec<T>) -> T {
    from.swap_remove(usize::try_from(random.below(from.len() as u64)).expect("small"))
}

/// A regression: each refund took the oldest permit instead of its own, so old permits never expired.
#[test]
fn refunds_do_not_extend_older_permits() {
    let (window, max) = (1_000, 10);
    let mut log = Log::default();
    let mut now = 1_000_000;
    assert!(log.decide(&input_at(now, window, max, 9)).allowed);
    for call in 0..200 {
        now += 100;
        let input = input_at(now, window, max, 1);
        assert!(log.decide(&input).allowed, "call {call}");
        log.refund(&input, now);
    }
    let fresh = Log::default().peek(&input_at(now, window, max, 1));
    assert_eq!(log.peek(&input_at(now, window, max, 1)), fresh, "none of the nine is in use");
}

/// Receipts are refunded at any time and in any order. The outcomes are those of a log without the refunded calls.
#[test]
fn a_refund_restores_the_log_as_without_the_call() {
    let mut refunds = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (window, max) = (random.between(50, 2_000), 20);
        let mut log = Log::default();
        let mut calls: Vec<AdmittedCall> = Vec::new();
        let mut now = 1_000_000;
        for step in 0..200 {
            // Fewer instants in a window than `CAPACITY`.
            now += match random.below(40) {
                0 => random.below(2 * window),
                1..=9 => window.div_ceil(20),
                _ => 0,
            };
            let cost = small(&mut random, 1, 4);
            match random.below(3) {
                0 if !calls.is_empty() => {
                    let index = usize::try_from(random.below(calls.len() as u64)).expect("small");
                    let AdmittedCall { stamp, cost, .. } = calls.remove(index);
                    log.refund(&input_at(now, window, max, cost), stamp);
                    refunds += 1;
                }
                _ if log.decide(&input_at(now, window, max, cost)).allowed => {
                    calls.push(AdmittedCall { stamp: now, taken_at: now, cost });
                }
                _ => {}
            }
            let mut never_refunded = Oracle::new();
            for call in &calls {
                assert!(never_refunded.check(call.stamp, window, u32::MAX, call.cost).allowed);
            }
            for cost in [0, 1, 7, max] {
                let expected = never_refunded.peek(now, window, max, cost);
                let seen = relative(&log.peek(&input_at(now, window, max, cost)), now);
                assert_eq!(seen, expected, "seed {seed}, step {step}, cost {cost}");
            }
        }
    }
    assert!(refunds > 10_000, "{refunds}");
}

/// Runs are merged and the clock steps back. Any window of real time has at most `max` permits that were not refunded.
#[test]
fn a_refund_never_shortens_another_permit() {
    let window = 1_000;
    // From logs whose runs are merged to logs of a few runs, each near its limit.
    for (seed, (longest_step, max)) in (0..400).zip([(4, 600), (20, 120), (100, 30), (400, 12)].into_iter().cycle()) {
        let mut random = Random::new(seed);
        let mut log = Log::default();
        let (mut receipts, mut kept): (Vec<AdmittedCall>, Vec<AdmittedCall>) = (Vec::new(), Vec::new());
        // The clock is behind real time by what it has stepped back.
        let (mut now, mut behind) = (1_000_000, 0);
        for step in 0..1_500 {
            now += random.below(longest_step);
            let input = |cost| input_at(now - behind, window, max, cost);
            let cost = small(&mut random, 1, 9);
            match random.below(9) {
                0..=2 if !receipts.is_empty() => {
                    let AdmittedCall { stamp, cost, .. } = pick(&mut random, &mut receipts);
                    log.refund(&input(cost), stamp);
                }
                // A log that is more than a window ahead would be void.
                3 if newest_or(&log, window, now - behind) <= now - behind + window / 2 => {
                    behind += random.below((longest_step * 2).min(window / 2));
                }
                way => {
                    if log.decide(&input(cost)).allowed {
                        let call = AdmittedCall { stamp: now - behind, taken_at: now, cost };
                        if way % 2 == 0 { receipts.push(call) } else { kept.push(call) }
                    }
                }
            }
            // Expired receipts may still be refunded in later steps.
            let live = |call: &&AdmittedCall| call.taken_at + window > now;
            let used: u32 = receipts.iter().chain(&kept).filter(live).map(|call| call.cost).sum();
            assert!(used <= max, "seed {seed}, step {step}: {used} of {max} in one window");
            kept.retain(|call| call.taken_at + window > now);
        }
    }
}

fn newest_or(log: &Log, window: u64, now: u64) -> u64 {
    if log.expires_at(window) == 0 { now } else { newest(log, window) }
}

/// The newest run proves which permits have expired. A refund that removes that run keeps the proof.
#[test]
fn an_expired_receipt_stays_invalid_after_a_refund_and_a_step_back() {
    let input = |now, cost| input_at(now, 100, 5, cost);
    for (name, refunds_newest) in [("the newest run is removed", true), ("a refund drops expired runs", false)] {
        let mut log = Log::default();
        assert!(log.decide(&input(1_000, 2)).allowed);
        assert!(log.decide(&input(1_060, 1)).allowed && log.decide(&input(1_060, 1)).allowed);
        if refunds_newest {
            assert!(log.decide(&input(1_100, 3)).allowed, "the first two have expired");
            log.refund(&input(1_101, 3), 1_100);
        } else {
            log.refund(&input(1_101, 1), 1_060);
        }
        let used = |log: &Log| 5 - log.peek(&input(1_061, 0)).remaining;
        let before = used(&log);
        log.refund(&input(1_061, 2), 1_000);
        assert_eq!(used(&log), before, "{name}: the remaining permits are of other calls");
    }
}

/// A merged run has the permits of several receipts, under a later stamp than most of theirs.
#[test]
fn a_refund_finds_the_merged_run_of_its_receipt() {
    // Cells of 10 ms, and two runs a cell: the log is soon at its capacity.
    let (window, max) = (1_280, 100_000);
    let mut log = Log::default();
    let mut now = 1_280_000;
    while log.runs.len() < CAPACITY {
        assert!(log.decide(&input_at(now, window, max, 1)).allowed);
        now += 5;
    }
    let old = u32::try_from(log.runs.len()).expect("small");
    now += 10 - now % 10;
    let receipts = [1, 3, 4, 8].map(|offset| {
        let stamp = now + offset;
        assert!(log.decide(&input_at(stamp, window, max, 7)).allowed);
        stamp
    });
    assert!(log.runs.len() <= CAPACITY + 1, "merged");
    let at_end = |log: &Log, now| max - log.peek(&input_at(now, window, max, 0)).remaining;
    for (refunded, stamp) in (1..).zip(receipts) {
        log.refund(&input_at(now + 9, window, max, 7), stamp);
        assert_eq!(at_end(&log, now + 9), old + 7 * (4 - refunded), "{refunded} refunded");
        let later = newest(&log, window) + window - 1;
        if refunded < 4 {
            assert_eq!(at_end(&log, later), 7 * (4 - refunded), "the old ones expired in time");
        }
    }
}

/// A sum above `u32::MAX` is stored as `u32::MAX`: no permit is free, and the newest expire last.
#[test]
fn a_record_beyond_u32_saturates() {
    let all = u32::MAX;
    let input = |now, cost| input_at(now, 100, all, cost);
    let left = |log: &Log, now| log.peek(&input(now, 0)).remaining;
    let mut log = Log::default();
    log.record(&input(1_000, all - 2));
    log.record(&input(1_050, 5));
    assert_eq!((left(&log, 1_050), left(&log, 1_099)), (0, 0), "all in use");
    assert_eq!((left(&log, 1_100), left(&log, 1_150)), (all - 5, all), "the newest five count for their window");
    log.record(&input(1_150, all));
    log.record(&input(1_160, all));
    assert_eq!((left(&log, 1_259), left(&log, 1_260)), (0, all));
}

/// Totals are modulo 2^32, so a refund may wrap some below zero.
#[test]
fn a_refund_is_exact_where_totals_wrap() {
    let all = u32::MAX;
    let input = |now, cost: u32| -> AlgorithmInput { input_at(now, 100, all, cost) };
    let mut log = Log::default();
    for now in [1_000, 1_100, 1_200] {
        assert!(log.decide(&input(now, all - 10)).allowed);
    }
    for now in [1_210, 1_220, 1_230] {
        assert!(log.decide(&input(now, 3)).allowed);
    }
    log.refund(&input(1_240, all - 10), 1_200);
    log.refund(&input(1_240, 3), 1_220);
    let left = |now| log.peek(&input(now, 0)).remaining;
    assert_eq!([1_309, 1_310, 1_329, 1_330].map(left), [all - 6, all - 3, all - 3, all]);
}
