//! Tests of promise 8 on Redis: each value has its own key, of bounded length, in the slot of its subject.

use limiter_testkit::RedisServer;
use rate_limited::{Key, Limiter, rate_limited};

use crate::support::{builder_for, unpacked_limit as limit};

mod encoded;
mod exposed;
mod hashed;

/// Constant keys are hashed with the random seed of the process. Unit tests have a fixed seed instead.
#[test]
fn constant_key_equals_the_key_of_its_text_in_memory() {
    #[rate_limited(key = "constant", limit = "1/h", fallback = false)]
    fn limited() -> bool {
        true
    }
    for _ in 0..3 {
        let limiter = Limiter::memory();
        assert!(limiter.scope_sync(limited));
        let same = limiter.check_blocking(&Key::new("constant"), &limit("1/h")).expect("answers");
        assert!(same.is_denied());
    }
}

/// Returns values that break naive encodings or naive stores.
fn nasty_values() -> Vec<String> {
    let mut values: Vec<String> =
        ["", " ", "a", "A", "a:b", "{", "}", "{}", "{a}", "}{", ":", "%", "%3A", "@", "+", "*", "?"]
            .into_iter()
            .chain([
                "\n", "\r\n", "\0", "\u{7f}", "é", "e\u{301}", "🦀", "a/b", "a b", "'", "\"", "`", "$(x)", "\\", "-",
                ".",
            ])
            .map(str::to_owned)
            .collect();
    for length in [100, 199, 200, 201, 300, 1_000_000] {
        values.push("x".repeat(length));
        values.push("x".repeat(length - 1) + "y");
    }
    values
}

async fn assert_each_value_has_its_own_quota(limiter: &Limiter) {
    let limit = limit("1/1m");
    let keys = nasty_values().into_iter().flat_map(|value| {
        [Key::new("user:").part(&value), Key::new(format!("user:{value}")), Key::new("user:").part(&value).part("")]
    });
    let mut seen = Vec::new();
    for key in keys {
        // "user:" as text and "user:" with an empty text appended are equal keys.
        let again = seen.contains(&key);
        let decision = limiter.check(&key, &limit).await.expect("any key works");
        assert_eq!(decision.is_allowed(), !again, "{:?}", seen.len());
        assert!(limiter.check(&key, &limit).await.expect("any key works").is_denied());
        seen.push(key);
    }
}

#[tokio::test]
async fn each_value_has_its_own_quota_in_memory() {
    assert_each_value_has_its_own_quota(&Limiter::memory()).await;
}

#[tokio::test]
async fn each_value_has_its_own_quota_on_redis() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).prefix("rl").connect().await.expect("connects");
    assert_each_value_has_its_own_quota(&limiter).await;
    let keys = server.keys();
    assert_eq!(keys.len(), nasty_values().len() * 3);
    for key in keys {
        assert!(key.len() <= 200 + "rl:{}1m".len(), "{} bytes: {key}", key.len());
        let (before, rest) = key.split_once('{').expect("a hash tag");
        let (subject, after) = rest.split_once('}').expect("a hash tag that ends");
        assert_eq!((before, after), ("rl:", "1m"), "{key}");
        assert!(!subject.is_empty());
        assert!(key.bytes().all(|byte| byte.is_ascii_graphic() && !b"*?[]$'\"`\\ &|;<>()".contains(&byte)), "{key}");
    }
}

#[tokio::test]
async fn names_in_redis_are_readable() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).prefix("shop").connect().await.expect("connects");
    for key in [Key::new("getId"), Key::new("user:").part(42), Key::new("").part("acme-inc").text("/").part("a@b")] {
        let _ = limiter.check(&key, &limit("5/10s")).await.expect("answers");
    }
    let mut keys = server.keys();
    keys.sort();
    assert_eq!(keys, ["shop:{@acme-inc@/@a%40b}10s", "shop:{getId}10s", "shop:{user:@42}10s"]);
}
