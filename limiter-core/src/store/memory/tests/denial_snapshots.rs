//! Denials that are read without the lock: the same outcome, until the counter changes.

use std::thread;

use super::*;
use crate::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

fn key() -> Key {
    Key::new("user:").part(42)
}

/// Returns a store whose key has taken 2 of 2 permits in 10 s, at 0 s and at 2 s, and was denied at 3 s.
fn store_with_denial() -> (MemoryStore, ManualClock) {
    let (store, clock) = store(100);
    for _ in 0..2 {
        assert!(decide(&store, "2/10s").allowed);
        clock.advance(2 * SECOND);
    }
    clock.rewind(SECOND);
    assert!(!decide(&store, "2/10s").allowed);
    assert!(is_cached(&store, "2/10s"));
    (store, clock)
}

fn decide(store: &MemoryStore, limit: &str) -> StoreReply {
    store.decide(&[request(&key(), limit)])
}

/// Returns true if the reply to this request can be read without the lock.
fn is_cached(store: &MemoryStore, limit: &str) -> bool {
    let (key, limit) = (key(), limit.parse::<Limit>().expect("a limit"));
    let encoding = store.hashed_encoding(&key, limit);
    let key_hash = store.key_hash(&encoding);
    store.denials.get(&key_hash, &store.input(limit, 1, 0, store.clock.now())).is_some()
}

#[test]
fn a_denial_is_cached_until_its_retry_at() {
    let (store, clock) = store_with_denial();
    for step in 0..7 {
        assert!(is_cached(&store, "2/10s"), "{step}");
        let reply = decide(&store, "2/10s");
        let elapsed = SECOND * step;
        assert_eq!((reply.allowed, reply.request_index, reply.remaining), (false, 0, 0));
        assert_eq!(reply.retry_after, Some(7 * SECOND - elapsed));
        assert_eq!(reply.reset_after, 9 * SECOND - elapsed);
        clock.advance(SECOND);
    }
    assert!(!is_cached(&store, "2/10s"));
    assert!(decide(&store, "2/10s").allowed);
    assert!(!is_cached(&store, "2/10s"), "the counter has changed");
}

#[test]
fn a_cached_denial_is_not_returned_for_another_request() {
    let (store, _) = store_with_denial();
    let key = key();
    let more = Request { cost: 2, ..request(&key, "2/10s") };
    assert_eq!(store.decide(&[more]).retry_after, Some(9 * SECOND), "another cost");
    assert!(decide(&store, "2/20s").allowed, "another window");
    assert!(store.decide(&[request(&Key::new("user:").part(43), "2/10s")]).allowed, "another key");
    assert!(decide(&store, "3/10s").allowed, "another limit on the same counter");
}

#[test]
fn every_change_of_the_counter_invalidates_the_denial() {
    type Change = fn(&MemoryStore, MemoryReply, &ManualClock);
    let changes: [(&str, Change); 6] = [
        ("a refund", |store, reply, _| store.refund(&[request(&key(), "2/10s")], reply.now.micros())),
        ("a refund of its entry", |store, reply, _| {
            let limit = "2/10s".parse().expect("a limit");
            store.settle_entry(entry_permits(&reply, reply.now.micros()), limit, 0);
        }),
        ("a reset", |store, _, _| store.reset(&request(&key(), "2/10s"))),
        ("a record", |store, _, _| _ = store.record(&[request(&key(), "2/10s")])),
        ("a restamp", |store, reply, clock| {
            clock.advance(SECOND);
            store.restamp(&[request(&key(), "2/10s")], reply.now.micros());
        }),
        ("a higher limit", |store, _, _| assert!(decide(store, "3/10s").allowed)),
    ];
    for (name, change) in changes {
        let (store, clock) = store(100);
        let reply = decide_one(&store, &request(&key(), "2/10s"));
        assert!(decide(&store, "2/10s").allowed && !decide(&store, "2/10s").allowed);
        assert!(is_cached(&store, "2/10s"), "{name}");
        change(&store, reply, &clock);
        assert!(!is_cached(&store, "2/10s"), "{name}");
        let frees = ["a refund", "a refund of its entry", "a reset"].contains(&name);
        assert_eq!(decide(&store, "2/10s").allowed, frees, "{name}");
    }
}

#[test]
fn a_denial_is_not_returned_before_its_instant() {
    let (store, clock) = store_with_denial();
    clock.rewind(2 * SECOND);
    assert!(!is_cached(&store, "2/10s"));
    assert!(!decide(&store, "2/10s").allowed);
}

/// A thread sees the permits that it refunds at once, while another thread reads the denial.
#[test]
fn a_refund_is_seen_at_once_while_another_thread_reads() {
    let (store, _clock) = store(100);
    let limit: Limit = "1/10s".parse().expect("a limit");
    thread::scope(|scope| {
        scope.spawn(|| {
            // A fixed number, so that a failure of the other thread ends the test.
            for _ in 0..100_000 {
                let _ = is_cached(&store, "1/10s");
            }
        });
        for _ in 0..20_000 {
            let reply = decide_one(&store, &request(&key(), "1/10s"));
            assert!(reply.outcome.allowed, "the refunded permit is free");
            let denied = decide(&store, "1/10s");
            assert_eq!((denied.allowed, denied.retry_after), (false, Some(10 * SECOND)));
            assert!(is_cached(&store, "1/10s"));
            store.settle_entry(entry_permits(&reply, reply.now.micros()), limit, 0);
        }
    });
}

/// There are fewer slots than keys, so threads overwrite the slots that others read.
#[test]
fn no_reader_gets_the_denial_of_another_key_or_a_torn_one() {
    let (store, _clock) = store(100);
    let keys: Vec<_> = (0..12).map(|index| (Key::new("key:").part(index), format!("1/{}s", 10 + index))).collect();
    for (key, limit) in &keys {
        assert!(store.decide(&[request(key, limit)]).allowed);
    }
    thread::scope(|scope| {
        for first in 0..3 {
            let (store, keys) = (&store, &keys);
            scope.spawn(move || {
                for round in 0..20_000 {
                    let (key, limit) = &keys[(first + round * 5) % keys.len()];
                    let request = request(key, limit);
                    let reply = store.decide(&[request]);
                    assert_eq!((reply.allowed, reply.retry_after), (false, Some(request.limit.window())));
                    assert_eq!(reply.reset_after, request.limit.window());
                }
            });
        }
    });
}
