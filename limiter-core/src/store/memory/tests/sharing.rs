//! What newcomers are told when every place is taken.

use std::collections::{HashMap, VecDeque};

use limiter_testkit::Random;

use super::*;
use crate::algorithm::State;
use crate::{Algorithm, ManualClock};

/// A store of so few places and shared counts that everything in it is shared.
fn crowded(places: usize, sharing: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    let store = by_clock(places, sharing, Clock::Manual(clock.clone()));
    (store, clock)
}

fn by_clock(places: usize, sharing: usize, clock: Clock) -> MemoryStore {
    let overflows = Overflows::new(Source::Store, places, clock.clone());
    MemoryStore::with_sharing(places, sharing, clock, overflows, Arithmetic::Own)
}

/// The least there can be: one count for each kind and class of windows, and one beside them.
const LEAST_SHARING: usize = 40;

fn bucket(limit: &str, algorithm: Algorithm) -> Limit {
    limit.parse::<Limit>().expect("a limit").with_algorithm(algorithm)
}

fn check(store: &MemoryStore, key: &str, limit: Limit) -> StoreReply {
    store.decide(&[Request { key: &Key::new(key), limit, cost: 1 }])
}

fn fill(store: &MemoryStore, key: &str, limit: &str) {
    assert!(store.decide(&[request(&Key::new(key), limit)]).allowed);
}

/// Takes the only place, and all that newcomers of these limits share.
fn use_up(store: &MemoryStore, limits: &[&str]) {
    fill(store, "resident", "1/h");
    for limit in limits {
        let mut denials = 0;
        for index in 0..10_000 {
            let denied = !store.decide(&[request(&Key::new("flood:").part(index), limit)]).allowed;
            denials = if denied { denials + 1 } else { 0 };
        }
        assert!(denials > 100, "{limit} is not used up");
    }
}

#[test]
fn a_cost_of_nothing_is_allowed_however_full_it_is() {
    let (store, _clock) = crowded(1, LEAST_SHARING);
    use_up(&store, &["1/h", "1/2h"]);
    let key = Key::new("newcomer");
    assert!(!store.decide(&[request(&key, "1/2h")]).allowed);
    for limit in ["1/h", "1/2h", "1/s"] {
        let nothing = Request { cost: 0, ..request(&key, limit) };
        assert!(store.decide(&[nothing]).allowed, "{limit}");
        assert!(store.decide(&[nothing, nothing]).allowed, "{limit}");
        assert!(store.peek(&[nothing]).expect("a look").allowed, "{limit}");
    }
}

#[test]
fn two_newcomers_in_one_decision_take_both_or_nothing() {
    for full in [true, false] {
        let (store, _clock) = crowded(1, LEAST_SHARING);
        if full {
            use_up(&store, &["1/h"]);
        }
        let (first, second) = (Key::new("first"), Key::new("second"));
        let (roomy, strict) = (request(&first, "9/1m"), request(&second, "1/h"));
        let allowed = store.decide(&[roomy, strict]).allowed;
        assert_eq!(allowed, !full);
        let left = store.peek(&[roomy]).expect("a look").remaining;
        assert_eq!(left, if allowed { 8 } else { 9 }, "full: {full}");
        assert!(!store.decide(&[strict]).allowed);
    }
}

#[test]
fn what_another_store_admitted_is_noted_however_full_it_is() {
    for algorithm in [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
    ] {
        let (store, _clock) = crowded(1, LEAST_SHARING);
        use_up(&store, &["1/h", "1/2h"]);
        let (key, limit) = (Key::new("newcomer"), bucket("3/1m", algorithm));
        let request = Request { key: &key, limit, cost: 3 };
        assert!(store.peek(&[request]).expect("a look").allowed);
        store.record(&[request]).expect("recorded");
        assert!(!store.decide(&[Request { cost: 1, ..request }]).allowed, "{algorithm:?}");
    }
}

