//! Tests of failures of real servers.

use std::time::Instant;

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Error, ErrorKind, Limiter, OnError};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{builder_for, key, limit, unpacked_limit};

async fn connect_with_raise(server: &RedisServer) -> Limiter {
    builder_for(server).on_error(OnError::Raise).connect().await.expect("the server is there")
}

async fn remaining(limiter: &Limiter, name: &str) -> Result<u32, Error> {
    limiter.check(&key(name), &limit("5/1h")).await.map(|decision| decision.remaining())
}

async fn error_kind(limiter: &Limiter, name: &str) -> Option<ErrorKind> {
    limiter.check(&key(name), &limit("100/1h")).await.err().map(|error| error.kind())
}

#[tokio::test]
async fn foreign_value_fails_only_its_key_and_stays_unchanged() {
    let (server, five) = (RedisServer::shared(), unpacked_limit("5/1h"));
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
        let limiter =
            builder_for(server).prefix(&prefix).on_error(OnError::Raise).connect().await.expect("it is there");
        let remaining = async |name| limiter.check(&key(name), &five).await.map(|decision| decision.remaining());
        assert_eq!(remaining("a").await.expect("a fresh key"), 4);
        let name = server.keys_with(&prefix).pop().expect("the key of one call");
        server.command(&["DEL", &name]);
        server.command(&command.iter().map(|word| if *word == "KEY" { &*name } else { word }).collect::<Vec<_>>());
        let dump = || server.command(&["DUMP", &name]).bytes();
        let before = dump();
        let more = unpacked_limit("100/1h");
        let refused = limiter.check(&key("a"), &more).await.expect_err("a foreign value");
        assert_eq!(refused.kind(), ErrorKind::Protocol, "{command:?}");
        let peeked = limiter.peek(&key("a"), &five).await.expect_err("a foreign value");
        assert_eq!((peeked.kind(), peeked.is_transient()), (ErrorKind::Protocol, false), "{command:?}");
        assert_eq!(remaining("b").await.expect("another key"), 4, "{command:?}");
        assert_eq!((dump(), server.pttl(&name)), (before, -1), "{command:?}");
        server.command(&["DEL", &name]);
        assert_eq!(remaining("a").await.expect("fixed"), 4, "{command:?}");
    }
}

#[tokio::test]
async fn full_server_fails_takes_until_it_has_memory() {
    let server = RedisServer::start();
    let limiter = connect_with_raise(&server).await;
    assert_eq!(remaining(&limiter, "a").await.expect("a permit is free"), 4);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for name in ["a", "b"] {
        assert_eq!(error_kind(&limiter, name).await, Some(ErrorKind::OutOfMemory));
    }
    let peeked = limiter.peek(&key("a"), &limit("5/1h")).await.expect("a peek needs no memory");
    assert_eq!(peeked.remaining(), 4);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(remaining(&limiter, "a").await.expect("there is room again"), 3);
}

/// 200 tasks find the script missing at once, and one of them loads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_once_and_no_call_fails() {
    const FLUSHES: u64 = 3;
    const SCRIPTS: u64 = 5;
    let server = RedisServer::start();
    let limiter = connect_with_raise(&server).await;
    let round = async || {
        let mut tasks = JoinSet::new();
        for task in 0..200 {
            let limiter = limiter.clone();
            tasks.spawn(async move { error_kind(&limiter, &format!("{task}")).await });
        }
        assert_eq!(tasks.join_all().await, [None; 200]);
    };
    round().await;
    for _ in 0..FLUSHES {
        let flush = async { server.flush_scripts() };
        tokio::join!(round(), flush, round());
        round().await;
    }
    // All SCRIPT commands: 7.0 counts each subcommand separately, 6.2 counts them together.
    let stats = server.info("commandstats");
    let scripts = stats.iter().filter(|(name, _)| name.starts_with("cmdstat_script"));
    let calls = scripts.map(|(_, stat)| stat.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok()));
    let loads = SCRIPTS * (1 + FLUSHES);
    assert_eq!(calls.sum::<Option<u64>>(), Some(loads + FLUSHES), "all scripts, and flushes");
}

#[tokio::test]
async fn replica_fails_takes_until_it_is_promoted() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = builder_for(&server).url(proxy.url()).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    assert_eq!(remaining(&limiter, "a").await.expect("a primary"), 4);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..50 {
        assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::ReadOnly));
    }
    // The limiter reconnects, because the name may resolve to another server by now.
    eventually("connected anew", || async { proxy.connections() > 1 }).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    eventually("served", || async { remaining(&limiter, "a").await.is_ok() }).await;
}

#[tokio::test]
async fn missing_permission_is_a_refused_error() {
    for (rules, connects) in [
        ("~* +@all -evalsha", false),
        ("~* +@all -get", true),
        ("~* +@all -set", true),
        ("~other:* +@all", true),
        ("~* +@all -script", false),
        ("~* -@all +hello", false),
    ] {
        let server = RedisServer::builder().user_with_rules("app", "secret", rules).start();
        let error = match builder_for(&server).on_error(OnError::Raise).connect().await {
            Ok(limiter) => {
                assert!(connects, "{rules}");
                limiter.check(&key("a"), &unpacked_limit("5/1h")).await.expect_err(rules)
            }
            Err(error) => {
                assert!(!connects, "{rules}: {error:?}");
                error
            }
        };
        assert_eq!(error.kind(), ErrorKind::Refused, "{rules}: {error:?}");
    }
}

/// The server has counted the call whose reply was lost. Sent again, it would be counted twice.
#[tokio::test]
async fn call_with_a_lost_reply_is_not_sent_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let prefix = unique("lost");
    let builder =
        builder_for(&server).url(proxy.url()).prefix(&prefix).deadline(10 * DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    let witness =
        builder_for(&server).prefix(&prefix).on_error(OnError::Raise).connect().await.expect("the server is there");
    let left =
        async || witness.peek(&key("a"), &limit("5/1h")).await.expect("a connection without the proxy").remaining();
    assert_eq!(remaining(&limiter, "a").await.expect("the server answers"), 4);
    proxy.lose_replies();
    assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::Timeout));
    assert_eq!(left().await, 3);
    proxy.pass();
    eventually("connected", || async { remaining(&limiter, "b").await.is_ok() }).await;
    assert_eq!(left().await, 3);
}

#[tokio::test]
async fn call_times_out_when_its_reply_is_late() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    proxy.hold_replies();
    let started = Instant::now();
    assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::Timeout));
    let took = started.elapsed();
    assert!((DEADLINE..DEADLINE + MAX_LATENESS).contains(&took), "{took:?}");
    proxy.pass();
    eventually("served", || async { remaining(&limiter, "b").await.is_ok() }).await;
}
