//! A master that is replaced while calls come in: nothing is started anew, and no call waits.

use std::time::{Duration, Instant};

use limiter_testkit::{NodeId, Promotion, RedisServer, Sentinels};
use rate_limited::{Decision, Limiter, Source};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::acl::documented;
use crate::deadlines::{DEADLINE, PATIENCE, SLACK, eventually};
use crate::support::{key, limit, script_calls};

/// One call.
#[derive(Debug)]
struct Seen {
    asked: Instant,
    took: Duration,
    by_store: bool,
}

/// Calls one after the other, until it is told that the replaced master's successor has served.
async fn call(limiter: Limiter, name: String, over: watch::Receiver<bool>) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !*over.borrow() {
        let asked = Instant::now();
        let decision = limiter.check(&key(&name), &limit("1000000/10s")).await;
        let by_store = matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store);
        seen.push(Seen { asked, took: asked.elapsed(), by_store });
        sleep(Duration::from_millis(5)).await;
    }
    seen
}

/// Waits until the master takes calls. On a machine under load the sentinels may hold the new master for dead and replace
/// it again, so the one that counts is the one that they name at the time.
async fn is_served_by_the_master(sentinels: &Sentinels, promoted: NodeId, served: impl AsyncFn() -> bool) {
    let calls = |node| script_calls(sentinels.server(node));
    let (mut master, mut before) = (promoted, calls(promoted));
    let until = Instant::now() + PATIENCE;
    while calls(master) <= before + 20 || !served().await {
        let named = sentinels.master();
        if named != master {
            (master, before) = (named, calls(named));
        }
        if Instant::now() >= until {
            let nodes = sentinels.nodes().into_iter().map(|node| (node, sentinels.address(node)));
            let nodes: Vec<_> = nodes.collect();
            let logs = sentinels.log_tails();
            panic!("not served within {PATIENCE:?} by {master:?} ({promoted:?} was promoted) of {nodes:?}\n{logs}");
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Whatever replaces the master, calls follow it. How soon is for the fault bench to measure.
async fn is_followed(sentinels: Sentinels, options: &str, replace: fn(&mut Sentinels) -> Promotion) {
    let url = sentinels.url() + options;
    let limiter = Limiter::builder().url(&url).deadline(DEADLINE).connect().await.expect("a master");
    let served = async || {
        let decision = limiter.check(&key("first"), &limit("1000000/10s")).await;
        matches!(decision, Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store)
    };
    eventually("served by the first master", served).await;
    let (over, until) = watch::channel(false);
    let mut callers = JoinSet::new();
    for task in 0..4 {
        callers.spawn(call(limiter.clone(), task.to_string(), until.clone()));
    }
    let replaced = spawn_blocking(move || {
        let mut sentinels = sentinels;
        let promotion = replace(&mut sentinels);
        (sentinels, promotion)
    });
    let (sentinels, promotion) = replaced.await.expect("a promotion");
    is_served_by_the_master(&sentinels, promotion.master, served).await;
    over.send(true).expect("callers");
    let seen: Vec<_> = callers.join_all().await.into_iter().flatten().collect();

    let slowest = seen.iter().map(|call| call.took).max().expect("calls");
    assert!(slowest < DEADLINE + SLACK, "a call took {slowest:?}");
    assert!(seen.iter().any(|call| call.by_store && call.asked > promotion.at), "never by the new master");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced() {
    let sentinels = Sentinels::builder().user("app", "s3cret").sentinel_password("s3cr3t").start();
    is_followed(sentinels, "?sentinel_password=s3cr3t", |sentinels| {
        let old = sentinels.master();
        sentinels.kill(old);
        sentinels.wait_for_promotion(old)
    })
    .await;
}

/// Its host has gone without a word: what was open stays open, and new connections are not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_falls_silent_is_replaced() {
    let sentinels = Sentinels::builder().password("s3cret").start();
    is_followed(sentinels, "", |sentinels| {
        let old = sentinels.master();
        sentinels.pause(old);
        sentinels.wait_for_promotion(old)
    })
    .await;
}

/// By users who may do nothing that the documentation does not name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_alive_is_replaced() {
    let sentinels = Sentinels::builder().user_with_rules("app", "s3cret", &documented("limiter").join(" ")).start();
    for sentinel in sentinels.sentinels() {
        let words = ["ACL", "SETUSER", "limiter", "on", ">s3cret"].into_iter().chain(documented("sentinels"));
        assert_eq!(sentinels.sentinel(sentinel).command(&words.collect::<Vec<_>>()).text(), "OK");
    }
    is_followed(sentinels, "?sentinel_user=limiter&sentinel_password=s3cret", |sentinels| {
        let until = Instant::now() + PATIENCE;
        while !sentinels.sentinels().into_iter().any(|sentinel| is_listened_to(sentinels.sentinel(sentinel))) {
            assert!(Instant::now() < until, "no sentinel is listened to\n{}", sentinels.log_tails());
            std::thread::sleep(Duration::from_millis(5));
        }
        sentinels.fail_over()
    })
    .await;
}

fn is_listened_to(sentinel: &RedisServer) -> bool {
    let clients = sentinel.command(&["CLIENT", "LIST"]).text();
    clients.lines().any(|client| client.contains(" user=limiter ") && client.contains(" sub=1 "))
}
