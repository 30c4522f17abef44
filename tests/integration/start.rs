//! Tests of the start of a limiter: errors of `connect` and `build`, and calls before the store is connected.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::ErrorKind::Config;
use rate_limited::{Builder, Decision, Error, Limiter, OnError, Source};

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{LONG_DEADLINE, builder_for, key, limit};

mod bad_input;
mod environment;

/// A secret that no error may contain.
const SECRET: &str = "s3cret";

/// Invalid URLs.
const INVALID_URLS: &[&str] = &[
    "",
    "memory",
    "memory:x",
    "memory://",
    "redis",
    "redis:",
    "redis://",
    "redis://:s3cret@",
    "redis://user:s3cret@host:port",
    "redis://:s3cret@127.0.0.1:99999",
    "redis://:s3cret@127.0.0.1/first",
    "redis://:s3c%FFret@127.0.0.1",
    "redis://:s3cret@127.0.0.1?protocol=s3cret",
    "rediss://:s3cret@127.0.0.1#s3cret",
    "redis+unix:",
    "redis+unix://host/s3cret",
    "redis+unix:///tmp/s3cret.sock?db=s3cret",
    "http://user:s3cret@127.0.0.1",
    "REDISS3CRET://s3cret",
    "s3cret",
    " redis://:s3cret@127.0.0.1",
    "unix:///tmp/s3cret.sock",
    "rediss://:s3cret@127.0.0.1#insecure",
    "redis://:s3cret@a,b",
    "redis://:s3cret@a:1,b:2",
    "redis-sentinel:",
    "redis-sentinel://",
    "redis-sentinel://:s3cret@a",
    "redis-sentinel://:s3cret@a/",
    "redis-sentinel://:s3cret@a//0",
    "redis-sentinel://:s3cret@a/s3cret/first",
    "redis-sentinel://:s3cret@a,/m",
    "redis-sentinel://:s3cret@a/s3%20cret",
    "redis-sentinel://:s3cret@a:99999/m",
    "redis-sentinel://a/m?sentinel_user=s3cret",
    "redis-sentinel://a/m?password=s3cret",
    "redis-sentinel://a/m?sentinel_password=s3cret&sentinel_password=s3cret",
    "redis-sentinel://a/m?sentinel_password=s3cret#s3cret",
    "rediss-sentinel://:s3cret@a",
    "redis-cluster:",
    "redis-cluster://",
    "redis-cluster://:s3cret@a/1",
    "rediss-cluster://:s3cret@a,b/s3cret",
];

#[tokio::test]
async fn invalid_url_is_rejected_without_revealing_secrets() {
    for url in INVALID_URLS {
        let connected = Limiter::connect(url).await.expect_err(url);
        let built = Limiter::builder().url(url).build().expect_err(url);
        for error in [connected, built] {
            assert_eq!((error.kind(), error.is_transient()), (Config, false), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains(SECRET), "{url}: {error:?}");
        }
    }
}

#[test]
fn options_outside_their_ranges_are_rejected() {
    let millis = Duration::from_millis;
    let too_long = "p".repeat(65);
    let invalid: [fn(&str) -> Builder; 10] = [
        |_| Limiter::builder().deadline(Duration::ZERO),
        |_| Limiter::builder().deadline(Duration::from_micros(999)),
        |_| Limiter::builder().deadline(Duration::from_millis(60_001)),
        |_| Limiter::builder().deadline(Duration::MAX),
        |_| Limiter::builder().prefix(""),
        |_| Limiter::builder().prefix("a b"),
        |_| Limiter::builder().prefix("{a}"),
        |_| Limiter::builder().prefix("é"),
        |too_long| Limiter::builder().prefix(too_long),
        |_| Limiter::builder().max_keys(0),
    ];
    for (index, builder) in invalid.iter().enumerate() {
        for url in ["memory:", "redis://127.0.0.1:1"] {
            let error = builder(&too_long).url(url).build().expect_err(url);
            assert_eq!(error.kind(), Config, "{index}: {error}");
        }
    }
    for builder in [
        Limiter::builder().deadline(millis(1)),
        Limiter::builder().deadline(millis(60_000)),
        Limiter::builder().prefix("a"),
        Limiter::builder().prefix("p".repeat(64)),
        Limiter::builder().prefix("aZ9-_.:"),
        Limiter::builder().max_keys(1),
        Limiter::builder().max_keys(usize::MAX),
    ] {
        assert!(builder.url("redis://127.0.0.1:1").build().is_ok());
    }
}

