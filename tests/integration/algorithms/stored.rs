//! What Redis holds of each algorithm: how much, how long, and whose.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Decision, ErrorKind, Limiter, OnError};
use tokio::task::JoinSet;

use super::{ALL, counted};
use crate::deadlines::eventually;
use crate::support::{key, on};

async fn fresh() -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let limiter = on(&server).on_error(OnError::Raise).connect().await.expect("connects");
    (server, limiter)
}

/// Under the same prefix as all others of this kind.
async fn shared(server: &RedisServer) -> Limiter {
    on(server).prefix("foreign").on_error(OnError::Raise).connect().await.expect("connects")
}

fn changes(server: &RedisServer) -> String {
    server.info("persistence")["rdb_changes_since_last_save"].clone()
}

/// The bytes of a value that the documentation names, and those that the server takes for it with its key.
#[tokio::test]
async fn a_key_is_small() {
    let bytes = |algorithm: Algorithm| match algorithm {
        SlidingWindow => 11 + 8,
        FixedWindow => 17,
        SlidingCounter => 21,
        TokenBucket | LeakyBucket => 34,
        other => panic!("no size is known of {other:?}"),
    };
    for algorithm in ALL {
        let (server, limiter) = fresh().await;
        assert!(limiter.check(&key("getId"), &counted("5/10s", algorithm)).await.expect("answers").is_allowed());
        let name = &server.keys()[0];
        assert_eq!(server.command(&["STRLEN", name]).integer(), bytes(algorithm), "{algorithm:?}");
        let usage = server.command(&["MEMORY", "USAGE", name]).integer();
        println!("{algorithm:?}: {} bytes in {usage}", bytes(algorithm));
        assert!(usage <= 160, "{algorithm:?}: {usage} bytes");
    }
}

/// Half a second after that, by which the clock of expiry may be ahead.
#[tokio::test]
async fn every_key_expires_when_nothing_of_it_counts() {
    let mut running = JoinSet::new();
    for algorithm in ALL {
        running.spawn(expires_when_nothing_of_it_counts(algorithm));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a key that expires in time");
    }
}

async fn expires_when_nothing_of_it_counts(algorithm: Algorithm) {
    let (server, limiter) = fresh().await;
    let limit = counted("4/1s", algorithm);
    for cost in [1, 2, 1] {
        let asked = Instant::now();
        let decision = limiter.check_n(&key("a"), &limit, cost).await.expect("answers");
        let reset_after = match decision {
            Decision::Allowed(allowed) => allowed.reset_after(),
            Decision::Denied(denied) => denied.reset_after(),
        };
        let ttl = server.command(&["PTTL", server.keys().first().expect("its key")]).integer();
        let took = i64::try_from(asked.elapsed().as_millis()).expect("small");
        // Less by what has passed since it was set, which is no more than the call and the look took.
        let over = ttl - i64::try_from(reset_after.as_millis()).expect("small");
        assert!(over > 490 - took && over <= 502, "{algorithm:?}: {ttl} ms for {reset_after:?}, seen within {took} ms");
    }
    eventually("gone", async || server.keys().is_empty()).await;
}

#[tokio::test]
async fn denials_looks_and_void_refunds_write_nothing() {
    for algorithm in ALL {
        let (server, limiter) = fresh().await;
        let limit = counted("2/366d", algorithm);
        let check = async |cost| limiter.check_n(&key("a"), &limit, cost).await.expect("answers").into_result();
        let first = check(2).await.expect("free");
        limiter.reset(&key("a"), &limit).await.expect("answers");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let second = check(2).await.expect("free");
        let before = changes(&server);
        for cost in [0, 1, 2, 3, u32::MAX] {
            assert_eq!(check(cost).await.is_ok(), cost == 0, "{algorithm:?}");
            assert!(limiter.peek(&key("a"), &limit).await.expect("answers").is_denied());
        }
        limiter.refund(&first).await.expect("answers");
        assert_eq!(changes(&server), before, "{algorithm:?}");
        limiter.refund(&second).await.expect("answers");
        assert_eq!(server.keys(), [""; 0], "{algorithm:?}: nothing is left to be kept");
    }
}

/// Bytes that are not this algorithm's, and values of another type: refused by name, and left as they are.
#[tokio::test]
async fn foreign_bytes_stay_as_they_are() {
    let server = RedisServer::start();
    let limiter = shared(&server).await;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for algorithm in ALL {
        let _ = limiter.check(&key("a"), &counted("5/366d", algorithm)).await.expect("answers");
        let new = server.keys().into_iter().find(|name| !names.contains(name)).expect("a key of its own");
        values.push(server.command(&["GET", &new]));
        names.push(new);
    }
    for (index, algorithm) in ALL.into_iter().enumerate() {
        let name = &names[index];
        let limit = counted("5/366d", algorithm);
        let refused = async |what: &str| {
            // A new one each time: after a failure the stand-in has a say.
            let limiter = shared(&server).await;
            let error = limiter.check(&key("a"), &limit).await.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Protocol, "{algorithm:?}, {what}: {error}");
        };
        // As long as the values of each, too.
        for length in [0, 1, 17, 19, 21, 34] {
            let text = "x".repeat(length);
            server.command(&["SET", name, &text]);
            refused(&format!("{length} bytes")).await;
            assert_eq!(server.command(&["GET", name]).text(), text);
        }
        for (other, from) in names.iter().enumerate().filter(|(other, _)| *other != index) {
            server.command(&["SET", name, "x"]);
            server.command(&["COPY", from, name, "REPLACE"]);
            if server.command(&["GET", name]) == values[other] {
                refused("another algorithm's value").await;
            }
        }
        server.command(&["DEL", name]);
        server.command(&["LPUSH", name, "x"]);
        refused("a list").await;
        assert_eq!(server.command(&["LLEN", name]).integer(), 1);
        server.command(&["DEL", name]);
        assert!(shared(&server).await.check(&key("a"), &limit).await.expect("answers").is_allowed());
        values[index] = server.command(&["GET", name]);
    }
}
