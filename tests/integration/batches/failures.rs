//! Tests of failures of single calls in a batch, and of failures of the whole queue.

use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, ErrorKind, Source};

use super::{BatchFixture, CallSpec, StartCall, error_kinds, remaining};
use crate::deadlines::{DEADLINE, eventually};
use crate::support::{builder_for, poll_once};

/// Decides calls one after the other. After an error the limiter probes the server by script calls of its own, so a test
/// can no longer count those of queued calls.
async fn decide_singly(fixture: &BatchFixture, specs: &[CallSpec<'_>]) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for spec in specs {
        decisions.push(fixture.start_call(*spec).await.expect("a decision"));
    }
    decisions
}

#[tokio::test]
async fn foreign_value_fails_only_the_calls_on_its_key() {
    let mut fixture = BatchFixture::new().await.unpacked();
    let (list, bytes) = ("rl:{list}10s", "rl:{bytes}10s");
    fixture.server.command(&["RPUSH", list, "x"]);
    fixture.server.command(&["SET", bytes, "17"]);
    let dump = || [list, bytes].map(|name| fixture.server.command(&["DUMP", name]).bytes());
    let before = dump();
    // The second call on each key would be denied if the first one had taken its permits.
    let specs = [
        ("a", "5/10s", 1),
        ("list", "5/10s", 5),
        ("list", "3/10s", 1),
        ("b", "5/10s", 1),
        ("bytes", "5/10s", 1),
        ("bytes", "3/10s", 1),
        ("a", "5/10s", 1),
    ];
    let (results, calls) = fixture.send_batch(&specs).await;
    let foreign = Some(ErrorKind::Protocol);
    assert_eq!(error_kinds(&results), [None, foreign, foreign, None, foreign, foreign, None]);
    let left: Vec<_> = results.iter().flatten().map(Decision::remaining).collect();
    assert_eq!((left, calls), (vec![4, 4, 3], 1));
    let dump = || [list, bytes].map(|name| fixture.server.command(&["DUMP", name]).bytes());
    assert_eq!(dump(), before);
    assert_eq!([list, bytes].map(|name| fixture.server.pttl(name)), [-1; 2]);
}

/// The calls before the foreign value are decided once, and those after it as well.
#[tokio::test]
async fn foreign_value_fails_only_its_call_in_a_batch_of_one_kind() {
    let mut fixture = BatchFixture::new().await.unpacked();
    fixture.server.command(&["RPUSH", "rl:{list}10s", "x"]);
    for left in [4, 3] {
        let (results, calls) = fixture.send_batch(&["a", "list", "b"].map(|name| (name, "5/10s", 1))).await;
        assert_eq!((error_kinds(&results), calls), (vec![None, Some(ErrorKind::Protocol), None], 1));
        let decided: Vec<_> = results.into_iter().flatten().collect();
        assert_eq!(remaining(&decided), [(true, left); 2]);
    }
}

/// Each call is decided once, after the script is loaded again.
#[tokio::test]
async fn batch_survives_a_script_flush() {
    let mut fixture = BatchFixture::new().await;
    for _ in 0..3 {
        fixture.server.flush_scripts();
        fixture.clock.advance(Duration::from_secs(10));
        let decisions = fixture.decide_batch(&[("a", "5/10s", 1), ("b", "5/10s", 2), ("a", "5/10s", 1)]).await;
        assert_eq!(remaining(&decisions), [(true, 4), (true, 3), (true, 3)]);
    }
}

/// Calls that are denied or take no permit need no memory.
#[tokio::test]
async fn full_server_fails_only_calls_that_write() {
    let mut fixture = BatchFixture::new().await;
    assert_eq!(remaining(&fixture.decide_batch(&[("full", "5/10s", 5)]).await), [(true, 0)]);
    fixture.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // The last call would be denied if the one before it had taken its permits.
    let specs = [("full", "5/10s", 1), ("a", "5/10s", 0), ("full", "6/10s", 1), ("b", "5/10s", 5), ("b", "4/10s", 1)];
    let (results, _) = fixture.send_batch(&specs).await;
    let full = Some(ErrorKind::OutOfMemory);
    assert_eq!(error_kinds(&results), [None, None, full, full, full]);
    let decided: Vec<_> = results.into_iter().flatten().collect();
    assert_eq!(remaining(&decided), [(false, 0), (true, 5)]);
    fixture.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let decisions = fixture.decide_batch(&[("full", "6/10s", 1), ("b", "5/10s", 1)]).await;
    assert_eq!(remaining(&decisions), [(true, 0), (true, 4)], "no permit was taken");
}

