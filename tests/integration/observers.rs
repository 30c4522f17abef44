//! Tests of observers: they get every decision and cannot change one.

use std::sync::{Arc, Mutex};

use rate_limited::{Limiter, rate_limited};

use crate::support::{key, limit};

mod each_rule;
mod each_rule_redis;
mod reports;

pub(crate) use reports::{Report, Reports};

#[rate_limited(key = "user:{id}", name = "by-user", limit = "1/1m", fallback = None)]
async fn get(id: u32) -> Option<u32> {
    Some(id)
}

#[tokio::test]
async fn observers_get_each_decision_with_its_rule() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (allowed, denied) = (Arc::clone(&events), Arc::clone(&events));
    let limiter = Limiter::builder()
        .on_allowed(move |event| {
            allowed.lock().expect("not poisoned").push(format!("allowed {} {}", event.name(), event.remaining()));
        })
        .on_denied(move |event| {
            denied.lock().expect("not poisoned").push(format!("denied {} {}", event.name(), event.limit()));
        })
        .build()
        .expect("builds");
    assert_eq!(limiter.scope(get(1)).await, Some(1));
    assert_eq!(limiter.scope(get(1)).await, None);
    let _ = limiter.check(&key("a"), &limit("7/1m")).await.expect("answers");
    let _ = limiter.peek(&key("a"), &limit("7/1m")).await.expect("answers");
    assert_eq!(*events.lock().expect("not poisoned"), ["allowed by-user 0", "denied by-user 1/min", "allowed check 6"]);
}

#[tokio::test]
async fn panic_of_an_observer_affects_no_decision() {
    let calls = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&calls);
    let limiter = Limiter::builder()
        .on_allowed(|_| panic!("a panic of the observer"))
        .on_allowed(move |_| *counter.lock().expect("not poisoned") += 1)
        .on_denied(|_| panic!("a panic of the observer"))
        .build()
        .expect("builds");
    assert!(limiter.check(&key("a"), &limit("1/1m")).await.expect("answers").is_allowed());
    assert!(limiter.check(&key("a"), &limit("1/1m")).await.expect("answers").is_denied());
    assert_eq!(*calls.lock().expect("not poisoned"), 1, "later observers are called after a panic");
}
