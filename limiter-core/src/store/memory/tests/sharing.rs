//! Decisions for new keys while the store is full.

use std::collections::{HashMap, VecDeque};

use limiter_testkit::Random;

use super::*;
use crate::algorithm::CounterState;
use crate::{Algorithm, ManualClock};

/// Creates a store for `capacity` keys, with `shared_counters` counters for further keys.
fn small_store(capacity: usize, shared_counters: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    let store = by_clock(capacity, shared_counters, Clock::Manual(clock.clone()));
    (store, clock)
}

fn by_clock(capacity: usize, shared_counters: usize, clock: Clock) -> MemoryStore {
    let overflows = Overflows::new(Source::Store, capacity, clock.clone());
    MemoryStore::with_shared_counters(capacity, shared_counters, clock, overflows, Arithmetic::Own)
}

/// The least number of shared counters: one coarse counter for each algorithm and window class, and one other.
const MIN_SHARED_COUNTERS: usize = 40;

fn bucket(limit: &str, algorithm: Algorithm) -> Limit {
    limit.parse::<Limit>().expect("a limit").with_algorithm(algorithm)
}

fn check(store: &MemoryStore, key: &str, limit: Limit) -> StoreReply {
    store.decide(&[Request::new(&Key::new(key), limit, 1)])
}

fn fill(store: &MemoryStore, key: &str, limit: &str) {
    assert!(store.decide(&[request(&Key::new(key), limit)]).allowed);
}

/// Fills the map of a store for one key, and all shared counters of these limits.
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
fn a_cost_of_zero_is_allowed_in_a_full_store() {
    let (store, _clock) = small_store(1, MIN_SHARED_COUNTERS);
    use_up(&store, &["1/h", "1/2h"]);
    let key = Key::new("new");
    assert!(!store.decide(&[request(&key, "1/2h")]).allowed);
    for limit in ["1/h", "1/2h", "1/s"] {
        let of_no_cost = Request { cost: 0, ..request(&key, limit) };
        assert!(store.decide(&[of_no_cost]).allowed, "{limit}");
        assert!(store.decide(&[of_no_cost, of_no_cost]).allowed, "{limit}");
        assert!(store.peek(&[of_no_cost]).allowed, "{limit}");
    }
}

#[test]
fn a_decision_about_two_new_keys_takes_both_or_nothing() {
    for full in [true, false] {
        let (store, _clock) = small_store(1, MIN_SHARED_COUNTERS);
        if full {
            use_up(&store, &["1/h"]);
        }
        let (first, second) = (Key::new("first"), Key::new("second"));
        let (roomy, strict) = (request(&first, "9/1m"), request(&second, "1/h"));
        let allowed = store.decide(&[roomy, strict]).allowed;
        assert_eq!(allowed, !full);
        let left = store.peek(&[roomy]).remaining;
        assert_eq!(left, if allowed { 8 } else { 9 }, "full: {full}");
        assert!(!store.decide(&[strict]).allowed);
    }
}

#[test]
fn a_full_store_records_what_another_store_admitted() {
    for algorithm in [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
    ] {
        let (store, _clock) = small_store(1, MIN_SHARED_COUNTERS);
        use_up(&store, &["1/h", "1/2h"]);
        let (key, limit) = (Key::new("new"), bucket("3/1m", algorithm));
        let request = Request::new(&key, limit, 3);
        assert!(store.peek(&[request]).allowed);
        store.record(&[request]);
        assert!(!store.decide(&[Request { cost: 1, ..request }]).allowed, "{algorithm:?}");
    }
}

#[test]
fn arbitrary_windows_neither_grow_the_store_nor_deny_all_keys() {
    let (store, _clock) = small_store(1, SHARED_COUNTERS);
    fill(&store, "resident", "1/h");
    for window in 0..200_000_u64 {
        let limit = Limit::new(1, Duration::from_secs(3600 * 24) + Duration::from_millis(window)).expect("a limit");
        let _ = check(&store, "flood", limit);
    }
    let (used, all) = store.shards.lock(0).shared_counters();
    assert!(used < all && all <= SHARED_COUNTERS, "{used} of {all}");
    assert!((0..100).all(|index| store.decide(&[request(&Key::new("user:").part(index), "100/10s")]).allowed));
}

