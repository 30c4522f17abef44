//! DenialSnapshots that are told again without the lock: the same words, and nothing once the count has changed.

use std::thread;

use super::*;
use crate::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

fn key() -> Key {
    Key::new("user:").part(42)
}

/// A store whose key has taken all of 2 permits in 10 s, one of them at 0 s and one at 2 s, which it was told at 3 s.
fn denied() -> (MemoryStore, ManualClock) {
    let (store, clock) = store(100);
    for _ in 0..2 {
        assert!(ask(&store, "2/10s").allowed);
        clock.advance(2 * SECOND);
    }
    clock.rewind(SECOND);
    assert!(!ask(&store, "2/10s").allowed);
    assert!(is_kept(&store, "2/10s"));
    (store, clock)
}

fn ask(store: &MemoryStore, limit: &str) -> StoreReply {
    store.decide(&[request(&key(), limit)])
}

/// Whether the answer to this request is there without the lock.
fn is_kept(store: &MemoryStore, limit: &str) -> bool {
    let (key, limit) = (key(), limit.parse::<Limit>().expect("a limit"));
    let text = key.encoding();
    let key_hash = store.key_hash(&text, &key, limit);
    store.denials.get(&key_hash, &super::super::ask(limit, 1, 0, store.clock.now())).is_some()
}

#[test]
fn is_told_again_in_the_same_words_until_the_instant_it_named() {
    let (store, clock) = denied();
    for step in 0..7 {
        assert!(is_kept(&store, "2/10s"), "{step}");
        let told = ask(&store, "2/10s");
        let elapsed = SECOND * step;
        assert_eq!((told.allowed, told.request_index, told.remaining), (false, 0, 0));
        assert_eq!(told.retry_after, Some(7 * SECOND - elapsed));
        assert_eq!(told.reset_after, 9 * SECOND - elapsed);
        clock.advance(SECOND);
    }
    assert!(!is_kept(&store, "2/10s"));
    assert!(ask(&store, "2/10s").allowed);
    assert!(!is_kept(&store, "2/10s"), "it was taken from");
}

#[test]
fn nothing_is_told_without_the_lock_of_another_question() {
    let (store, _) = denied();
    let key = key();
    let more = Request { cost: 2, ..request(&key, "2/10s") };
    assert_eq!(store.decide(&[more]).retry_after, Some(9 * SECOND), "another cost");
    assert!(ask(&store, "2/20s").allowed, "another window");
    assert!(store.decide(&[request(&Key::new("user:").part(43), "2/10s")]).allowed, "another key");
    assert!(ask(&store, "3/10s").allowed, "another limit on the same count");
}

#[test]
fn what_changes_the_count_strikes_it_out() {
    type Change = fn(&MemoryStore, MemoryReply, &ManualClock);
    let changes: [(&str, Change); 6] = [
        ("a refund", |store, told, _| _ = store.refund(&[request(&key(), "2/10s")], told.now.micros())),
        ("a refund at its place", |store, told, _| {
            let limit = "2/10s".parse().expect("a limit");
            store.refund_at(told.place.expect("its own"), limit, 1, told.now.micros()).expect("given back");
        }),
        ("a reset", |store, _, _| _ = store.reset(&key(), "2/10s".parse().expect("a limit"))),
        ("a record", |store, _, _| _ = store.record(&[request(&key(), "2/10s")])),
        ("a renewal", |store, told, clock| {
            clock.advance(SECOND);
            store.renew(&[request(&key(), "2/10s")], told.now.micros()).expect("renewed");
        }),
        ("a higher limit", |store, _, _| assert!(ask(store, "3/10s").allowed)),
    ];
    for (name, change) in changes {
        let (store, clock) = store(100);
        let told = tell(&store, &request(&key(), "2/10s"));
        assert!(ask(&store, "2/10s").allowed && !ask(&store, "2/10s").allowed);
        assert!(is_kept(&store, "2/10s"), "{name}");
        change(&store, told, &clock);
        assert!(!is_kept(&store, "2/10s"), "{name}");
        let frees = ["a refund", "a refund at its place", "a reset"].contains(&name);
        assert_eq!(ask(&store, "2/10s").allowed, frees, "{name}");
    }
}

#[test]
fn a_clock_that_steps_back_before_it_is_not_told_it() {
    let (store, clock) = denied();
    clock.rewind(2 * SECOND);
    assert!(!is_kept(&store, "2/10s"));
    assert!(!ask(&store, "2/10s").allowed);
}

/// What a thread frees is there for itself, whatever others read meanwhile.
#[test]
fn what_is_freed_is_seen_at_once_while_others_read() {
    let (store, _clock) = store(100);
    let limit: Limit = "1/10s".parse().expect("a limit");
    thread::scope(|scope| {
        scope.spawn(|| {
            // By number: a failure of the other thread must end the test.
            for _ in 0..100_000 {
                let _ = is_kept(&store, "1/10s");
            }
        });
        for _ in 0..20_000 {
            let told = tell(&store, &request(&key(), "1/10s"));
            assert!(told.outcome.allowed, "what was given back is there");
            let denied = ask(&store, "1/10s");
            assert_eq!((denied.allowed, denied.retry_after), (false, Some(10 * SECOND)));
            assert!(is_kept(&store, "1/10s"));
            store.refund_at(told.place.expect("its own"), limit, 1, told.now.micros()).expect("given back");
        }
    });
}

/// There are fewer slots than keys here, so that threads write over what others read.
#[test]
fn nobody_is_told_the_denial_of_another_key_nor_a_mixture() {
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
                    let told = store.decide(&[request]);
                    assert_eq!((told.allowed, told.retry_after), (false, Some(request.limit.window())));
                    assert_eq!(told.reset_after, request.limit.window());
                }
            });
        }
    });
}
