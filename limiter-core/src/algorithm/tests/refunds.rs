//! Refunds, for every algorithm.

use limiter_testkit::Random;

use crate::Algorithm;
use crate::algorithm::AlgorithmInput;
use crate::algorithm::tests::{ALL, CounterState, request, small};

/// A call is admitted only if it would have been admitted without the refunded calls.
#[test]
fn a_refund_never_returns_too_much() {
    for algorithm in ALL {
        let (mut refunded, mut after) = (0, 0);
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (window, max) = (1_000, 6);
            let (mut state, mut kept) = (CounterState::new(algorithm), CounterState::new(algorithm));
            let mut receipts: Vec<AlgorithmInput> = Vec::new();
            let mut now = 1_000_000_000;
            for _ in 0..150 {
                now += random.below(4) * random.below(100_000);
                let input = request(algorithm, now, window, max, 1 + small(&mut random, 2));
                if state.decide(&input).allowed {
                    if random.below(3) == 0 {
                        receipts.push(input);
                    } else {
                        after += refunded;
                        assert!(kept.decide(&input).allowed, "{algorithm:?}, seed {seed}: one too many");
                    }
                }
                if !receipts.is_empty() && random.below(2) == 0 {
                    let index = usize::try_from(random.below(receipts.len() as u64)).expect("small");
                    let receipt = receipts.swap_remove(index);
                    let later = request(algorithm, now, window, max, receipt.cost);
                    state.refund(&later, receipt.micros);
                    refunded += 1;
                }
            }
        }
        assert!(after > 1_000, "{algorithm:?}");
        // A take that is refunded at once leaves no trace.
        let mut state = CounterState::new(algorithm);
        let first = request(algorithm, 1_000_000_000, 1_000, 6, 4);
        assert!(state.decide(&first).allowed);
        state.refund(&first, first.micros);
        assert_eq!(state.peek(&first), CounterState::new(algorithm).peek(&first), "{algorithm:?}");
    }
}

/// The receipt is older than all permits in the counter, as after a reset.
#[test]
fn a_receipt_from_before_a_reset_returns_nothing() {
    for algorithm in ALL {
        let taken = request(algorithm, 1_000_000_000, 60_000, 6, 3);
        let later = request(algorithm, 1_000_002_000, 60_000, 6, 3);
        let mut state = CounterState::new(algorithm);
        assert!(state.decide(&later).allowed);
        let before = state.peek(&later);
        state.refund(&later, taken.micros);
        assert_eq!(state.peek(&later), before, "{algorithm:?}");
    }
}

/// The clock has stepped back by more than a window, so the permits of the receipt are void and others count.
#[test]
fn a_receipt_of_a_void_counter_returns_nothing() {
    for algorithm in ALL {
        let (taken, now) = (request(algorithm, 1_100_000_000, 10_000, 6, 6), 1_050_000_000);
        let mut state = CounterState::new(algorithm);
        assert!(state.decide(&taken).allowed);
        let after = request(algorithm, now, 10_000, 6, 6);
        assert!(state.decide(&after).allowed, "{algorithm:?}");
        let before = state.peek(&after);
        state.refund(&after, taken.micros);
        assert_eq!(state.peek(&after), before, "{algorithm:?}");
    }
}

/// The permits count as if taken at the later instant: none expires before, and none counts twice.
#[test]
fn restamped_permits_count_from_now() {
    for algorithm in ALL {
        let (early, late) = (1_000_000_000, 1_000_250_000);
        let (mut restamped, mut fresh) = (CounterState::new(algorithm), CounterState::new(algorithm));
        assert!(restamped.decide(&request(algorithm, early, 10_000, 6, 4)).allowed);
        restamped.restamp(&request(algorithm, late, 10_000, 6, 4), early);
        assert!(fresh.decide(&request(algorithm, late, 10_000, 6, 4)).allowed);
        for cost in 0..6 {
            let input = request(algorithm, late + 1_000_000, 10_000, 6, cost);
            assert_eq!(restamped.peek(&input), fresh.peek(&input), "{algorithm:?}");
        }
    }
}

/// Hundreds of reservations a window are committed or released, and the other permits expire in time.
#[test]
fn reservations_do_not_change_other_permits() {
    let algorithm = Algorithm::SlidingWindow;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (window, max) = (1_000, 60);
        let (mut state, mut plain) = (CounterState::new(algorithm), CounterState::new(algorithm));
        let mut now = 1_000_000_000;
        for _ in 0..400 {
            // Fewer instants than the capacity of a log.
            now += 20_000 * random.below(4);
            let input = request(algorithm, now, window, max, 1 + small(&mut random, 3));
            assert_eq!(state.peek(&input), plain.peek(&input), "seed {seed}");
            let fits = state.decide(&input).allowed;
            if fits && random.below(2) == 0 {
                now += 1_000;
                let later = request(algorithm, now, window, max, input.cost);
                state.restamp(&later, input.micros);
                assert!(plain.decide(&later).allowed, "seed {seed}");
            } else if fits {
                state.refund(&input, input.micros);
            }
        }
    }
}

/// Runs are merged, and permits are refunded and restamped in any order. A list of all permits never exceeds the limit.
#[test]
fn a_refund_from_merged_runs_never_returns_too_much() {
    let algorithm = Algorithm::SlidingWindow;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (window, max) = (1_000, 600);
        let (mut state, mut kept, mut receipts) = (CounterState::new(algorithm), Vec::new(), Vec::new());
        let mut now = 1_000_000;
        let mut denied = 0;
        for _ in 0..6_000 {
            now += random.below(2);
            let input = |cost| request(algorithm, now * 1_000, window, max, cost);
            let cost = 1 + small(&mut random, 3);
            match (random.below(4), receipts.is_empty()) {
                (0, false) => {
                    let index = usize::try_from(random.below(receipts.len() as u64)).expect("small");
                    let (stamp, cost) = receipts.swap_remove(index);
                    if random.below(2) == 0 {
                        state.refund(&input(cost), stamp * 1_000);
                    } else {
                        state.restamp(&input(cost), stamp * 1_000);
                        kept.push((now, cost));
                    }
                }
                (way, _) => match state.decide(&input(cost)).allowed {
                    true if way == 1 => receipts.push((now, cost)),
                    true => kept.push((now, cost)),
                    false => denied += 1,
                },
            }
            // Receipts that are not refunded yet count too.
            kept.retain(|(stamp, _)| stamp + window > now);
            let live = receipts.iter().filter(|(stamp, _)| stamp + window > now);
            let used: u32 = kept.iter().chain(live).map(|(_, cost)| cost).sum();
            assert!(used <= max, "seed {seed}: {used} at {now}");
        }
        assert!(denied > 100, "seed {seed}: only {denied} denied");
    }
}

/// Recorded permits are not lost in a saturated counter, even if they are then restamped.
#[test]
fn a_record_beyond_u32_leaves_no_permit_free() {
    for algorithm in ALL {
        let all = u32::MAX;
        let (first, later) = (1_000_000_000, 1_001_000_000);
        let input = |micros, cost| request(algorithm, micros, 3_600_000, all, cost);
        let mut state = CounterState::new(algorithm);
        state.record(&input(first, all - 2));
        state.record(&input(first + 1_000, 5_000_000));
        let denied = state.peek(&input(later, 4_999_999));
        assert!(!denied.allowed, "{algorithm:?}: {denied:?}");
        let before = state.peek(&input(later, 0)).remaining;
        state.restamp(&input(later, 5_000_000), first + 1_000);
        assert!(state.peek(&input(later, 0)).remaining <= before, "{algorithm:?}");
    }
}