/// Starts a server that sends these bytes to its first client. Returns its address.
fn start_raw_server(greeting: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
    let address = listener.local_addr().expect("the address of a bound listener");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut received = [0; 1024];
        let _ = stream.read(&mut received);
        let _ = stream.write_all(greeting.as_bytes());
        // Until the client disconnects.
        while stream.read(&mut received).is_ok_and(|length| length > 0) {}
    });
    address.to_string()
}

#[tokio::test]
async fn credentials_and_database_of_the_url_are_used() {
    for password in ["plain", "p@s:s/w?o#r%d &=+{}", "ünï🦀", "'\"\\"] {
        for server in [RedisServer::builder(), RedisServer::builder().tcp()] {
            for server in [server.clone().password(password), server.user("app", password)] {
                let server = server.start();
                let limiter =
                    builder_for(&server).on_error(OnError::Raise).connect().await.expect("the right password");
                assert!(limiter.check(&key("a"), &limit("5/10s")).await.expect("the right password").is_allowed());
            }
        }
    }
    let server = RedisServer::builder().tcp().start();
    let unix = format!("redis+unix://{}?db=3", server.socket().display());
    for (database, url) in [(7, format!("{}/7", server.url())), (3, unix)] {
        let limiter =
            Limiter::builder().url(&url).deadline(LONG_DEADLINE).connect().await.expect("there are 16 databases");
        assert!(limiter.check(&key("a"), &limit("5/10s")).await.expect("the server is there").is_allowed());
        let keyspace = server.info("keyspace");
        assert!(keyspace.contains_key(&format!("db{database}")) && !keyspace.contains_key("db0"), "{keyspace:?}");
    }
}

#[tokio::test]
async fn limiter_starts_on_standby_and_moves_to_the_store() {
    let mut server = RedisServer::start();
    server.kill();
    let limiter = builder_for(&server).build().expect("a URL");
    let started = Instant::now();
    for remaining in [4, 3] {
        let decision = limiter.check(&key("a"), &limit("5/1h")).await;
        assert_eq!(source_and_remaining(&decision), (Source::Standby, true, remaining));
    }
    assert!(started.elapsed() < LONG_DEADLINE, "{:?}", started.elapsed());
    server.restart();
    let by_store =
        || async { source_and_remaining(&limiter.peek(&key("other"), &limit("5/1h")).await).0 == Source::Store };
    eventually("connected to the store", by_store).await;
    assert!(limiter.check(&key("other"), &limit("5/1h")).await.is_ok_and(|decision| decision.is_allowed()));
    assert_eq!(server.keys().len(), 1);
}

/// The first call waits for the connection, but no longer than its deadline.
#[tokio::test]
async fn first_call_waits_for_the_connection_until_its_deadline() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).build().expect("a URL");
    assert_eq!(source_and_remaining(&limiter.check(&key("a"), &limit("5/1h")).await), (Source::Store, true, 4));
    let limiter = Limiter::builder().url(format!("redis://{}", start_raw_server(""))).build().expect("a URL");
    let started = Instant::now();
    assert_eq!(source_and_remaining(&limiter.check(&key("a"), &limit("5/1h")).await), (Source::Standby, true, 4));
    assert!(started.elapsed() < DEADLINE + MAX_LATENESS, "{:?}", started.elapsed());
}

fn source_and_remaining(decision: &Result<Decision, Error>) -> (Source, bool, u32) {
    match decision.as_ref().expect("a decision") {
        Decision::Allowed(allowed) => (allowed.source(), true, allowed.remaining()),
        Decision::Denied(denied) => (denied.source(), false, denied.remaining()),
    }
}
