//! Tests of failover during calls: the limiter follows without a restart, and no call waits beyond its deadline.

use std::time::{Duration, Instant};

use limiter_testkit::{NodeId, Promotion, RedisServer, Sentinels};
use rate_limited::{Decision, Limiter, Source};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::acl::documented_rules;
use crate::deadlines::{DEADLINE, MAX_LATENESS, WAIT_TIMEOUT, eventually};
use crate::support::{key, limit, packed_buckets};

/// A completed call.
#[derive(Debug)]
struct CompletedCall {
    started: Instant,
    took: Duration,
    by_store: bool,
}

/// Makes one call after the other until `stop` is true, and returns them.
async fn make_calls(limiter: Limiter, name: String, stop: watch::Receiver<bool>) -> Vec<CompletedCall> {
    let mut completed = Vec::new();
    while !*stop.borrow() {
        let started = Instant::now();
        let decision = limiter.check(&key(&name), &limit("1000000/10s")).await;
        let by_store = matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store);
        completed.push(CompletedCall { started, took: started.elapsed(), by_store });
        sleep(Duration::from_millis(5)).await;
    }
    completed
}

/// Waits until the master serves calls. On a machine under load the sentinels may replace the new master again, so the
/// master is the one that they currently name.
async fn wait_until_served_by_the_master(sentinels: &Sentinels, promoted: NodeId, served: impl AsyncFn() -> bool) {
    let calls = |node| sentinels.server(node).script_calls();
    let (mut master, mut before) = (promoted, calls(promoted));
    let stopped = Instant::now() + WAIT_TIMEOUT;
    while calls(master) <= before + 20 || !served().await {
        let named = sentinels.master();
        if named != master {
            (master, before) = (named, calls(named));
        }
        if Instant::now() >= stopped {
            let nodes = sentinels.nodes().into_iter().map(|node| (node, sentinels.address(node)));
            let nodes: Vec<_> = nodes.collect();
            let logs = sentinels.log_tails();
            panic!("not served within {WAIT_TIMEOUT:?} by {master:?} ({promoted:?} was promoted) of {nodes:?}\n{logs}");
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Replaces the master during calls, and asserts that they follow it. The fault bench measures how soon.
async fn assert_failover_is_followed(sentinels: Sentinels, options: &str, replace: fn(&mut Sentinels) -> Promotion) {
    let url = sentinels.url() + options;
    let limiter = Limiter::builder().presence(false).url(&url).deadline(DEADLINE).connect().await.expect("a master");
    let served = async || {
        let decision = limiter.check(&key("first"), &limit("1000000/10s")).await;
        matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store)
    };
    eventually("served by the first master", served).await;
    let (stop, stopped) = watch::channel(false);
    let mut callers = JoinSet::new();
    for task in 0..4 {
        callers.spawn(make_calls(limiter.clone(), task.to_string(), stopped.clone()));
    }
    let replaced = spawn_blocking(move || {
        let mut sentinels = sentinels;
        let promotion = replace(&mut sentinels);
        (sentinels, promotion)
    });
    let (sentinels, promotion) = replaced.await.expect("a promotion");
    wait_until_served_by_the_master(&sentinels, promotion.master, served).await;
    stop.send(true).expect("callers");
    let completed: Vec<_> = callers.join_all().await.into_iter().flatten().collect();

    let slowest = completed.iter().map(|make_calls| make_calls.took).max().expect("calls");
    assert!(slowest < DEADLINE + MAX_LATENESS, "a call took {slowest:?}");
    assert!(
        completed.iter().any(|make_calls| make_calls.by_store && make_calls.started > promotion.at),
        "no call was served by the new master"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_master_is_replaced() {
    let sentinels = Sentinels::builder().user("app", "s3cret").sentinel_password("s3cr3t").start();
    assert_failover_is_followed(sentinels, "?sentinel_password=s3cr3t", |sentinels| {
        let old = sentinels.master();
        sentinels.kill(old);
        sentinels.wait_for_promotion(old)
    })
    .await;
}

/// The master's host is unreachable: open connections stay open, and new ones get no reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_master_is_replaced() {
    let sentinels = Sentinels::builder().password("s3cret").start();
    assert_failover_is_followed(sentinels, "", |sentinels| {
        let old = sentinels.master();
        sentinels.pause(old);
        sentinels.wait_for_promotion(old)
    })
    .await;
}

/// The permissions of a user that makes calls with the limits of these tests.
fn rules_of_calls() -> Vec<&'static str> {
    documented_rules(if packed_buckets().is_some() { "packed" } else { "limiter" })
}

/// The users have exactly the documented permissions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_master_is_replaced_by_a_manual_failover() {
    let sentinels = Sentinels::builder().user_with_rules("app", "s3cret", &rules_of_calls().join(" ")).start();
    for sentinel in sentinels.sentinels() {
        let words = ["ACL", "SETUSER", "limiter", "on", ">s3cret"].into_iter().chain(documented_rules("sentinels"));
        assert_eq!(sentinels.sentinel(sentinel).command(&words.collect::<Vec<_>>()).text(), "OK");
    }
    assert_failover_is_followed(sentinels, "?sentinel_user=limiter&sentinel_password=s3cret", |sentinels| {
        let stopped = Instant::now() + WAIT_TIMEOUT;
        while !sentinels.sentinels().into_iter().any(|sentinel| has_subscriber(sentinels.sentinel(sentinel))) {
            assert!(Instant::now() < stopped, "no subscription at a sentinel\n{}", sentinels.log_tails());
            std::thread::sleep(Duration::from_millis(5));
        }
        sentinels.fail_over()
    })
    .await;
}

/// Returns whether the limiter is subscribed to all five channels.
fn has_subscriber(sentinel: &RedisServer) -> bool {
    let clients = sentinel.command(&["CLIENT", "LIST"]).text();
    clients.lines().any(|client| client.contains(" user=limiter ") && client.contains(" sub=5 "))
}