/// The script decides a batch of one kind in a loop of its own, up to the first error of the server.
#[tokio::test]
async fn full_server_fails_only_calls_of_one_kind_that_write() {
    let mut fixture = BatchFixture::new().await;
    let taken = fixture.decide_batch(&[("full", "5/10s", 5), ("other", "5/10s", 5)]).await;
    assert_eq!(remaining(&taken), [(true, 0); 2]);
    fixture.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (results, _) = fixture.send_batch(&["full", "a", "other", "b"].map(|name| (name, "5/10s", 1))).await;
    let full = Some(ErrorKind::OutOfMemory);
    assert_eq!(error_kinds(&results), [None, full, None, full]);
    let decided: Vec<_> = results.into_iter().flatten().collect();
    assert_eq!(remaining(&decided), [(false, 0); 2]);
    fixture.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let decisions = decide_singly(&fixture, &["a", "b"].map(|name| (name, "5/10s", 1))).await;
    assert_eq!(remaining(&decisions), [(true, 4); 2], "no permit was taken");
}

#[tokio::test]
async fn replica_fails_only_calls_that_write() {
    let mut fixture = BatchFixture::new().await;
    assert_eq!(remaining(&fixture.decide_batch(&[("full", "5/10s", 5)]).await), [(true, 0)]);
    fixture.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    // The calls in flight take no permit, so that they do not fail before the batch.
    let specs = [("full", "5/10s", 1), ("a", "5/10s", 1), ("b", "5/10s", 0), ("c", "5/10s", 1)];
    let calls = specs.map(|spec| fixture.start_call(spec)).into();
    let queued = fixture.queue_calls_behind(&[("full", "5/10s", 1); 4], calls).await;
    fixture.release();
    let replica = Some(ErrorKind::ReadOnly);
    assert_eq!(error_kinds(&queued.results().await), [None, replica, None, replica]);
}

/// A user with the permissions of the README, and no others.
#[tokio::test]
async fn permissions_in_the_readme_suffice_for_batches() {
    let readme = include_str!("../../../README.md");
    let line = readme.lines().find(|line| line.contains("**Permissions**")).expect("a line on permissions");
    let rules = format!("~rl:* -@all {}", line.split('`').nth(1).expect("the rules"));
    let server = RedisServer::builder().user_with_rules("app", "secret", &rules).start();
    let mut fixture = BatchFixture::with_server(server).await.unpacked();
    let (results, calls) = fixture.send_batch(&["a", "b", "c"].map(|name| (name, "5/10s", 1))).await;
    assert_eq!(calls, 1);
    for decision in results {
        assert_eq!(decision.expect("a decision").remaining(), 4);
    }
}

/// The script reads the values after the foreign one by MGET. The calls before it have taken their permits by then.
#[tokio::test]
async fn refused_mget_fails_only_the_calls_from_the_foreign_value_on() {
    let server = RedisServer::builder().user_with_rules("app", "secret", "~rl:* +@all -mget").start();
    let mut fixture = BatchFixture::with_server(server).await.unpacked();
    fixture.server.command(&["RPUSH", "rl:{list}10s", "x"]);
    let (results, _) = fixture.send_batch(&["a", "b", "list", "c", "d"].map(|name| (name, "5/10s", 1))).await;
    let refused = Some(ErrorKind::Refused);
    assert_eq!(error_kinds(&results), [None, None, refused, refused, refused]);
    let decided: Vec<_> = results.into_iter().flatten().collect();
    assert_eq!(remaining(&decided), [(true, 4); 2]);
    let decisions = decide_singly(&fixture, &["a", "b", "c", "d"].map(|name| (name, "5/10s", 1))).await;
    assert_eq!(remaining(&decisions), [(true, 3), (true, 3), (true, 4), (true, 4)]);
}