#[test]
fn made_up_windows_neither_grow_the_store_nor_deny_everyone() {
    let (store, _clock) = crowded(1, SHARING);
    fill(&store, "resident", "1/h");
    for window in 0..200_000_u64 {
        let limit = Limit::new(1, Duration::from_secs(3600 * 24) + Duration::from_millis(window)).expect("a limit");
        let _ = check(&store, "flood", limit);
    }
    let (shared, most) = store.lock(0).expect("no lock is orphaned").sharing();
    assert!(shared < most && most <= SHARING, "{shared} of {most}");
    assert!((0..100).all(|index| store.decide(&[request(&Key::new("user:").part(index), "100/10s")]).allowed));
}

#[test]
fn who_shares_with_a_quicker_bucket_gets_nothing_back_sooner() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let (store, clock) = crowded(1, LEAST_SHARING);
        fill(&store, "resident", "1/h");
        let (slow, quick) = (bucket("1/h", algorithm), bucket("1000/h", algorithm));
        assert!(check(&store, "slow", slow).allowed);
        for _ in 0..59 {
            clock.advance(Duration::from_secs(60));
            assert!(!check(&store, "slow", slow).allowed, "{algorithm:?}");
            let _ = check(&store, "quick", quick);
        }
    }
}

#[test]
fn a_shared_denial_says_when_it_ends() {
    let limits = ["2/1m", "5/1s", "1/h"];
    for algorithm in [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::LeakyBucket]
    {
        for limit in limits {
            for folds in [false, true] {
                let (store, clock) = crowded(1, LEAST_SHARING);
                fill(&store, "resident", "1/366d");
                if folds {
                    fill(&store, "the only one to share", "1/365d");
                }
                let limit = bucket(limit, algorithm);
                while check(&store, "a", limit).allowed {}
                let answer = check(&store, "b", limit);
                assert!(!answer.allowed, "{limit:?}");
                let wait = answer.retry_after.expect("not final");
                clock.advance(wait - Duration::from_millis(1));
                assert!(!check(&store, "c", limit).allowed, "{limit:?}, folded: {folds}");
                clock.advance(Duration::from_millis(1));
                assert!(check(&store, "d", limit).allowed, "{limit:?}, folded: {folds}");
            }
        }
    }
}

#[test]
fn shared_counts_run_dry_once_there_is_room_however_busy_their_keys_are() {
    for folds in [false, true] {
        let (store, clock) = crowded(2, LEAST_SHARING);
        fill(&store, "first", "1/1m");
        fill(&store, "second", "1/1m");
        if folds {
            fill(&store, "the only one to share", "1/366d");
        }
        let limit = bucket("100/10s", Algorithm::SlidingWindow);
        assert_eq!(check(&store, "a", limit).remaining, 99);
        assert_eq!(check(&store, "b", limit).remaining, 98, "they share");
        clock.advance(Duration::from_secs(55));
        assert_eq!(check(&store, "a", limit).remaining, 99);
        assert_eq!(check(&store, "b", limit).remaining, 98);
        for _ in 0..10 {
            clock.advance(Duration::from_secs(5));
            let _ = check(&store, "a", limit);
            let _ = check(&store, "b", limit);
        }
        let left = ["a", "b"].map(|key| check(&store, key, limit).remaining);
        assert_eq!(left, [97, 97], "each has what it took itself in 10 s, folded: {folds}");
    }
}

#[test]
fn a_refund_finds_what_was_taken_from_a_shared_count() {
    for folds in [false, true] {
        let (store, _clock) = crowded(1, LEAST_SHARING);
        fill(&store, "resident", "1/h");
        if folds {
            fill(&store, "the only one to share", "1/366d");
        }
        let limit = bucket("1/1m", Algorithm::SlidingWindow);
        let taken = check(&store, "a", limit);
        assert!(!check(&store, "a", limit).allowed);
        store.refund(&[Request { key: &Key::new("a"), limit, cost: 1 }], taken.stamp).expect("given back");
        assert!(check(&store, "a", limit).allowed, "folded: {folds}");
        assert!(!check(&store, "a", limit).allowed, "folded: {folds}");
    }
}

