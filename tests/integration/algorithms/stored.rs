//! Tests of the values stored in Redis by each algorithm: their size, expiry and type.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{ErrorKind, Limit, Limiter, OnError};
use tokio::task::JoinSet;

use super::ALL_ALGORITHMS;
use crate::deadlines::eventually;
use crate::support::{builder_for, key, unpacked_limit};

fn limit_with_algorithm(text: &str, algorithm: Algorithm) -> Limit {
    unpacked_limit(text).with_algorithm(algorithm)
}

async fn new_server() -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("connects");
    (server, limiter)
}

/// Returns a limiter under a prefix that all of these limiters share.
async fn limiter_with_shared_prefix(server: &RedisServer) -> Limiter {
    builder_for(server).prefix("foreign").on_error(OnError::Raise).connect().await.expect("connects")
}

fn write_count(server: &RedisServer) -> String {
    server.info("persistence")["rdb_changes_since_last_save"].clone()
}

/// Checks the documented size of a value, and the server's memory use for the key and the value.
#[tokio::test]
async fn value_sizes_match_the_documentation() {
    let bytes = |algorithm: Algorithm| match algorithm {
        SlidingWindow => 4 + 4,
        FixedWindow => 17,
        SlidingCounter => 21,
        TokenBucket | LeakyBucket => 34,
        other => panic!("no size is documented for {other:?}"),
    };
    for algorithm in ALL_ALGORITHMS {
        let (server, limiter) = new_server().await;
        assert!(
            limiter
                .check(&key("getId"), &limit_with_algorithm("5/10s", algorithm))
                .await
                .expect("answers")
                .is_allowed()
        );
        let name = &server.keys()[0];
        assert_eq!(server.command(&["STRLEN", name]).integer(), bytes(algorithm), "{algorithm:?}");
        let usage = server.command(&["MEMORY", "USAGE", name]).integer();
        println!("{algorithm:?}: {} bytes in {usage}", bytes(algorithm));
        assert!(usage <= 160, "{algorithm:?}: {usage} bytes");
    }
}

/// Keys live half a second longer than the counter, because the server's expiry clock may be ahead. Those of a sliding
/// window live up to a tenth of a second longer still, because their expiries lie on a grid.
#[tokio::test]
async fn every_key_expires_when_its_counter_is_empty() {
    let mut running = JoinSet::new();
    for algorithm in ALL_ALGORITHMS {
        running.spawn(assert_key_expires_when_its_counter_is_empty(algorithm));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a key that expires in time");
    }
}

async fn assert_key_expires_when_its_counter_is_empty(algorithm: Algorithm) {
    let (server, limiter) = new_server().await;
    let limit = limit_with_algorithm("4/1s", algorithm);
    let mut last_write_took = 0;
    for cost in [1, 2, 1] {
        let started = Instant::now();
        let decision = limiter.check_n(&key("a"), &limit, cost).await.expect("answers");
        let reset_after = decision.reset_after();
        let name = server.keys().into_iter().next();
        let ttl = name.map_or(0, |name| server.command(&["PTTL", &name]).integer().max(0));
        let took = i64::try_from(started.elapsed().as_millis()).expect("small");
        // The TTL is lower by the time since it was set, which is at most the duration of the call and of `PTTL`. On a
        // machine that stands still the key may have expired.
        let extra_millis = ttl - i64::try_from(reset_after.as_millis()).expect("small");
        let mut most = if algorithm == SlidingWindow { 602 } else { 502 };
        if decision.is_denied() {
            // An earlier call set the TTL. The server may have stood still after it had read its clock for that call.
            most += last_write_took;
        } else {
            last_write_took = took;
        }
        assert!(
            extra_millis > 490 - took && extra_millis <= most,
            "{algorithm:?}: {ttl} ms for {reset_after:?}, read within {took} ms"
        );
    }
    eventually("gone", async || server.keys().is_empty()).await;
}

#[tokio::test]
async fn denials_peeks_and_void_refunds_write_nothing() {
    for algorithm in ALL_ALGORITHMS {
        let (server, limiter) = new_server().await;
        let limit = limit_with_algorithm("2/366d", algorithm);
        let check = async |cost| limiter.check_n(&key("a"), &limit, cost).await.expect("answers").into_result();
        let first = check(2).await.expect("free");
        limiter.reset(&key("a"), &limit).await.expect("answers");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let second = check(2).await.expect("free");
        let before = write_count(&server);
        for cost in [0, 1, 2, 3, u32::MAX] {
            assert_eq!(check(cost).await.is_ok(), cost == 0, "{algorithm:?}");
            assert!(limiter.peek(&key("a"), &limit).await.expect("answers").is_denied());
        }
        limiter.refund(&first).await.expect("answers");
        assert_eq!(write_count(&server), before, "{algorithm:?}");
        limiter.refund(&second).await.expect("answers");
        assert_eq!(server.keys(), [""; 0], "{algorithm:?}: no key remains");
    }
}

/// Bytes of another format and values of another type: calls fail with `Protocol`, and the values stay unchanged.
#[tokio::test]
async fn foreign_values_are_rejected_and_left_unchanged() {
    let server = RedisServer::start();
    let limiter = limiter_with_shared_prefix(&server).await;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for algorithm in ALL_ALGORITHMS {
        let _ = limiter.check(&key("a"), &limit_with_algorithm("5/366d", algorithm)).await.expect("answers");
        let new = server.keys().into_iter().find(|name| !names.contains(name)).expect("a new key");
        values.push(server.command(&["GET", &new]));
        names.push(new);
    }
    for (index, algorithm) in ALL_ALGORITHMS.into_iter().enumerate() {
        let name = &names[index];
        let limit = limit_with_algorithm("5/366d", algorithm);
        let assert_rejected = async |what: &str| {
            // A new limiter each time: after a failure the standby limiter is consulted.
            let limiter = limiter_with_shared_prefix(&server).await;
            let error = limiter.check(&key("a"), &limit).await.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Protocol, "{algorithm:?}, {what}: {error}");
        };
        // The lengths include those of each algorithm's values.
        for length in [0, 1, 17, 19, 21, 34] {
            let text = "x".repeat(length);
            server.command(&["SET", name, &text]);
            assert_rejected(&format!("{length} bytes")).await;
            assert_eq!(server.command(&["GET", name]).text(), text);
        }
        for (other, from) in names.iter().enumerate().filter(|(other, _)| *other != index) {
            server.command(&["SET", name, "x"]);
            server.command(&["COPY", from, name, "REPLACE"]);
            if server.command(&["GET", name]) == values[other] {
                assert_rejected("another algorithm's value").await;
            }
        }
        server.command(&["DEL", name]);
        server.command(&["LPUSH", name, "x"]);
        assert_rejected("a list").await;
        assert_eq!(server.command(&["LLEN", name]).integer(), 1);
        server.command(&["DEL", name]);
        assert!(
            limiter_with_shared_prefix(&server).await.check(&key("a"), &limit).await.expect("answers").is_allowed()
        );
        values[index] = server.command(&["GET", name]);
    }
}
