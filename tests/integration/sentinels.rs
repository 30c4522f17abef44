//! A store behind sentinels: whoever they say is the master decides.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError};
use tokio::time::sleep;

use crate::deadlines::eventually;
use crate::fake::Fake;
use crate::support::{AMPLE, key, limit, place};

mod failover;

fn url(sentinels: &[&Fake]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
    format!("redis-sentinel://{}/mymaster", hosts.join(","))
}

async fn connected(url: &str) -> Limiter {
    let builder = Limiter::builder().url(url).deadline(AMPLE).on_error(OnError::Raise);
    builder.connect().await.expect("a master")
}

async fn admits(limiter: &Limiter) -> bool {
    limiter.check(&key("a"), &limit("1000/10s")).await.is_ok_and(|decision| decision.is_allowed())
}

fn naming(server: &RedisServer) -> Fake {
    Fake::naming(place(server).port())
}

#[tokio::test]
async fn the_master_that_a_sentinel_names_is_used() {
    let server = RedisServer::builder().tcp().user("app", "s3cret").start();
    let sentinel = naming(&server);
    let url = url(&[&sentinel]).replace("//", "//app:s3cret@") + "/7";
    assert!(admits(&connected(&url).await).await);
    assert!(server.info("keyspace").contains_key("db7"));
}

/// Those that are away, silent or wrong cost a part of one attempt, not the attempt.
#[tokio::test]
async fn one_good_sentinel_is_enough() {
    let server = RedisServer::builder().tcp().start();
    let replica = RedisServer::builder().tcp().setting("replicaof", "127.0.0.1 1").start();
    let good = naming(&server);
    let others =
        [Fake::sentinel(""), Fake::sentinel("*-1\r\n"), Fake::naming(1), naming(&replica), Fake::sentinel("+PONG\r\n")];
    for other in &others {
        assert!(admits(&connected(&url(&[other, &good])).await).await, "{other:?}");
    }
    let all: Vec<_> = others.iter().chain([&good]).collect();
    assert!(admits(&connected(&url(&all)).await).await);
}

/// A server that accepts and says nothing, as one that was cut off, leaves time to hear of another.
#[tokio::test]
async fn a_frozen_master_leaves_time_for_another_word() {
    let mut frozen = RedisServer::builder().tcp().start();
    let server = RedisServer::builder().tcp().start();
    let (stale, good) = (naming(&frozen), naming(&server));
    frozen.pause();
    let url = url(&[&stale, &stale, &stale, &good]);
    assert!(admits(&connected(&url).await).await);
    // In the background, an attempt takes 1 s at most. Each has to come as far as the last of them.
    let limiter = Limiter::builder().url(&url).on_error(OnError::Raise).build().expect("a URL");
    eventually("served", || admits(&limiter)).await;
}

/// Whose word was good the last time is asked first, so one that is silent costs time once.
#[tokio::test]
async fn the_sentinel_that_answered_last_is_asked_first() {
    const LOSSES: u64 = 10;
    let server = RedisServer::builder().tcp().start();
    let (silent, good) = (Fake::sentinel(""), naming(&server));
    let limiter = connected(&url(&[&silent, &good])).await;
    for _ in 0..LOSSES {
        let asked = good.calls();
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("asked again", || async { good.calls() > asked }).await;
        eventually("served again", || admits(&limiter)).await;
    }
    // On a slow machine the good one may take long enough for the other to be asked as well; not each time.
    assert!((1..LOSSES).contains(&silent.calls()), "asked {} times", silent.calls());
}

/// A replica is no master for having been one: it is asked again who is.
#[tokio::test]
async fn a_master_that_was_demoted_is_left() {
    let server = RedisServer::builder().tcp().start();
    let sentinel = naming(&server);
    let limiter = connected(&url(&[&sentinel])).await;
    assert!(admits(&limiter).await);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    eventually("asked again", || async {
        assert!(!admits(&limiter).await);
        sentinel.calls() > 2
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("served again", || admits(&limiter)).await;
}

/// Both are masters and answer: only the sentinels know which one counts by now.
#[tokio::test]
async fn a_master_that_was_replaced_while_it_lives_is_left() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (before, now) = (place(&first).port(), place(&second).port());
    let sentinel = Fake::naming(before);
    let limiter = connected(&url(&[&sentinel])).await;
    eventually("listened to", || async { sentinel.listeners() == (1, 1) }).await;
    assert!(admits(&limiter).await);
    // That it is where it is, is no news: nothing happens, in the time that this test gives it.
    let asked = sentinel.calls();
    sentinel.rename(now, before);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sentinel.calls(), asked);
    assert!(admits(&limiter).await && second.keys().is_empty());
    sentinel.rename(before, now);
    eventually("at the second", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
    let calls = || first.info("commandstats").remove("cmdstat_evalsha");
    let moved = calls();
    assert!(admits(&limiter).await);
    assert_eq!(calls(), moved, "nothing goes to the first");
    eventually("listened to for the second alone", || async { sentinel.listeners() == (1, 2) }).await;
}

/// Between the question and the first word that is listened to.
#[tokio::test]
async fn a_master_that_was_replaced_at_once_is_left() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let sentinel = naming(&first);
    sentinel.rename_unheard(place(&second).port());
    let limiter = connected(&url(&[&sentinel])).await;
    eventually("at the second", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}

/// The sentinel's announcement is lost with the connection that waited for it.
#[tokio::test]
async fn a_master_that_was_replaced_while_no_sentinel_was_heard_is_left() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let sentinel = naming(&first);
    let limiter = connected(&url(&[&sentinel])).await;
    // The question for the address follows the subscription.
    eventually("listened to and asked", || async { sentinel.listeners() == (1, 1) && sentinel.calls() >= 2 }).await;
    assert!(admits(&limiter).await && second.keys().is_empty());
    sentinel.rename_and_hang_up(place(&second).port());
    eventually("at the second", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}