/// Permits of a shared count that are refunded again and again leave the others' where they are.
#[test]
fn refunds_keep_no_old_permit_of_a_shared_count_alive() {
    for folds in [false, true] {
        let (store, clock) = crowded(1, LEAST_SHARING);
        fill(&store, "resident", "1/h");
        if folds {
            fill(&store, "the only one to share", "1/366d");
        }
        let limit = bucket("10/1s", Algorithm::SlidingWindow);
        for _ in 0..9 {
            assert!(check(&store, "a", limit).allowed);
        }
        // The folded count has windows of 2 048 ms.
        for _ in 0..30 {
            clock.advance(Duration::from_millis(100));
            let taken = check(&store, "b", limit);
            assert!(taken.allowed, "folded: {folds}");
            store.refund(&[Request { key: &Key::new("b"), limit, cost: 1 }], taken.stamp).expect("no fork");
        }
        assert_eq!(check(&store, "a", limit).remaining, 9, "folded: {folds}");
    }
}

/// What one key has taken, kept apart from all others.
struct Alone {
    limit: Limit,
    state: State,
    taken: VecDeque<(u64, u32)>,
}

impl Alone {
    /// Whether it may be admitted what was admitted.
    fn allows(&mut self, ask: &AlgorithmInput) -> bool {
        let before = ask.ceil.saturating_sub(ask.span.window);
        self.taken.retain(|(stamp, _)| *stamp > before);
        let used: u32 = self.taken.iter().map(|(_, cost)| cost).sum();
        // The sliding counter may guess too high, and so deny what is within its limit.
        let within = ask.span.algorithm == Algorithm::SlidingCounter && used + ask.cost <= ask.max;
        let allows = self.state.peek(ask).allowed || within;
        self.state.record(ask);
        self.taken.push_back((ask.ceil, ask.cost));
        allows
    }
}

#[test]
fn nobody_is_ever_admitted_more_than_if_everybody_had_a_count_of_their_own() {
    const ALGORITHMS: [Algorithm; 5] = [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
    ];
    let (mut allowed, mut shared) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut pick = |below: u64| random.below(below);
        let places = usize::try_from(1 + pick(20)).expect("few");
        let (store, clock) = crowded(places, LEAST_SHARING + usize::try_from(pick(60)).expect("few"));
        let mut alone: HashMap<(u64, u64), Alone> = HashMap::new();
        let (pace, names) = (4000 * 10_u64.pow(u32::try_from(pick(3)).expect("few")), 2 + pick(10));
        for _ in 0..3000 {
            clock.advance(Duration::from_micros(pick(3) * pick(pace)));
            let (name, span) = (pick(names), pick(12));
            let known = alone.entry((name, span)).or_insert_with(|| {
                // Of one key and span always the same limit, of different keys different ones.
                let algorithm = ALGORITHMS[usize::try_from(span % 5).expect("few")];
                let window = Duration::from_millis(700 << (span / 5 * 2));
                let limit = Limit::new(1 + u32::try_from(pick(6)).expect("few"), window).expect("a limit");
                let limit = limit.with_algorithm(algorithm);
                let burst = 1 + u32::try_from(pick(8)).expect("few");
                let limit = limit.with_burst(burst).unwrap_or(limit);
                Alone { limit, state: State::new(algorithm), taken: VecDeque::new() }
            });
            let key = Key::new("key:").part(name);
            let request = Request { key: &key, limit: known.limit, cost: 1 + u32::try_from(pick(2)).expect("few") };
            if store.decide(&[request]).allowed {
                allowed += 1;
                let ask = ask(request.limit, request.cost, 0, clock_moment(&clock));
                assert!(known.allows(&ask), "seed {seed}, key {name}: {request:?}");
            }
        }
        shared += store.overflows.due().map_or(0, |report| report.overflow.shared());
    }
    assert!(allowed > 10_000 && shared > 10_000, "{allowed} allowed, {shared} shared");
}

fn clock_moment(clock: &ManualClock) -> Moment {
    Clock::Manual(clock.clone()).now()
}
