//! Tests of `hash_keys`: no part of a key is readable in the store, and decisions are the same as without it.

use futures_util::future::join_all;
use limiter_testkit::{Cluster, RedisServer};
use rate_limited::{Algorithm, Decision, ErrorKind, Key, Layout, Limiter, OnError, Rule, Source};

use crate::support::{LONG_DEADLINE, builder_for, key, unpacked_limit as limit};

const SECRET: [u8; 32] = [7; 32];

fn user(name: &str) -> Key {
    Key::new("user:").part(name)
}

/// Returns every command that clients sent, and every key and value that is stored.
async fn stored_and_sent_text(server: &RedisServer) -> String {
    let mut stored_and_sent_text = String::new();
    for name in server.keys() {
        stored_and_sent_text.push_str(&name);
        let value = server.command(&["DUMP", &name]).bytes();
        stored_and_sent_text.push_str(&String::from_utf8_lossy(&value));
    }
    stored_and_sent_text + &String::from_utf8_lossy(&bytes(server.command(&["SLOWLOG", "GET", "-1"])))
}

fn bytes(reply: limiter_testkit::Reply) -> Vec<u8> {
    match reply {
        limiter_testkit::Reply::Array(replies) => replies.into_iter().flat_map(bytes).collect(),
        limiter_testkit::Reply::Integer(_) => Vec::new(),
        reply => reply.bytes(),
    }
}

#[tokio::test]
async fn no_part_of_a_key_reaches_the_store() {
    let server =
        RedisServer::builder().setting("slowlog-log-slower-than", "0").setting("slowlog-max-len", "10000").start();
    let hashed = builder_for(&server).prefix("rl").hash_keys(SECRET).connect().await.expect("connects");
    let open = builder_for(&server).prefix("open").connect().await.expect("connects");
    for limiter in [&hashed, &open] {
        for algorithm in [Algorithm::SlidingWindow, Algorithm::LeakyBucket] {
            let limit = limit("5/1h").with_algorithm(algorithm);
            let (alice, bob) = (user("alice"), user("bob"));
            let Decision::Allowed(receipt) = limiter.check(&alice, &limit).await.expect("answers") else {
                panic!("five are allowed")
            };
            limiter.refund(&receipt).await.expect("refunded");
            let _ = limiter.check_all(&[(&alice, &limit, 1), (&bob, &limit, 1)]).await.expect("answers");
            join_all([&alice, &bob, &alice].map(|key| limiter.check(key, &limit))).await;
            let _ = limiter.peek(&bob, &limit).await.expect("answers");
            limiter.reset(&bob, &limit).await.expect("reset");
            assert_eq!(limiter.peek(&bob, &limit).await.expect("answers").remaining(), 5);
        }
        let text = stored_and_sent_text(&server).await.to_lowercase();
        let readable = ["alice", "bob", "user"].map(|word| text.contains(word));
        assert_eq!(readable, [std::ptr::eq(limiter, &open); 3], "{text}");
    }
    let names = server.keys_with("rl:");
    assert!(!names.is_empty());
    for name in names {
        let digest = name.strip_prefix("rl:{+").and_then(|rest| rest.split_once('}')).expect("a digest").0;
        assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    }
}

#[tokio::test]
async fn only_limiters_with_the_same_secret_share_counters() {
    let server = RedisServer::start();
    let (once, alice) = (limit("1/1h"), user("alice"));
    let with = |secret: &[u8]| builder_for(&server).prefix("rl").hash_keys(secret).connect();
    let (first, second) = (with(&SECRET).await.expect("connects"), with(&SECRET).await.expect("connects"));
    assert!(first.check(&alice, &once).await.expect("answers").is_allowed());
    assert!(second.check(&alice, &once).await.expect("answers").is_denied());
    let rotated = with(&[8; 16]).await.expect("connects");
    assert!(rotated.check(&alice, &once).await.expect("answers").is_allowed(), "another secret has another quota");
    let open = builder_for(&server).prefix("rl").connect().await.expect("connects");
    assert!(open.check(&alice, &once).await.expect("answers").is_allowed());
    // A key made of the digest has another name, so it has a fresh quota.
    let name = server.keys_with("{+").into_iter().next().expect("a name");
    let digest = name.split(['{', '}']).nth(1).expect("a digest");
    for forged in [Key::new(digest), Key::new("").part(digest)] {
        assert!(open.check(&forged, &once).await.expect("answers").is_allowed(), "{name}");
    }
}