/// A long log is changed in place. If the server refuses that, no permit is granted, and the log stays as it is.
#[tokio::test]
async fn refused_setrange_grants_no_permit() {
    let server = RedisServer::builder().user_with_rules("app", "secret", "~rl:* +@all -setrange").start();
    let mut fixture = BatchFixture::with_server(server).await.unpacked();
    let long = "rl:{long}10s";
    // The log gets long enough to be changed in place by the next call, which is within the same 100 ms.
    for left in (69..100).rev() {
        fixture.clock.advance(Duration::from_millis(1));
        assert_eq!(remaining(&decide_singly(&fixture, &[("long", "100/10s", 1)]).await), [(true, left)]);
    }
    assert_eq!(fixture.server.command(&["STRLEN", long]).integer(), 11 + 31 * 8);
    fixture.clock.advance(Duration::from_millis(1));
    let before = fixture.server.command(&["DUMP", long]).bytes();
    let specs = ["a", "long", "b"].map(|name| (name, "100/10s", 1));
    let (mut results, _) = fixture.send_batch(&specs).await;
    results.push(fixture.start_call(specs[1]).await);
    let refused = Some(ErrorKind::Refused);
    assert_eq!(error_kinds(&results), [None, refused, None, refused]);
    assert_eq!(fixture.server.command(&["DUMP", long]).bytes(), before);
    // After these 100 ms the log is written anew, by SET.
    fixture.clock.advance(Duration::from_millis(100));
    assert_eq!(remaining(&decide_singly(&fixture, &specs).await), [(true, 98), (true, 68), (true, 98)]);
}

/// The standby limiter decided these calls before the store's reply arrived. The late replies change nothing.
#[tokio::test]
async fn late_batch_replies_grant_no_permit_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = builder_for(&server).url(proxy.url()).deadline(4 * DEADLINE);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let before = server.script_calls();
    let mut calls = Vec::new();
    for (sent, size) in [(1, 1), (2, 1), (3, 40)] {
        let specs = vec![("a", "5/1h", 1); size];
        calls.extend(poll_once(specs.into_iter().map(|spec| limiter.clone().start_call(spec)).collect()).await);
        eventually("sent", async || server.script_calls() >= before + sent).await;
    }
    let mut admitted = 0;
    for call in calls {
        let decision = call.await.expect("the standby limiter at least");
        let source = decision.clone().into_result().map_or_else(|denied| denied.source(), |allowed| allowed.source());
        assert_eq!(source, Source::Standby);
        admitted += u32::from(decision.is_allowed());
    }
    assert_eq!(admitted, 5);
    eventually("given up", async || proxy.connections() > 1).await;
    proxy.pass();
    let denied = async || limiter.clone().start_call(("a", "5/1h", 1)).await.expect("a decision").is_denied();
    eventually("reconnected", async || {
        assert!(denied().await);
        let other = limiter.clone().start_call(("b", "1000000/1h", 1)).await.expect("a decision");
        other.into_result().is_ok_and(|allowed| allowed.source() == Source::Store)
    })
    .await;
    for _ in 0..20 {
        assert!(denied().await);
    }
}

/// All queued calls fail when the connection is lost.
#[tokio::test]
async fn killed_server_fails_all_queued_calls_at_once() {
    let mut fixture = BatchFixture::new().await;
    let names: Vec<_> = (0..1_500).map(|name| name.to_string()).collect();
    let calls = names.iter().map(|name| fixture.start_call((name, "5/10s", 1))).collect();
    let queued = fixture.queue_calls(calls).await;
    fixture.server.kill();
    let results = queued.results().await;
    // Not at a deadline.
    assert_eq!(error_kinds(&results), vec![Some(ErrorKind::Unavailable); 1_500]);
}

/// Merged calls are mirrored in the standby limiter one by one, so that each can be refunded.
#[tokio::test]
async fn batched_admissions_are_mirrored_one_by_one() {
    let mut fixture = BatchFixture::new().await;
    let builder = builder_for(&fixture.server).url(fixture.proxy.url()).prefix("rl").clock(fixture.clock.clone());
    fixture.limiter = builder.connect().await.expect("the server is there");
    let allowed: Vec<_> = fixture
        .decide_batch(&[("a", "10/1m", 1); 12])
        .await
        .into_iter()
        .filter_map(|decision| decision.into_result().ok())
        .collect();
    assert_eq!(allowed.len(), 10);
    for granted in &allowed[..3] {
        fixture.limiter.refund(granted).await.expect("refunded");
    }
    fixture.server.kill();
    let mut left = 0;
    while let Decision::Allowed(allowed) = fixture.start_call(("a", "10/1m", 1)).await.expect("a decision") {
        assert_eq!(allowed.source(), Source::Standby);
        left += 1;
    }
    assert_eq!(left, 3);
}
