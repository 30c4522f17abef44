use super::*;
use crate::key::StaticKey;

#[cfg(feature = "test-util")]
mod denial_snapshots;
mod expiring_map;
#[cfg(feature = "test-util")]
mod sharing;

fn request<'a>(key: &'a Key, limit: &str) -> Request<'a> {
    Request::new(key, limit.parse().expect("a limit"), 1)
}

#[cfg(feature = "test-util")]
fn decide_one(store: &MemoryStore, request: &Request<'_>) -> MemoryReply {
    store.decide_one(request, 0, |reply| *reply)
}

/// One permit from the entry of a reply.
#[cfg(feature = "test-util")]
fn entry_permits(reply: &MemoryReply, stamp: u64) -> EntryPermits {
    EntryPermits { entry: reply.entry.expect("an entry"), held: 1, stamp }
}

fn keys(store: &MemoryStore) -> usize {
    (0..store.shards.len()).map(|index| store.shards.lock(index).len()).sum()
}

#[cfg(feature = "test-util")]
fn store(capacity: usize) -> (MemoryStore, crate::ManualClock) {
    let clock = crate::ManualClock::new();
    (MemoryStore::new(capacity, Clock::Manual(clock.clone()), Source::Store), clock)
}

#[test]
fn only_keys_that_have_taken_permits_have_entries() {
    let store = MemoryStore::new(1000, Clock::System, Source::Store);
    let key = Key::new("a");
    assert!(store.peek(&[request(&key, "1/h")]).allowed);
    assert_eq!(keys(&store), 0);
    assert!(store.decide(&[request(&key, "1/h")]).allowed);
    assert!(!store.decide(&[request(&key, "1/h")]).allowed);
    assert!(store.decide(&[request(&key, "1/2h")]).allowed, "another window has another counter");
    assert_eq!(keys(&store), 2);
    store.reset(&request(&key, "9/h"));
    assert!(store.decide(&[request(&key, "1/h")]).allowed);
}

#[test]
fn a_constant_key_shares_the_counter_of_the_equal_key_in_every_store() {
    static PLAIN: StaticKey = StaticKey::new("getId");
    static ESCAPED: StaticKey = StaticKey::new("get id");
    static LONG: StaticKey = StaticKey::new(match str::from_utf8(&[b'a'; 300]) {
        Ok(text) => text,
        Err(_) => "",
    });
    for (constant, text) in [(&PLAIN, "getId"), (&ESCAPED, "get id"), (&LONG, &"a".repeat(300))] {
        for _ in 0..2 {
            let store = MemoryStore::new(1_000_000, Clock::System, Source::Store);
            assert!(store.decide(&[request(constant.key(), "2/h")]).allowed);
            assert!(store.decide(&[request(&Key::new(text), "2/h")]).allowed);
            assert!(!store.decide(&[request(constant.key(), "2/h")]).allowed);
            assert!(!store.decide(&[request(&Key::new(text), "2/h")]).allowed);
            assert!(store.decide(&[request(constant.key(), "2/2h")]).allowed, "another window has another counter");
        }
    }
}

#[cfg(feature = "test-util")]
#[test]
fn a_receipt_of_a_removed_entry_returns_nothing() {
    let (store, clock) = store(100);
    let key = Key::new("a");
    let request = request(&key, "1/10s");
    let first = decide_one(&store, &request);
    clock.advance(Duration::from_secs(10));
    // The insertion sweeps the expired entry.
    assert!(store.decide(&[Request { key: &Key::new("b"), ..request }]).allowed);
    let second = decide_one(&store, &request);
    // The stamp is that of the permits taken since, but the entry is the removed one.
    store.settle_entry(entry_permits(&first, second.now.micros()), request.limit, 0);
    assert!(!store.decide(&[request]).allowed);
    store.settle_entry(entry_permits(&second, second.now.micros()), request.limit, 0);
    assert!(store.decide(&[request]).allowed);
}

#[cfg(feature = "test-util")]
#[test]
fn insertions_remove_expired_keys() {
    let (store, clock) = store(1_000_000);
    for round in 0..20 {
        for index in 0..5_000 {
            let key = Key::new("user:").part(round).part(index);
            assert!(store.decide(&[request(&key, "1/10s")]).allowed);
        }
        clock.advance(Duration::from_secs(10));
    }
    assert!(keys(&store) <= 10_000, "{} keys where 5 000 count at a time", keys(&store));
}

#[cfg(feature = "test-util")]
#[test]
fn is_bounded_and_evicts_no_key_whose_permits_count() {
    let (store, clock) = store(6400);
    let offenders: Vec<Key> = (0..3000).map(|index| Key::new("offender:").part(index)).collect();
    for key in &offenders {
        assert!(store.decide(&[request(key, "1/h")]).allowed);
    }
    let flood = |rounds: std::ops::Range<u32>| {
        for index in rounds {
            let _ = store.decide(&[request(&Key::new("flood:").part(index), "1/h")]);
        }
    };
    flood(0..200_000);
    assert!(keys(&store) <= 6400, "{} keys", keys(&store));
    for key in &offenders {
        assert!(!store.decide(&[request(key, "1/h")]).allowed, "a flood evicted an offender");
    }
    clock.advance(Duration::from_secs(3600));
    flood(200_000..400_000);
    assert!(keys(&store) <= 6400, "{} keys", keys(&store));
}

#[cfg(feature = "test-util")]
#[test]
fn a_key_that_shared_a_counter_gets_no_second_quota_once_there_is_room() {
    let (store, clock) = store(64);
    let minute = "1/1m";
    for index in 0..1000 {
        let _ = store.decide(&[request(&Key::new("early:").part(index), minute)]);
    }
    assert_eq!(keys(&store), 64, "every shard is full");
    clock.advance(Duration::from_secs(30));
    let late: Vec<Key> = (0..200).map(|index| Key::new("late:").part(index)).collect();
    let admitted: Vec<bool> = late.iter().map(|key| store.decide(&[request(key, minute)]).allowed).collect();
    assert!(admitted.contains(&true), "a full store does not deny everyone");
    // The permits of the early keys have expired, those of the late keys have not.
    clock.advance(Duration::from_secs(31));
    for (key, admitted) in late.iter().zip(admitted) {
        let again = store.decide(&[request(key, minute)]).allowed;
        assert!(!(admitted && again), "twice within a minute");
    }
}
