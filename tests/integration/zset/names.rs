//! Tests of the names of sets in Redis.

use limiter_testkit::RedisServer;
use rate_limited::{Key, Limiter, Rule, rate_limited};

use super::{Spring, limit};
use crate::support::builder_for;

#[tokio::test]
async fn set_names_match_the_spring_system() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).prefix("unused").connect().await.expect("connects");
    let mut spring = Spring::connect(&server);
    for name in ["getId", "/api/order/{id}", "com.acme.Shop#buy(long, int)", "查询用户", "a b"] {
        assert!(spring.allows(name, 0, 60_000, 1));
        server.command(&["DEL", &format!("CurrentLimiter:{name}")]);
        assert!(limiter.check(&Key::new(name), &limit("1/1m")).await.expect("answers").is_allowed());
        assert!(!spring.allows(name, 0, 60_000, 1), "{name}");
        assert_eq!(server.keys(), [format!("CurrentLimiter:{name}")]);
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn values_in_keys_never_collide_with_plain_names() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    let long = Key::new("x".repeat(201));
    let keys = [Key::new("user:").part("{42}"), Key::new("user:@42"), Key::new("100%"), Key::new("")];
    for key in keys.iter().chain([&long]) {
        assert!(limiter.check(key, &limit("1/1m")).await.expect("answers").is_allowed());
        assert!(limiter.check(key, &limit("1/1m")).await.expect("answers").is_denied());
    }
    let names = server.keys();
    let short = ["+", "100%25", "user:%4042", "user:@%7B42%7D"];
    assert_eq!(names[..4], short.map(|name| format!("CurrentLimiter:{name}")));
    assert_eq!(names[4].len(), "CurrentLimiter:".len() + 200);
}

#[rate_limited(key = "getId", limit = "9/1m", limiter = limiter, fallback = false)]
async fn get_id(limiter: &Limiter) -> bool {
    true
}

/// The migration described in docs/spring.md.
#[tokio::test]
async fn rule_makes_an_annotated_function_share_the_spring_set() {
    let server = RedisServer::start();
    let limiter =
        builder_for(&server).rule("getId", Rule::new().limit(limit("2/1m"))).connect().await.expect("connects");
    let now = server.command(&["TIME"]).array().swap_remove(0).text();
    let now_ms: u64 = now.parse::<u64>().expect("seconds") * 1_000;
    assert!(Spring::connect(&server).allows("getId", now_ms, 60_000, 2));
    assert!(get_id(&limiter).await);
    assert!(!get_id(&limiter).await);
    assert!(!Spring::connect(&server).allows("getId", now_ms, 60_000, 2));
}