#[tokio::test]
async fn short_secret_is_rejected() {
    let server = RedisServer::shared();
    for secret in [&b""[..], &[7; 15]] {
        for error in [
            builder_for(server).hash_keys(secret).build().expect_err("too short"),
            builder_for(server).hash_keys(secret).connect().await.expect_err("too short"),
            Limiter::builder().hash_keys(secret).build().expect_err("too short, even though memory does not use it"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("at least 16 bytes"), "{error}");
        }
    }
    assert!(builder_for(server).hash_keys([7; 16]).connect().await.is_ok());
}

/// A sorted set that other programs share is named by the plain key, which `hash_keys` forbids.
#[tokio::test]
async fn shared_sorted_set_is_rejected() {
    let server = RedisServer::start();
    let set = limit("5/10s").with_layout(Layout::Zset).expect("a sliding window");
    let builder = || builder_for(&server).hash_keys(SECRET).on_error(OnError::Raise);
    let error = builder().rule("getId", Rule::new().limit(set)).build().expect_err("cannot be both");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`hash_keys`"), "{error}");

    let limiter = builder().connect().await.expect("connects");
    let (alice, compact) = (user("alice"), limit("5/10s"));
    for requests in [&[(&alice, &set, 1)][..], &[(&alice, &compact, 1), (&alice, &set, 1)]] {
        let error = limiter.check_all(requests).await.expect_err("cannot be both");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("`hash_keys`") && !error.is_transient(), "{error}");
    }
    assert_eq!(limiter.reset(&alice, &set).await.expect_err("neither").kind(), ErrorKind::Config);
    assert_eq!(server.keys(), [""; 0]);
    assert!(limiter.check(&alice, &compact).await.expect("answers").is_allowed(), "other limits are unaffected");

    // With the default policy the standby limiter decides, as for any other failure.
    let limiter = builder().on_error(OnError::Standby).connect().await.expect("connects");
    let allowed = limiter.check(&alice, &set).await.expect("a decision").into_result().expect("room");
    assert_eq!(allowed.source(), Source::Standby);
}

#[tokio::test]
async fn limiter_in_memory_ignores_the_secret() {
    let limiter = Limiter::builder().hash_keys(SECRET).build().expect("in memory");
    let once = limit("1/1h");
    assert!(limiter.check(&user("alice"), &once).await.expect("answers").is_allowed());
    assert!(limiter.check(&user("alice"), &once).await.expect("answers").is_denied());
    assert!(limiter.check(&user("bob"), &once).await.expect("answers").is_allowed());
}

/// The slot is that of the digest, so no call is redirected.
#[tokio::test]
async fn cluster_slot_is_that_of_the_digest() {
    let cluster = Cluster::builder().masters_only().start();
    let builder = || Limiter::builder().url(cluster.url()).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    let limiter = builder().hash_keys(SECRET).connect().await.expect("connects");
    let limit = limit("2/1h");
    let keys: Vec<_> = (0..60).map(|number| key(&format!("k{number}"))).collect();
    for round in 0..3 {
        for key in &keys {
            assert_eq!(limiter.check(key, &limit).await.expect("answers").is_allowed(), round < 2);
        }
    }
    for pair in keys.chunks(2) {
        let both = limiter.check_all(&[(&pair[0], &limit, 1), (&pair[1], &limit, 1)]).await.expect("answers");
        assert!(both.is_denied());
    }
    let mut names = 0;
    for master in cluster.masters() {
        let server = cluster.server(master);
        names += server.keys_with("rl:{+").len();
        assert_eq!(server.info("errorstats").get("errorstat_MOVED"), None);
    }
    assert_eq!(names, keys.len());
}
