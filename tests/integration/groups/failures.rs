//! What fails for some of those who go together, and what ends the line.

use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Decision, ErrorKind, Source};

use super::{Asking, Scene, kinds, remaining};
use crate::deadlines::{DEADLINE, eventually};
use crate::support::{begun, on, script_calls};

#[tokio::test]
async fn what_is_foreign_is_its_callers_error_alone() {
    let mut scene = Scene::new().await;
    let (list, bytes) = ("rl:{list}:sw:10000", "rl:{bytes}:sw:10000");
    scene.server.command(&["RPUSH", list, "x"]);
    scene.server.command(&["SET", bytes, "17"]);
    let dump = || [list, bytes].map(|name| scene.server.command(&["DUMP", name]).bytes());
    let before = dump();
    // The second call on each would be denied by what the first one took.
    let asks = [
        ("a", "5/10s", 1),
        ("list", "5/10s", 5),
        ("list", "3/10s", 1),
        ("b", "5/10s", 1),
        ("bytes", "5/10s", 1),
        ("bytes", "3/10s", 1),
        ("a", "5/10s", 1),
    ];
    let (told, calls) = scene.together(&asks).await;
    let foreign = Some(ErrorKind::Protocol);
    assert_eq!(kinds(&told), [None, foreign, foreign, None, foreign, foreign, None]);
    let left: Vec<_> = told.iter().flatten().map(Decision::remaining).collect();
    assert_eq!((left, calls), (vec![4, 4, 3], 1));
    let dump = || [list, bytes].map(|name| scene.server.command(&["DUMP", name]).bytes());
    assert_eq!(dump(), before);
    assert_eq!([list, bytes].map(|name| scene.server.pttl(name)), [-1; 2]);
}

/// Each is decided once, after the script was loaded.
#[tokio::test]
async fn a_group_outlives_that_the_server_forgets_its_scripts() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        scene.server.flush_scripts();
        scene.clock.advance(Duration::from_secs(10));
        let told = scene.decided(&[("a", "5/10s", 1), ("b", "5/10s", 2), ("a", "5/10s", 1)]).await;
        assert_eq!(remaining(&told), [(true, 4), (true, 3), (true, 3)]);
    }
}

/// What is denied or takes nothing needs no room.
#[tokio::test]
async fn a_full_server_fails_those_alone_who_take() {
    let mut scene = Scene::new().await;
    assert_eq!(remaining(&scene.decided(&[("full", "5/10s", 5)]).await), [(true, 0)]);
    scene.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // The last call would be denied by what the one before it could not take.
    let asks = [("full", "5/10s", 1), ("a", "5/10s", 0), ("full", "6/10s", 1), ("b", "5/10s", 5), ("b", "4/10s", 1)];
    let (told, _) = scene.together(&asks).await;
    let full = Some(ErrorKind::OutOfMemory);
    assert_eq!(kinds(&told), [None, None, full, full, full]);
    let decided: Vec<_> = told.into_iter().flatten().collect();
    assert_eq!(remaining(&decided), [(false, 0), (true, 5)]);
    scene.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let told = scene.decided(&[("full", "6/10s", 1), ("b", "5/10s", 1)]).await;
    assert_eq!(remaining(&told), [(true, 0), (true, 4)], "nothing was taken");
}

#[tokio::test]
async fn a_replica_fails_those_alone_who_take() {
    let mut scene = Scene::new().await;
    assert_eq!(remaining(&scene.decided(&[("full", "5/10s", 5)]).await), [(true, 0)]);
    scene.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    // Those that go ahead take nothing, so that their failure is not that of the group.
    let asks = [("full", "5/10s", 1), ("a", "5/10s", 1), ("b", "5/10s", 0), ("c", "5/10s", 1)];
    let calls = asks.map(|ask| scene.limiter.clone().asking(ask)).into();
    let line = scene.line_up_behind(&[("full", "5/10s", 1); 4], calls).await;
    scene.release();
    let replica = Some(ErrorKind::ReadOnly);
    assert_eq!(kinds(&line.answers().await), [None, replica, None, replica]);
}

