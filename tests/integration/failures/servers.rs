//! What real servers do.

use std::time::Instant;

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Error, ErrorKind, Limiter, OnError};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::support::{key, limit, on};

async fn raising(server: &RedisServer) -> Limiter {
    on(server).on_error(OnError::Raise).connect().await.expect("the server is there")
}

async fn remaining(limiter: &Limiter, name: &str) -> Result<u32, Error> {
    limiter.check(&key(name), &limit("5/1h")).await.map(|decision| decision.remaining())
}

async fn kind(limiter: &Limiter, name: &str) -> Option<ErrorKind> {
    limiter.check(&key(name), &limit("100/1h")).await.err().map(|error| error.kind())
}

#[tokio::test]
async fn a_foreign_value_is_one_callers_error_and_stays_as_it_is() {
    let server = RedisServer::shared();
    let foreign: [&[&str]; 6] = [
        &["RPUSH", "KEY", "x"],
        &["HSET", "KEY", "field", "x"],
        &["ZADD", "KEY", "1", "x"],
        &["SET", "KEY", ""],
        &["SET", "KEY", "17"],
        &["SET", "KEY", "as long as a log of one: 19"],
    ];
    for command in foreign {
        let prefix = unique("foreign");
        let limiter = on(server).prefix(&prefix).on_error(OnError::Raise).connect().await.expect("it is there");
        assert_eq!(remaining(&limiter, "a").await.expect("nothing there yet"), 4);
        let name = server.keys_with(&prefix).pop().expect("the key of one call");
        server.command(&["DEL", &name]);
        server.command(&command.iter().map(|word| if *word == "KEY" { &*name } else { word }).collect::<Vec<_>>());
        let dump = || server.command(&["DUMP", &name]).bytes();
        let before = dump();
        assert_eq!(kind(&limiter, "a").await, Some(ErrorKind::Protocol), "{command:?}");
        let looked = limiter.peek(&key("a"), &limit("5/1h")).await.expect_err("nothing to be seen there");
        assert_eq!((looked.kind(), looked.is_transient()), (ErrorKind::Protocol, false), "{command:?}");
        assert_eq!(remaining(&limiter, "b").await.expect("another key"), 4, "{command:?}");
        assert_eq!((dump(), server.pttl(&name)), (before, -1), "{command:?}");
        server.command(&["DEL", &name]);
        assert_eq!(remaining(&limiter, "a").await.expect("mended"), 4, "{command:?}");
    }
}

#[tokio::test]
async fn a_full_server_takes_nothing_until_it_has_room() {
    let server = RedisServer::start();
    let limiter = raising(&server).await;
    assert_eq!(remaining(&limiter, "a").await.expect("there is room"), 4);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for name in ["a", "b"] {
        assert_eq!(kind(&limiter, name).await, Some(ErrorKind::OutOfMemory));
    }
    let looked = limiter.peek(&key("a"), &limit("5/1h")).await.expect("a look takes no room");
    assert_eq!(looked.remaining(), 4);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(remaining(&limiter, "a").await.expect("there is room again"), 3);
}

/// 200 tasks miss the script at once, and one of them loads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_once_and_nobody_notices() {
    const FLUSHES: u64 = 3;
    let server = RedisServer::start();
    let limiter = raising(&server).await;
    let round = async || {
        let mut tasks = JoinSet::new();
        for task in 0..200 {
            let limiter = limiter.clone();
            tasks.spawn(async move { kind(&limiter, &format!("{task}")).await });
        }
        assert_eq!(tasks.join_all().await, [None; 200]);
    };
    round().await;
    for _ in 0..FLUSHES {
        let flush = async { server.flush_scripts() };
        tokio::join!(round(), flush, round());
        round().await;
    }
    // Of every SCRIPT command: 7.0 counts each kind apart, 6.2 all together.
    let stats = server.info("commandstats");
    let scripts = stats.iter().filter(|(name, _)| name.starts_with("cmdstat_script"));
    let calls = scripts.map(|(_, stat)| stat.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok()));
    let loads = 2 * (1 + FLUSHES);
    assert_eq!(calls.sum::<Option<u64>>(), Some(loads + FLUSHES), "both scripts, and flushes");
}

#[tokio::test]
async fn a_replica_takes_nothing_until_it_is_promoted() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = on(&server).url(proxy.url()).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    assert_eq!(remaining(&limiter, "a").await.expect("a primary"), 4);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..50 {
        assert_eq!(kind(&limiter, "a").await, Some(ErrorKind::ReadOnly));
    }
    // Its name may lead to another server by now.
    eventually("connected anew", || async { proxy.connections() > 1 }).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("served", || async { remaining(&limiter, "a").await.is_ok() }).await;
}

#[tokio::test]
async fn a_user_without_a_right_is_refused() {
    for (rules, connects) in [
        ("~* +@all -evalsha", false),
        ("~* +@all -get", true),
        ("~* +@all -set", true),
        ("~other:* +@all", true),
        ("~* +@all -script", false),
        ("~* -@all +hello", false),
    ] {
        let server = RedisServer::builder().user_with_rules("app", "secret", rules).start();
        let error = match on(&server).on_error(OnError::Raise).connect().await {
            Ok(limiter) => {
                assert!(connects, "{rules}");
                limiter.check(&key("a"), &limit("5/1h")).await.expect_err(rules)
            }
            Err(error) => {
                assert!(!connects, "{rules}: {error:?}");
                error
            }
        };
        assert_eq!(error.kind(), ErrorKind::Refused, "{rules}: {error:?}");
    }
}

/// The server has counted the call whose answer was lost: sent again, it would count twice.
#[tokio::test]
async fn a_call_whose_reply_was_lost_is_not_sent_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let prefix = unique("lost");
    let builder = on(&server).url(proxy.url()).prefix(&prefix).deadline(10 * DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    let witness = on(&server).prefix(&prefix).on_error(OnError::Raise).connect().await.expect("the server is there");
    let left = async || witness.peek(&key("a"), &limit("5/1h")).await.expect("not behind the proxy").remaining();
    assert_eq!(remaining(&limiter, "a").await.expect("all is well"), 4);
    proxy.lose_replies();
    assert_eq!(kind(&limiter, "a").await, Some(ErrorKind::Timeout));
    assert_eq!(left().await, 3);
    proxy.pass();
    eventually("connected", || async { remaining(&limiter, "b").await.is_ok() }).await;
    assert_eq!(left().await, 3);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_not_waited_for() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let asked = Instant::now();
    assert_eq!(kind(&limiter, "a").await, Some(ErrorKind::Timeout));
    let took = asked.elapsed();
    assert!((DEADLINE..DEADLINE + SLACK).contains(&took), "{took:?}");
    proxy.pass();
    eventually("served", || async { remaining(&limiter, "b").await.is_ok() }).await;
}
