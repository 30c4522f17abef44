//! Tests of the reports of each rule where Redis, a cluster or the standby limiter decides, and of what an observer
//! adds to a script call.

use limiter_testkit::{Cluster, RedisServer, Reply};
use rate_limited::{Key, Limit, Limiter, ManualClock, OnError, Source};

use super::each_rule::assert_reports_equal_peeks;
use super::{Report, Reports};
use crate::cluster::{key_per_master, name_in};
use crate::deadlines::{DEADLINE, eventually};
use crate::support::{builder_for, key, unpacked_limit as limit};

/// Returns the arguments of the last script call, and the reply to the same arguments.
fn last_script_call(server: &RedisServer) -> (Vec<String>, Reply) {
    let log = server.command(&["SLOWLOG", "GET", "32"]).array().into_iter().map(|entry| entry.array().swap_remove(3));
    let mut calls = log.map(|words| words.array().into_iter().map(Reply::text).collect::<Vec<_>>());
    let call = calls.find(|words| words[0] == "EVALSHA").expect("a script call");
    let reply = server.command(&call.iter().map(String::as_str).collect::<Vec<_>>());
    (call, reply)
}

/// The feature `metrics`, which these tests have, needs the values of each rule, as an observer of allowed calls does.
#[tokio::test]
async fn metrics_and_an_observer_of_allowed_calls_add_the_values_of_each_rule_to_the_script_call() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let take = async |limiter: &Limiter| {
        let (a, b, hour) = (key("a"), key("b"), limit("9/h"));
        assert!(limiter.check_all(&[(&a, &hour, 1), (&b, &hour, 2)]).await.expect("a store").is_allowed());
        last_script_call(&server)
    };
    let words = |operation: &str| {
        let words = ["2", "rl:{a}1h", "rl:{b}1h", operation, "0"];
        let requests = ["sliding_window", "3600000", "9", "9", "1", "sliding_window", "3600000", "9", "9", "2"];
        words.iter().chain(&requests).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let builder = || builder_for(&server).prefix("rl");
    for limiter in [builder(), builder().on_denied(|_| {}).expose_keys(), builder().on_allowed(|_| {})] {
        let (call, reply) = take(&limiter.connect().await.expect("connects")).await;
        assert_eq!(call[2..], words("report"));
        let reply: Vec<i64> = reply.array().into_iter().map(Reply::integer).collect();
        // The second call of each counter: permits left and the time until all are free.
        assert_eq!((reply.len(), reply[7], reply[9]), (11, 7, 5));
        let is_reset = |micros| (3_590_000_000..=3_600_001_000).contains(micros);
        assert!([reply[8], reply[10]].iter().all(is_reset), "{reply:?}");
        server.command(&["DEL", "rl:{a}1h", "rl:{b}1h"]);
    }
    // A decision of one rule has nothing to add.
    let limiter = builder().on_allowed(|_| {}).connect().await.expect("connects");
    assert!(limiter.check(&key("c"), &limit("9/h")).await.expect("a store").is_allowed());
    let (call, reply) = last_script_call(&server);
    assert!(call.iter().all(|word| word != "report"), "{call:?}");
    assert_eq!(reply.bytes().len(), 32);
}

/// The keys of a decision are in several slots and nodes, in one slot, or in one that moves.
#[tokio::test]
async fn each_rule_is_reported_by_a_cluster() {
    let (cluster, reports) = (Cluster::builder().masters_only().start(), Reports::default());
    let limiter = reports
        .observe(crate::cluster::builder_for(&cluster))
        .clock(ManualClock::new())
        .connect()
        .await
        .expect("connects");
    let (nine, seven) = (limit("9/1h"), limit("7/1m"));
    let check = async |requests: &[(&Key, &Limit, u32)]| {
        let decision = limiter.check_all(requests).await.expect("a decision");
        assert!(decision.is_allowed());
        assert_reports_equal_peeks(&limiter, requests, &reports.take(), &decision).await;
    };
    let keys = key_per_master(&cluster);
    check(&[
        (&keys[2], &nine, 1),
        (&keys[0], &seven, 2),
        (&keys[1], &nine, 1),
        (&keys[0], &nine, 3),
        (&keys[2], &seven, 1),
    ])
    .await;
    let denied = limiter.check_all(&[(&keys[0], &nine, 1), (&keys[1], &seven, 8), (&keys[2], &nine, 10)]).await;
    let denied = denied.expect("a decision");
    assert_eq!(reports.take(), [Report::from(&denied)]);
    assert_eq!((denied.is_denied(), denied.limit()), (true, seven));

    let slot = 4711;
    let (same, from) = (key(&name_in(slot)), cluster.master_of(slot));
    check(&[(&same, &seven, 1), (&keys[1], &nine, 1), (&same, &nine, 2)]).await;
    check(&[(&same, &seven, 1), (&same, &nine, 2)]).await;
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    check(&[(&same, &seven, 1), (&same, &nine, 1)]).await;
    migration.move_keys(10);
    migration.finish();
    check(&[(&same, &seven, 1), (&same, &nine, 1)]).await;
}

/// The standby limiter reserves the permits of a call that Redis then does not reply to.
#[tokio::test]
async fn each_rule_is_reported_with_the_values_of_the_standby_limiter_that_decides() {
    let (mut server, reports, clock) = (RedisServer::start(), Reports::default(), ManualClock::new());
    let builder = builder_for(&server).clock(clock).on_error(OnError::Standby).deadline(DEADLINE);
    let limiter = reports.observe(builder).connect().await.expect("connects");
    let (a, b, nine, seven) = (key("a"), key("b"), limit("9/1h"), limit("7/1m"));
    let both = [(&a, &nine, 2), (&b, &seven, 1)];
    let check = async || {
        let decision = limiter.check_all(&both).await.expect("a decision");
        let seen: Vec<_> = reports.take().into_iter().map(|seen| (seen.limit, seen.remaining, seen.source)).collect();
        assert_eq!(seen.len(), 2, "{decision:?}");
        seen
    };
    let by = |source, [first, second]: [u32; 2]| [(nine, first, source), (seven, second, source)];
    assert_eq!(check().await, by(Source::Store, [7, 6]));
    server.kill();
    assert_eq!(check().await, by(Source::Standby, [5, 5]));
    // The server is empty now, so the standby limiter is consulted and reserves the permits.
    server.restart();
    eventually("connected", async || {
        limiter.peek(&key("c"), &nine).await.is_ok_and(|seen| seen.source() == Source::Store)
    })
    .await;
    server.pause();
    assert_eq!(check().await, by(Source::Standby, [3, 4]));
    server.resume();
    eventually("connected", async || {
        limiter.peek(&key("c"), &nine).await.is_ok_and(|seen| seen.source() == Source::Store)
    })
    .await;
    // The store decides, and the standby limiter has allowed the call too.
    let seen = check().await;
    assert!(seen.iter().all(|(_, _, source)| *source == Source::Store), "{seen:?}");
    // What it denies is one report.
    assert!(limiter.check_all(&both).await.expect("a decision").is_denied());
    let seen = reports.take();
    assert_eq!((seen.len(), seen[0].is_allowed, seen[0].limit, seen[0].source), (1, false, nine, Source::Standby));
}