/// The documented rights, and no more.
#[tokio::test]
async fn the_rights_that_the_readme_asks_for_do() {
    let readme = include_str!("../../../README.md");
    let line = readme.lines().find(|line| line.contains("**Permissions**")).expect("a line on permissions");
    let rules = format!("~rl:* -@all {}", line.split('`').nth(1).expect("the rules"));
    let server = RedisServer::builder().user_with_rules("app", "secret", &rules).start();
    let mut scene = Scene::on(server).await;
    let (told, calls) = scene.together(&["a", "b", "c"].map(|name| (name, "5/10s", 1))).await;
    assert_eq!(calls, 1);
    for decision in told {
        assert_eq!(decision.expect("a decision").remaining(), 4);
    }
}

/// The calls before the store's answer came have been decided by the stand-in: late answers change nothing.
#[tokio::test]
async fn answers_that_come_too_late_for_a_group_hand_out_nothing_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = on(&server).url(proxy.url()).deadline(4 * DEADLINE);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let before = script_calls(&server);
    let mut calls = Vec::new();
    for (sent, size) in [(1, 1), (2, 1), (3, 40)] {
        let asks = vec![("a", "5/1h", 1); size];
        calls.extend(begun(asks.into_iter().map(|ask| limiter.clone().asking(ask)).collect()).await);
        eventually("sent", async || script_calls(&server) >= before + sent).await;
    }
    let mut admitted = 0;
    for call in calls {
        let decision = call.await.expect("the stand-in at least");
        let by_stand_in =
            decision.clone().into_result().map_or_else(|denied| denied.source(), |allowed| allowed.source());
        assert_eq!(by_stand_in, Source::Standby);
        admitted += u32::from(decision.is_allowed());
    }
    assert_eq!(admitted, 5);
    eventually("given up", async || proxy.connections() > 1).await;
    proxy.pass();
    let denied = async || limiter.clone().asking(("a", "5/1h", 1)).await.expect("a decision").is_denied();
    eventually("connected anew", async || {
        assert!(denied().await);
        let other = limiter.clone().asking(("b", "1000000/1h", 1)).await.expect("a decision");
        other.into_result().is_ok_and(|allowed| allowed.source() == Source::Store)
    })
    .await;
    for _ in 0..20 {
        assert!(denied().await);
    }
}

/// Whatever decides, each limit is one: for calls in flight, in line, and after.
#[tokio::test]
async fn a_server_that_dies_under_a_line_fails_all_of_it_at_once() {
    let mut scene = Scene::new().await;
    let names: Vec<_> = (0..1_500).map(|name| name.to_string()).collect();
    let calls = names.iter().map(|name| scene.limiter.clone().asking((name, "5/10s", 1))).collect();
    let line = scene.line_up(calls).await;
    scene.server.kill();
    let told = line.answers().await;
    // Not by a deadline.
    assert_eq!(kinds(&told), vec![Some(ErrorKind::Unavailable); 1_500]);
}

/// The stand-in is told of calls of one kind at once: of each that was granted, so that each can be given back.
#[tokio::test]
async fn what_was_granted_together_counts_in_an_outage_call_by_call() {
    let mut scene = Scene::new().await;
    let builder = on(&scene.server).url(scene.proxy.url()).prefix("rl").clock(scene.clock.clone());
    scene.limiter = builder.connect().await.expect("the server is there");
    let allowed: Vec<_> =
        scene.decided(&[("a", "10/1m", 1); 12]).await.into_iter().filter_map(|told| told.into_result().ok()).collect();
    assert_eq!(allowed.len(), 10);
    for granted in &allowed[..3] {
        scene.limiter.refund(granted).await.expect("given back");
    }
    scene.server.kill();
    let mut left = 0;
    while let Decision::Allowed(allowed) = scene.limiter.clone().asking(("a", "10/1m", 1)).await.expect("a decision") {
        assert_eq!(allowed.source(), Source::Standby);
        left += 1;
    }
    assert_eq!(left, 3);
}
