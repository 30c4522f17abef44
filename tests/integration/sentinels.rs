//! Tests of a store behind sentinels: the limiter uses the master that they name.

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError};

use crate::deadlines::eventually;
use crate::fake_server::FakeServer;
use crate::support::{LONG_DEADLINE, key, limit, tcp_address};

mod failover;

fn url(sentinels: &[&FakeServer]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
    format!("redis-sentinel://{}/mymaster", hosts.join(","))
}

async fn connect(url: &str) -> Limiter {
    let builder = Limiter::builder().presence(false).url(url).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    builder.connect().await.expect("a master")
}

async fn admits(limiter: &Limiter) -> bool {
    limiter.check(&key("a"), &limit("1000/10s")).await.is_ok_and(|decision| decision.is_allowed())
}

/// Makes calls, which this server must count.
async fn assert_served_by(server: &RedisServer, limiter: &Limiter) {
    const CALLS: u64 = 50;
    let before = server.script_calls();
    for call in 0..CALLS {
        assert!(admits(limiter).await, "call {call}");
    }
    assert!(server.script_calls() >= before + CALLS);
}

fn sentinel_naming(server: &RedisServer) -> FakeServer {
    FakeServer::sentinel_for(tcp_address(server).port())
}

#[tokio::test]
async fn master_named_by_a_sentinel_is_used() {
    let server = RedisServer::builder().tcp().user("app", "s3cret").start();
    let sentinel = sentinel_naming(&server);
    let url = url(&[&sentinel]).replace("//", "//app:s3cret@") + "/7";
    assert!(admits(&connect(&url).await).await);
    assert!(server.info("keyspace").contains_key("db7"));
}

/// Unreachable, silent and wrong sentinels delay an attempt to connect but do not fail it.
#[tokio::test]
async fn one_working_sentinel_is_enough() {
    let server = RedisServer::builder().tcp().start();
    let replica = RedisServer::builder().tcp().setting("replicaof", "127.0.0.1 1").start();
    let good = sentinel_naming(&server);
    let others = [
        FakeServer::sentinel(""),
        FakeServer::sentinel("*-1\r\n"),
        FakeServer::sentinel_for(1),
        sentinel_naming(&replica),
        FakeServer::sentinel("+PONG\r\n"),
    ];
    for other in &others {
        assert!(admits(&connect(&url(&[other, &good])).await).await, "{other:?}");
    }
    let all: Vec<_> = others.iter().chain([&good]).collect();
    assert!(admits(&connect(&url(&all)).await).await);
}

/// A named master that accepts connections but sends nothing leaves time to query another sentinel.
#[tokio::test]
async fn frozen_master_leaves_time_for_another_sentinel() {
    let mut frozen = RedisServer::builder().tcp().start();
    let server = RedisServer::builder().tcp().start();
    let (stale, good) = (sentinel_naming(&frozen), sentinel_naming(&server));
    frozen.pause();
    let url = url(&[&stale, &stale, &stale, &good]);
    assert!(admits(&connect(&url).await).await);
    // An attempt in the background is limited to 1 s. It must get as far as the last sentinel.
    let limiter = Limiter::builder().presence(false).url(&url).on_error(OnError::Raise).build().expect("a URL");
    eventually("served", || admits(&limiter)).await;
}

/// The sentinel that last named a working master is queried first, so a silent one costs time only once.
#[tokio::test]
async fn last_working_sentinel_is_queried_first() {
    const CONNECTION_LOSSES: u64 = 10;
    let server = RedisServer::builder().tcp().start();
    let (silent, good) = (FakeServer::sentinel(""), sentinel_naming(&server));
    let limiter = connect(&url(&[&silent, &good])).await;
    for _ in 0..CONNECTION_LOSSES {
        let queries = good.calls();
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("queried again", || async { good.calls() > queries }).await;
        eventually("served again", || admits(&limiter)).await;
    }
    // On a slow machine the good sentinel may take so long that the other one is queried too, but not each time.
    assert!((1..CONNECTION_LOSSES).contains(&silent.calls()), "queried {} times", silent.calls());
}

/// The sentinels are queried again when the master becomes a replica.
#[tokio::test]
async fn demoted_master_is_abandoned() {
    let server = RedisServer::builder().tcp().start();
    let sentinel = sentinel_naming(&server);
    let limiter = connect(&url(&[&sentinel])).await;
    assert!(admits(&limiter).await);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    eventually("queried again", || async {
        assert!(!admits(&limiter).await);
        sentinel.calls() > 2
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("served again", || admits(&limiter)).await;
}

/// Both servers are masters and reply. Only the sentinels know which one is current.
#[tokio::test]
async fn replaced_master_is_abandoned_while_it_still_runs() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (before, now) = (tcp_address(&first).port(), tcp_address(&second).port());
    let sentinel = FakeServer::sentinel_for(before);
    let limiter = connect(&url(&[&sentinel])).await;
    eventually("subscribed", || async { sentinel.subscribers() == (1, 1) }).await;
    assert!(admits(&limiter).await);
    // An announcement of the present master changes nothing. It is read before the next one.
    sentinel.announce_master(now, before);
    assert_served_by(&first, &limiter).await;
    assert_eq!(sentinel.subscribers(), (1, 1));
    sentinel.announce_master(before, now);
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
    let calls = || first.info("commandstats").remove("cmdstat_evalsha");
    let moved = calls();
    assert!(admits(&limiter).await);
    assert_eq!(calls(), moved, "no call goes to the first master");
    eventually("subscribed for the second master alone", || async { sentinel.subscribers() == (1, 2) }).await;
}

/// The master changes between the query for it and the subscription.
#[tokio::test]
async fn master_replaced_before_the_subscription_is_abandoned() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let sentinel = sentinel_naming(&first);
    sentinel.change_master_on_subscribe(tcp_address(&second).port());
    let limiter = connect(&url(&[&sentinel])).await;
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}

