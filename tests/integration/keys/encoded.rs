//! Tests of keys as text: they address the counters of the keys that they were made from.

use limiter_testkit::{Cluster, RedisServer};
use rate_limited::{Algorithm, Key, Layout, Limiter, rate_limited};

use super::nasty_values;
use crate::algorithms::ALL_ALGORITHMS;
use crate::support::{LONG_DEADLINE, builder_for, unpacked_limit as limit};

const SECRET: [u8; 16] = [7; 16];

fn keys() -> impl Iterator<Item = Key> {
    nasty_values().into_iter().flat_map(|value| {
        [Key::new("user:").part(&value), Key::new(format!("user:{value}")), Key::new("").part(&value).text(":").part(1)]
    })
}

/// Asserts that `peek` and `reset` of the second key are about the counter of the first one.
async fn assert_same_counter(limiter: &Limiter, key: &Key, read: &Key) {
    let limit = limit("2/1h");
    let _taken = limiter.check(key, &limit).await.expect("answers");
    assert_eq!(limiter.peek(read, &limit).await.expect("answers").remaining(), 1);
    limiter.reset(read, &limit).await.expect("reset");
    assert_eq!(limiter.peek(key, &limit).await.expect("answers").remaining(), 2);
}

#[tokio::test]
async fn key_from_its_encoding_has_the_same_counter_on_every_store() {
    let server = RedisServer::start();
    let redis = builder_for(&server).connect().await.expect("connects");
    for limiter in [Limiter::memory(), redis] {
        for key in keys() {
            let read = Key::from_encoded(&key.encoded()).expect("an encoding");
            assert_eq!(read, key);
            assert_same_counter(&limiter, &key, &read).await;
        }
    }
}

#[tokio::test]
async fn key_from_a_digest_of_a_secret_has_the_same_counter_in_redis() {
    let server = RedisServer::start();
    let with_secret = builder_for(&server).prefix("rl").hash_keys(SECRET).connect().await.expect("connects");
    let without = builder_for(&server).prefix("rl").connect().await.expect("connects");
    let limit = limit("2/1h");
    for key in keys() {
        let _taken = with_secret.check(&key, &limit).await.expect("answers");
        let name = with_secret.store_key(&key, &limit).expect("a name");
        let read = Key::from_encoded(name.split(['{', '}']).nth(1).expect("a hash tag")).expect("an encoding");
        for limiter in [&with_secret, &without] {
            assert_eq!(limiter.store_key(&read, &limit).as_ref(), Some(&name));
            assert_eq!(limiter.peek(&read, &limit).await.expect("answers").remaining(), 1);
        }
        without.reset(&read, &limit).await.expect("reset");
        assert_eq!(with_secret.peek(&key, &limit).await.expect("answers").remaining(), 2);
        assert_ne!(read, key, "without the secret it is another key");
    }
    assert_eq!(server.keys(), [""; 0]);
}

/// The name is that of the limiter's own commands.
#[tokio::test]
async fn name_of_a_key_is_the_one_in_redis() {
    let server = RedisServer::start();
    let builder = || builder_for(&server).prefix("shop:1");
    let plain = builder().connect().await.expect("connects");
    let hashed = builder().hash_keys(SECRET).connect().await.expect("connects");
    let mut limits: Vec<_> = ALL_ALGORITHMS.map(|algorithm| limit("5/10m").with_algorithm(algorithm)).into();
    limits.push(limit("5/10m").with_layout(Layout::Zset).expect("a sliding window"));
    for key in [Key::new("getId"), Key::new("user: {").part("a@b"), Key::new("").part("é".repeat(100))] {
        for (limiter, limit) in limits.iter().flat_map(|limit| [(&plain, limit), (&hashed, limit)]) {
            let name = limiter.store_key(&key, limit);
            if std::ptr::eq(limiter, &hashed) && limit.layout() == Layout::Zset {
                assert_eq!(name, None, "there is no such key");
                continue;
            }
            let _taken = limiter.check(&key, limit).await.expect("answers");
            assert_eq!(server.keys(), [name.expect("a name")], "{limit:?}");
            limiter.reset(&key, limit).await.expect("reset");
        }
    }
    assert_eq!(Limiter::memory().store_key(&Key::new("getId"), &limits[0]), None);
    let misconfigured = Limiter::builder().url("redis+unix:///nowhere.sock").build().expect("a limiter");
    let name = misconfigured.store_key(&Key::new("getId"), &limit("5/10s").with_algorithm(Algorithm::TokenBucket));
    assert_eq!(name.as_deref(), Some("rl:{getId}t10s"), "no connection is needed");
}

#[tokio::test]
async fn name_of_a_key_is_the_one_in_a_cluster() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter =
        Limiter::builder().url(cluster.url()).prefix("shop").deadline(LONG_DEADLINE).connect().await.expect("connects");
    let mut names = Vec::new();
    for number in 0..20 {
        let key = Key::new("user:").part(number);
        let _taken = limiter.check(&key, &limit("5/10m")).await.expect("answers");
        names.push(limiter.store_key(&key, &limit("5/10m")).expect("a name"));
    }
    let mut stored: Vec<_> =
        cluster.masters().iter().flat_map(|master| cluster.server(*master).keys_with("shop:")).collect();
    stored.sort();
    names.sort();
    assert_eq!(stored, names);
}

/// Calls an annotated function, and asserts that the key from its template has used up its permit.
macro_rules! assert_template {
    ($template:literal, $name:ident: $type:ty = $value:expr, $names:expr) => {{
        #[rate_limited(key = $template, limit = "1/1h", fallback = false)]
        fn limited($name: $type) -> bool {
            let _ = &$name;
            true
        }
        let limiter = Limiter::memory();
        assert!(limiter.scope_sync(|| limited($value)), "{}", $template);
        let key = Key::from_template($template, $names).expect($template);
        let once = limit("1/1h");
        assert!(limiter.peek_blocking(&key, &once).expect("answers").is_denied(), "{}", $template);
        limiter.reset_blocking(&key, &once).expect("reset");
        assert!(limiter.scope_sync(|| limited($value)), "{}", $template);
    }};
}

/// The attribute has a parser of its own.
#[test]
fn key_from_a_template_is_that_of_the_attribute() {
    struct User {
        id: u64,
        tenant: (String, u8),
    }
    let user = || User { id: 7, tenant: ("a@{b}".to_owned(), 3) };
    assert_template!("user:{user_id}", user_id: u64 = 42, [("user_id", 42)]);
    assert_template!("{ user_id }", user_id: &str = "a b/:", [("user_id", "a b/:")]);
    assert_template!("a{{{user_id:}}}b", user_id: u64 = 42, [("user_id", 42)]);
    assert_template!("{{user_id}}", user_id: u64 = 42, [("", ""); 0]);
    assert_template!("getId @{{", user_id: u64 = 42, [("", ""); 0]);
    assert_template!("{é}é", é: &str = "", [("é", "")]);
    assert_template!("{user.id}", user: User = user(), [("user.id", "7")]);
    assert_template!(
        "{user.tenant.1}{user.id}/{user.tenant.0}!{user.id}",
        user: User = user(),
        [("user.id", "7"), ("user.tenant.0", "a@{b}"), ("user.tenant.1", "3")]
    );
    assert_template!("{r#type}", r#type: u8 = 1, [("r#type", 1)]);
}
