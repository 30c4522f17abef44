//! What is given back, for every algorithm.

use limiter_testkit::Random;

use crate::Algorithm;
use crate::algorithm::AlgorithmInput;
use crate::algorithm::tests::{ALL, State, request, small};

/// Admits a call if, and only if, it would have been admitted had those that gave their permits back never called.
#[test]
fn a_refund_never_gives_back_too_much() {
    for algorithm in ALL {
        let (mut refunded, mut after) = (0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (window, max) = (1_000, 6);
            let (mut state, mut kept) = (State::new(algorithm), State::new(algorithm));
            let mut receipts: Vec<AlgorithmInput> = Vec::new();
            let mut now = 1_000_000_000;
            for _ in 0..150 {
                now += random.below(4) * random.below(100_000);
                let ask = request(algorithm, now, window, max, 1 + small(&mut random, 2));
                if state.decide(&ask).allowed {
                    if random.below(3) == 0 {
                        receipts.push(ask);
                    } else {
                        after += refunded;
                        assert!(kept.decide(&ask).allowed, "{algorithm:?}, seed {seed}: one too many");
                    }
                }
                if !receipts.is_empty() && random.below(2) == 0 {
                    let place = usize::try_from(random.below(receipts.len() as u64)).expect("small");
                    let receipt = receipts.swap_remove(place);
                    let later = request(algorithm, now, window, max, receipt.cost);
                    state.refund(&later, receipt.micros);
                    refunded += 1;
                }
            }
        }
        assert!(after > 1_000, "{algorithm:?}");
        // Taken and given back at once: as if nothing had been.
        let mut state = State::new(algorithm);
        let first = request(algorithm, 1_000_000_000, 1_000, 6, 4);
        assert!(state.decide(&first).allowed);
        state.refund(&first, first.micros);
        assert_eq!(state.peek(&first), State::new(algorithm).peek(&first), "{algorithm:?}");
    }
}

/// As after a reset: the receipt is older than everything that counts.
#[test]
fn a_receipt_of_an_earlier_count_gives_back_nothing() {
    for algorithm in ALL {
        let taken = request(algorithm, 1_000_000_000, 60_000, 6, 3);
        let later = request(algorithm, 1_000_002_000, 60_000, 6, 3);
        let mut state = State::new(algorithm);
        assert!(state.decide(&later).allowed);
        let before = state.peek(&later);
        state.refund(&later, taken.micros);
        assert_eq!(state.peek(&later), before, "{algorithm:?}");
    }
}

/// The clock has stepped back by more than a window: what the receipt is of is void, and something else counts.
#[test]
fn a_receipt_of_a_later_count_gives_back_nothing() {
    for algorithm in ALL {
        let (taken, now) = (request(algorithm, 1_100_000_000, 10_000, 6, 6), 1_050_000_000);
        let mut state = State::new(algorithm);
        assert!(state.decide(&taken).allowed);
        let after = request(algorithm, now, 10_000, 6, 6);
        assert!(state.decide(&after).allowed, "{algorithm:?}");
        let before = state.peek(&after);
        state.refund(&after, taken.micros);
        assert_eq!(state.peek(&after), before, "{algorithm:?}");
    }
}

/// As if it had been taken at the later instant: nothing of it is back before, and nothing is taken twice.
#[test]
fn what_is_renewed_counts_from_now() {
    for algorithm in ALL {
        let (early, late) = (1_000_000_000, 1_000_250_000);
        let (mut renewed, mut fresh) = (State::new(algorithm), State::new(algorithm));
        assert!(renewed.decide(&request(algorithm, early, 10_000, 6, 4)).allowed);
        renewed.renew(&request(algorithm, late, 10_000, 6, 4), early);
        assert!(fresh.decide(&request(algorithm, late, 10_000, 6, 4)).allowed);
        for cost in 0..6 {
            let ask = request(algorithm, late + 1_000_000, 10_000, 6, cost);
            assert_eq!(renewed.peek(&ask), fresh.peek(&ask), "{algorithm:?}");
        }
    }
}

/// Held and then taken, or held and then given back, hundreds of times a window: the others come back when they should.
#[test]
fn what_is_held_for_a_moment_leaves_the_others_as_they_are() {
    let algorithm = Algorithm::SlidingWindow;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (window, max) = (1_000, 60);
        let (mut held, mut plain) = (State::new(algorithm), State::new(algorithm));
        let mut now = 1_000_000_000;
        for _ in 0..400 {
            // Fewer instants than a log keeps apart.
            now += 20_000 * random.below(4);
            let ask = request(algorithm, now, window, max, 1 + small(&mut random, 3));
            assert_eq!(held.peek(&ask), plain.peek(&ask), "seed {seed}");
            let fits = held.decide(&ask).allowed;
            if fits && random.below(2) == 0 {
                now += 1_000;
                let later = request(algorithm, now, window, max, ask.cost);
                held.renew(&later, ask.micros);
                assert!(plain.decide(&later).allowed, "seed {seed}");
            } else if fits {
                held.refund(&ask, ask.micros);
            }
        }
    }
}

/// Where runs are merged, and given back in every way and order: by a plain list of what was kept, never one too many.
#[test]
fn what_is_refunded_from_merged_runs_is_not_too_much() {
    let algorithm = Algorithm::SlidingWindow;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (window, max) = (1_000, 600);
        let (mut state, mut kept, mut held) = (State::new(algorithm), Vec::new(), Vec::new());
        let mut now = 1_000_000;
        let mut denied = 0;
        for _ in 0..6_000 {
            now += random.below(2);
            let ask = |cost| request(algorithm, now * 1_000, window, max, cost);
            let cost = 1 + small(&mut random, 3);
            match (random.below(4), held.is_empty()) {
                (0, false) => {
                    let place = usize::try_from(random.below(held.len() as u64)).expect("small");
                    let (stamp, cost) = held.swap_remove(place);
                    if random.below(2) == 0 {
                        state.refund(&ask(cost), stamp * 1_000);
                    } else {
                        state.renew(&ask(cost), stamp * 1_000);
                        kept.push((now, cost));
                    }
                }
                (way, _) => match state.decide(&ask(cost)).allowed {
                    true if way == 1 => held.push((now, cost)),
                    true => kept.push((now, cost)),
                    false => denied += 1,
                },
            }
            // What is held counts too, until it is given back.
            kept.retain(|(stamp, _)| stamp + window > now);
            let live = held.iter().filter(|(stamp, _)| stamp + window > now);
            let used: u32 = kept.iter().chain(live).map(|(_, cost)| cost).sum();
            assert!(used <= max, "seed {seed}: {used} at {now}");
        }
        assert!(denied > 100, "seed {seed}: only {denied} denied");
    }
}

/// What another store admitted is not forgotten because it is much, also when it is then made to count from now.
#[test]
fn a_record_beyond_u32_leaves_nothing_free() {
    for algorithm in ALL {
        let all = u32::MAX;
        let (first, later) = (1_000_000_000, 1_001_000_000);
        let ask = |micros, cost| request(algorithm, micros, 3_600_000, all, cost);
        let mut state = State::new(algorithm);
        state.record(&ask(first, all - 2));
        state.record(&ask(first + 1_000, 5_000_000));
        let denied = state.peek(&ask(later, 4_999_999));
        assert!(!denied.allowed, "{algorithm:?}: {denied:?}");
        let before = state.peek(&ask(later, 0)).remaining;
        state.renew(&ask(later, 5_000_000), first + 1_000);
        assert!(state.peek(&ask(later, 0)).remaining <= before, "{algorithm:?}");
    }
}