/// The announcement is lost together with the subscribed connection.
#[tokio::test]
async fn master_replaced_without_an_announcement_is_abandoned() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let sentinel = sentinel_naming(&first);
    let limiter = connect(&url(&[&sentinel])).await;
    // The limiter queries the address again after it has subscribed.
    eventually("subscribed and queried", || async { sentinel.subscribers() == (1, 1) && sentinel.calls() >= 2 }).await;
    assert!(admits(&limiter).await && second.keys().is_empty());
    sentinel.change_master_and_disconnect(tcp_address(&second).port());
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}

/// Announces to the limiter that the replica at port `to` is promoted next, in place of the master at port `from`.
fn announce_promotion(sentinel: &FakeServer, from: u16, to: u16) {
    let message = format!("slave 127.0.0.1:{to} 127.0.0.1 {to} @ mymaster 127.0.0.1 {from}");
    sentinel.announce("+failover-state-send-slaveof-noone", &message);
}

/// Both servers are masters, and the sentinel still names the first one.
#[tokio::test]
async fn master_is_left_before_its_replica_is_promoted() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (before, now) = (tcp_address(&first).port(), tcp_address(&second).port());
    let sentinel = FakeServer::sentinel_for(before);
    let limiter = connect(&url(&[&sentinel])).await;
    eventually("subscribed", || async { sentinel.subscribers() == (1, 1) }).await;
    assert!(admits(&limiter).await);
    announce_promotion(&sentinel, before, now);
    eventually("left", || async { !admits(&limiter).await }).await;
    let (calls, queries) = (first.script_calls(), sentinel.calls());
    eventually("queried again", || async { sentinel.calls() > queries + 3 }).await;
    assert!(!admits(&limiter).await);
    assert_eq!(first.script_calls(), calls, "no call goes to the first master");
    sentinel.announce_master(before, now);
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
    assert_eq!(first.script_calls(), calls);
}

#[tokio::test]
async fn master_is_used_again_after_an_aborted_failover() {
    let server = RedisServer::builder().tcp().start();
    let port = tcp_address(&server).port();
    let sentinel = FakeServer::sentinel_for(port);
    let limiter = connect(&url(&[&sentinel])).await;
    for round in 1..=3 {
        eventually("subscribed", || async { sentinel.subscribers() == (1, round) }).await;
        eventually("served", || admits(&limiter)).await;
        announce_promotion(&sentinel, port, 1);
        eventually("left", || async { !admits(&limiter).await }).await;
        sentinel.announce("-failover-abort-slave-timeout", &format!("master mymaster 127.0.0.1 {port}"));
    }
    eventually("served", || admits(&limiter)).await;
}

/// The announced failover never happens.
#[tokio::test]
async fn master_is_used_again_when_an_announced_failover_does_not_come() {
    let (server, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (port, now) = (tcp_address(&server).port(), tcp_address(&second).port());
    let sentinel = FakeServer::sentinel_for(port);
    let limiter = connect(&url(&[&sentinel])).await;
    eventually("subscribed", || async { sentinel.subscribers() == (1, 1) }).await;
    announce_promotion(&sentinel, port, now);
    eventually("left", || async { !admits(&limiter).await }).await;
    eventually("served again", || admits(&limiter)).await;
    // Further announcements are ignored for a minute, until that of a new master.
    eventually("subscribed again", || async { sentinel.subscribers() == (1, 2) }).await;
    announce_promotion(&sentinel, port, now);
    assert_served_by(&server, &limiter).await;
    assert_eq!(sentinel.subscribers(), (1, 2));
    sentinel.announce_master(port, now);
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}

/// A silent sentinel must not keep the others from being queried again during an announced failover.
#[tokio::test]
async fn silent_sentinel_does_not_delay_an_announced_failover() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (before, now) = (tcp_address(&first).port(), tcp_address(&second).port());
    let (good, silent) = (FakeServer::sentinel_for(before), FakeServer::sentinel(""));
    let limiter = connect(&url(&[&good, &silent])).await;
    eventually("subscribed", || async { good.subscribers() == (1, 1) }).await;
    announce_promotion(&good, before, now);
    eventually("left", || async { !admits(&limiter).await }).await;
    let queries = || (good.calls(), silent.calls());
    let at_first = queries();
    eventually("queried again", || async { good.calls() > at_first.0 + 12 }).await;
    let queried = (queries().0 - at_first.0, queries().1 - at_first.1);
    assert!(queried.0 > 2 * queried.1, "{queried:?} queries to the good and the silent one");
    good.announce_master(before, now);
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}

/// Other masters of the same sentinels are replaced, and other messages come.
#[tokio::test]
async fn announcements_about_others_change_nothing() {
    let (first, second) = (RedisServer::builder().tcp().start(), RedisServer::builder().tcp().start());
    let (before, now) = (tcp_address(&first).port(), tcp_address(&second).port());
    let sentinel = FakeServer::sentinel_for(before);
    let limiter = connect(&url(&[&sentinel])).await;
    eventually("subscribed", || async { sentinel.subscribers() == (1, 1) }).await;
    for message in ["", "slave", "slave 127.0.0.1:2 127.0.0.1 2 @ other 127.0.0.1 1", "@ mymaster 127.0.0.1 x"] {
        sentinel.announce("+failover-state-send-slaveof-noone", message);
    }
    assert_served_by(&first, &limiter).await;
    assert_eq!(sentinel.subscribers(), (1, 1));
    // The same subscription reads this announcement after the others.
    sentinel.announce_master(before, now);
    eventually("counted by the second master", || async { admits(&limiter).await && !second.keys().is_empty() }).await;
}