/// Returns how many of this number of new keys are admitted.
fn admitted(store: &MemoryStore, keys: usize, limit: Limit) -> usize {
    (0..keys).filter(|index| check(store, &format!("user:{index}"), limit).allowed).count()
}

/// The counters of a store with one shard that a slot and a kind share. The others are coarse.
const SHARED_BY_SLOT: usize = 49_156;

/// Of 4 000 keys and 49 156 counters 4 % share one and are denied early. With one level, a limit would have 1 680
/// counters.
#[test]
fn a_full_store_admits_most_new_keys_of_each_limit() {
    let (store, _clock) = small_store(1, SHARED_COUNTERS);
    fill(&store, "resident", "1/h");
    let limits = [
        ("1/10s", Algorithm::SlidingWindow),
        ("1/1m", Algorithm::FixedWindow),
        ("1/61s", Algorithm::SlidingWindow),
        ("1/1h", Algorithm::TokenBucket),
    ];
    for (limit, algorithm) in limits {
        let admitted = admitted(&store, 4_000, bucket(limit, algorithm));
        assert!(admitted > 3_750, "{limit}: {admitted} of 4000");
    }
}

/// Of 100 keys and the 420 coarse counters of a limit 11 % share one.
#[test]
fn a_full_store_admits_most_of_a_hundred_new_keys_by_coarse_counters() {
    let (store, _clock) = small_store(1, SHARED_COUNTERS);
    fill(&store, "resident", "1/h");
    for days in 1..=10 {
        admitted(&store, 50_000, Limit::new(1, Duration::from_secs(days * 86_400)).expect("a limit"));
    }
    let (used, _) = store.shards.lock(0).shared_counters();
    assert_eq!(used, SHARED_BY_SLOT, "all are used up");
    let admitted = admitted(&store, 100, bucket("1/10s", Algorithm::SlidingWindow));
    assert!(admitted >= 80, "{admitted} of 100");
}

#[test]
fn a_bucket_shared_with_a_faster_one_refills_no_sooner() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let (store, clock) = small_store(1, MIN_SHARED_COUNTERS);
        fill(&store, "resident", "1/h");
        let (slow, fast) = (bucket("1/h", algorithm), bucket("1000/h", algorithm));
        assert!(check(&store, "slow", slow).allowed);
        for _ in 0..59 {
            clock.advance(Duration::from_secs(60));
            assert!(!check(&store, "slow", slow).allowed, "{algorithm:?}");
            let _ = check(&store, "fast", fast);
        }
    }
}

#[test]
fn a_denial_by_a_shared_counter_has_an_exact_retry_at() {
    let limits = ["2/1m", "5/1s", "1/h"];
    for algorithm in [Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::LeakyBucket]
    {
        for limit in limits {
            for coarse in [false, true] {
                let (store, clock) = small_store(1, MIN_SHARED_COUNTERS);
                fill(&store, "resident", "1/366d");
                if coarse {
                    fill(&store, "the only key of the exact shared counter", "1/365d");
                }
                let limit = bucket(limit, algorithm);
                while check(&store, "a", limit).allowed {}
                let reply = check(&store, "b", limit);
                assert!(!reply.allowed, "{limit:?}");
                let wait = reply.retry_after.expect("not final");
                clock.advance(wait - Duration::from_millis(1));
                assert!(!check(&store, "c", limit).allowed, "{limit:?}, coarse: {coarse}");
                clock.advance(Duration::from_millis(1));
                assert!(check(&store, "d", limit).allowed, "{limit:?}, coarse: {coarse}");
            }
        }
    }
}

