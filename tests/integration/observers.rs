//! Observers see every decision and cannot change one.

use std::sync::{Arc, Mutex};

use rate_limited::{Limiter, rate_limited};

use crate::support::{key, limit};

#[rate_limited(key = "user:{id}", name = "by-user", limit = "1/1m", fallback = None)]
async fn get(id: u32) -> Option<u32> {
    Some(id)
}

#[tokio::test]
async fn are_told_of_each_decision_with_its_rule() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (allowed, denied) = (Arc::clone(&events), Arc::clone(&events));
    let limiter = Limiter::builder()
        .on_allowed(move |event| {
            allowed.lock().expect("whole").push(format!("allowed {} {}", event.name(), event.remaining()));
        })
        .on_denied(move |event| {
            denied.lock().expect("whole").push(format!("denied {} {}", event.name(), event.limit()));
        })
        .build()
        .expect("builds");
    assert_eq!(limiter.scope(get(1)).await, Some(1));
    assert_eq!(limiter.scope(get(1)).await, None);
    let _ = limiter.check(&key("a"), &limit("7/1m")).await.expect("answers");
    let _ = limiter.peek(&key("a"), &limit("7/1m")).await.expect("answers");
    assert_eq!(*events.lock().expect("whole"), ["allowed by-user 0", "denied by-user 1/1m", "allowed check 6"]);
}

#[tokio::test]
async fn cannot_hurt_with_a_panic() {
    let told = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&told);
    let limiter = Limiter::builder()
        .on_allowed(|_| panic!("an observer's own fault"))
        .on_allowed(move |_| *counter.lock().expect("whole") += 1)
        .on_denied(|_| panic!("an observer's own fault"))
        .build()
        .expect("builds");
    assert!(limiter.check(&key("a"), &limit("1/1m")).await.expect("answers").is_allowed());
    assert!(limiter.check(&key("a"), &limit("1/1m")).await.expect("answers").is_denied());
    assert_eq!(*told.lock().expect("whole"), 1, "those behind it are told all the same");
}
