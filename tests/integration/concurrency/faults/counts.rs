//! The number of calls of the store about slots.

use std::time::{Duration, Instant};

use limiter_testkit::{RedisServer, unique};
use rate_limited::Limiter;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::{concurrent, entered};
use super::{LONG_SLOT_TIME, entered_late};
use crate::deadlines::eventually;
use crate::support::{builder_for, key};

/// Returns the number of script calls while the time passes, and the time that really has.
async fn script_calls_in(server: &RedisServer, time: Duration) -> (u64, Duration) {
    let (before, began) = (server.script_calls(), Instant::now());
    sleep(time).await;
    (server.script_calls() - before, began.elapsed())
}

#[tokio::test]
async fn a_process_that_holds_slots_calls_once_in_a_third_of_their_time() {
    const SLOT_TIME: Duration = Duration::from_secs(3);
    let server = RedisServer::start();
    let limiter = builder_for(&server).slot_time(SLOT_TIME).connect().await.expect("a server");
    let (key, limit) = (key("a"), concurrent(1000));
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(entered(&limiter, &key, &limit).await);
    }
    // The reserve goes back.
    sleep(Duration::from_millis(500)).await;
    let (calls, time) = script_calls_in(&server, 3 * SLOT_TIME).await;
    let periods = time.as_micros() / (SLOT_TIME / 3).as_micros();
    assert!(calls >= 1 && u128::from(calls) <= periods + 1, "{calls} calls in {time:?}");
}

/// A process with a thousand calls that wait, and the store's calls in a second.
async fn assert_calls_of_a_thousand_waits(server: &RedisServer, most_a_second: u32) {
    let prefix = unique("waits");
    let limiter = async || -> Limiter {
        builder_for(server).prefix(&prefix).slot_time(LONG_SLOT_TIME).connect().await.expect("a server")
    };
    let (holder, waiter) = (limiter().await, limiter().await);
    let (key, limit, mut waits) = (key("a"), concurrent(1), JoinSet::new());
    let held = entered(&holder, &key, &limit).await;
    for _ in 0..1000 {
        let (waiter, key) = (waiter.clone(), key.clone());
        waits.spawn(async move { drop(entered_late(&waiter, &key, &limit).await) });
    }
    eventually("all wait", async || {
        let before = server.script_calls();
        sleep(Duration::from_millis(200)).await;
        server.script_calls() - before < 20
    })
    .await;
    let (calls, time) = script_calls_in(server, Duration::from_secs(3)).await;
    let most = time.as_secs_f64() * f64::from(most_a_second) + 1.0;
    assert!((1.0..=most).contains(&f64::from(u32::try_from(calls).expect("few"))), "{calls} calls in {time:?}");
    assert!(waits.try_join_next().is_none());
    drop(held);
    waits.join_all().await;
}

#[tokio::test]
async fn a_thousand_waits_call_the_store_at_most_five_times_a_second() {
    assert_calls_of_a_thousand_waits(&RedisServer::start(), 5).await;
}

#[tokio::test]
async fn a_thousand_waits_without_notices_call_the_store_at_most_forty_times_a_second() {
    let rules = "~* resetchannels +@all -subscribe -psubscribe";
    let server = RedisServer::builder().user_with_rules("app", "pw", rules).start();
    assert_calls_of_a_thousand_waits(&server, 40).await;
}