#[test]
fn shared_counters_expire_once_there_is_room_however_busy_their_keys_are() {
    for coarse in [false, true] {
        let (store, clock) = small_store(2, MIN_SHARED_COUNTERS);
        fill(&store, "first", "1/1m");
        fill(&store, "second", "1/1m");
        if coarse {
            fill(&store, "the only key of the exact shared counter", "1/366d");
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
        assert_eq!(left, [97, 97], "each counts only its own permits of 10 s, coarse: {coarse}");
    }
}

#[test]
fn a_refund_returns_permits_to_a_shared_counter() {
    for coarse in [false, true] {
        let (store, _clock) = small_store(1, MIN_SHARED_COUNTERS);
        fill(&store, "resident", "1/h");
        if coarse {
            fill(&store, "the only key of the exact shared counter", "1/366d");
        }
        let limit = bucket("1/1m", Algorithm::SlidingWindow);
        let taken = check(&store, "a", limit);
        assert!(!check(&store, "a", limit).allowed);
        store.refund(&[Request::new(&Key::new("a"), limit, 1)], taken.stamp);
        assert!(check(&store, "a", limit).allowed, "coarse: {coarse}");
        assert!(!check(&store, "a", limit).allowed, "coarse: {coarse}");
    }
}

/// Repeated refunds to a shared counter do not move the permits of other keys.
#[test]
fn refunds_do_not_extend_older_permits_of_a_shared_counter() {
    for coarse in [false, true] {
        let (store, clock) = small_store(1, MIN_SHARED_COUNTERS);
        fill(&store, "resident", "1/h");
        if coarse {
            fill(&store, "the only key of the exact shared counter", "1/366d");
        }
        let limit = bucket("10/1s", Algorithm::SlidingWindow);
        for _ in 0..9 {
            assert!(check(&store, "a", limit).allowed);
        }
        // The coarse counter has windows of 2 048 ms.
        for _ in 0..30 {
            clock.advance(Duration::from_millis(100));
            let taken = check(&store, "b", limit);
            assert!(taken.allowed, "coarse: {coarse}");
            store.refund(&[Request::new(&Key::new("b"), limit, 1)], taken.stamp);
        }
        assert_eq!(check(&store, "a", limit).remaining, 9, "coarse: {coarse}");
    }
}

/// The permits of one key, counted exactly.
struct ExactKey {
    limit: Limit,
    state: CounterState,
    taken: VecDeque<(u64, u32)>,
}

impl ExactKey {
    /// Returns true if the key's own counter admits a call that the store has admitted. Counts the call.
    fn allows(&mut self, input: &AlgorithmInput) -> bool {
        let before = input.ceil.saturating_sub(input.kind.window);
        self.taken.retain(|(stamp, _)| *stamp > before);
        let used: u32 = self.taken.iter().map(|(_, cost)| cost).sum();
        // The estimate of a sliding counter may be too high, and so deny a call within the limit.
        let within = input.kind.algorithm == Algorithm::SlidingCounter && used + input.cost <= input.max;
        let allows = self.state.peek(input).allowed || within;
        self.state.record(input);
        self.taken.push_back((input.ceil, input.cost));
        allows
    }
}

#[test]
fn a_full_store_never_admits_more_than_exact_counters_would() {
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
        let capacity = usize::try_from(1 + pick(20)).expect("few");
        let (store, clock) = small_store(capacity, MIN_SHARED_COUNTERS + usize::try_from(pick(60)).expect("few"));
        let mut exact: HashMap<(u64, u64), ExactKey> = HashMap::new();
        let (pace, names) = (4000 * 10_u64.pow(u32::try_from(pick(3)).expect("few")), 2 + pick(10));
        for _ in 0..3000 {
            clock.advance(Duration::from_micros(pick(3) * pick(pace)));
            let (name, kind) = (pick(names), pick(12));
            let known = exact.entry((name, kind)).or_insert_with(|| {
                // A key and kind always have the same limit; different keys have different ones.
                let algorithm = ALGORITHMS[usize::try_from(kind % 5).expect("few")];
                let window = Duration::from_millis(700 << (kind / 5 * 2));
                let limit = Limit::new(1 + u32::try_from(pick(6)).expect("few"), window).expect("a limit");
                let limit = limit.with_algorithm(algorithm);
                let burst = 1 + u32::try_from(pick(8)).expect("few");
                let limit = limit.with_burst(burst).unwrap_or(limit);
                ExactKey { limit, state: CounterState::new(algorithm), taken: VecDeque::new() }
            });
            let key = Key::new("key:").part(name);
            let request = Request::new(&key, known.limit, 1 + u32::try_from(pick(2)).expect("few"));
            if store.decide(&[request]).allowed {
                allowed += 1;
                let input = store.input(request.limit, request.cost, 0, clock_moment(&clock));
                assert!(known.allows(&input), "seed {seed}, key {name}: {request:?}");
            }
        }
        shared += store.overflows.take_due_report().map_or(0, |report| report.overflow.shared());
    }
    assert!(allowed > 10_000 && shared > 10_000, "{allowed} allowed, {shared} shared");
}

fn clock_moment(clock: &ManualClock) -> Moment {
    Clock::Manual(clock.clone()).now()
}
