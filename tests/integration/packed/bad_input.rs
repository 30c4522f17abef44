//! Settings that do not suit a packed rule, and hashes that others have changed.

use rate_limited::{Algorithm, KeyMatch, Layout, RuleSet};

use super::*;

fn problem(rule: Rule) -> String {
    Limiter::builder().url("memory:").rule("a", rule).build().expect_err("a mistake").to_string()
}

#[test]
fn a_wrong_number_of_hashes_names_the_nearest_ones() {
    for (number, fix) in [(0, "16384"), (1000, "16384"), (200_000, "131072 or 262144"), (u32::MAX, "1073741824")] {
        let expected = format!(
            "`packed` of the rule `a` must be a power of two from 16384 to 1073741824, got {number}: write {fix}"
        );
        assert_eq!(problem(Rule::new().packed(number)), expected);
    }
    let text = |number: &str| format!("[rules.a]\npacked = {number}\n").parse::<RuleSet>().map(|_| ());
    for (number, found, fix) in [
        ("0", "`0`", "16384"),
        ("8589934592", "`8589934592`", "1073741824"),
        ("200_000", "`200000`", "131072 or 262144"),
        ("-1", "`-1`", "one such as `262144`, without quotes"),
        ("\"262144\"", "`\"262144\"`", "one such as `262144`, without quotes"),
    ] {
        let expected = format!(
            "line 2, column 10: `packed` must be a power of two from 16384 to 1073741824, got {found}: write {fix}"
        );
        assert_eq!(text(number).expect_err("a mistake").to_string(), expected);
    }
    assert!(text("262144").is_ok() && text("16_384").is_ok());
}

#[test]
fn what_cannot_be_packed_is_a_mistake_of_the_rule() {
    let packed = || Rule::new().packed(BUCKETS);
    let cases = [
        (packed().limit(limit("5/1s").with_algorithm(Algorithm::TokenBucket)), "`token_bucket`"),
        (packed().limit(limit("5/1s")).algorithm(Algorithm::LeakyBucket), "`leaky_bucket`"),
        (packed().limit(limit("5 concurrent")), "`concurrent`"),
        (packed().limit(limit("5/1s")).limit(limit("5 concurrent")), "`concurrent`"),
        (packed().layout(Layout::Zset), "`layout = \"zset\"`"),
        (packed().block("10min".parse().expect("a block")), "`block`"),
    ];
    for (rule, other) in cases {
        let expected =
            format!("`packed` of the rule `a` must be left out with {other}, got {BUCKETS}: remove one of them");
        assert_eq!(problem(rule), expected);
    }
    let bucket = Rule::new().limit(limit("9/1s").with_algorithm(Algorithm::TokenBucket));
    let overridden = packed().limit(limit("5/1s")).overriding(KeyMatch::key(&key("a")), bucket);
    assert!(problem(overridden).contains("must be left out with `token_bucket` of an override"));
    let text = "[rules.a]\nlimit = \"5/s\"\npacked = 16384\nblock = \"1min\"\n".parse::<RuleSet>();
    let expected = "line 3, column 10: `packed` must be left out with `block`, got both: remove one of them";
    assert_eq!(text.expect_err("a mistake").to_string(), expected);
}

#[test]
fn levels_together_are_checked() {
    let builder = Limiter::builder().url("memory:").rule("a", Rule::new().limit(limit("5/1s")).packed(BUCKETS));
    let limiter = builder.build().expect("valid");
    let set = |rule: Rule| limiter.set_rules(RuleSet::new().rule("a", rule));
    assert!(set(Rule::new().algorithm(Algorithm::TokenBucket)).is_err());
    assert!(set(Rule::new().block("1min".parse().expect("a block"))).is_err());
    set(Rule::new().limit(limit("9/1s"))).expect("valid");
    assert_eq!(limiter.rules()[0].packed(), Some(BUCKETS));
}

#[tokio::test]
async fn a_store_in_memory_ignores_it() {
    let limiter = Limiter::builder().url("memory:").rule(RULE, packed(&["2/1h"])).build().expect("valid");
    let key = key("a");
    assert_eq!((take(&limiter, &key, 2).await, take(&limiter, &key, 1).await), (Some(0), None));
}

#[tokio::test]
async fn damaged_fields_and_keys_of_other_types_fail_their_calls_alone() {
    let server = RedisServer::start();
    let (limiter, _) = with_rule(&server, packed(&["5/1h"])).await;
    let (victim, other) = (key("a"), key("b"));
    let failure = async || {
        let result = limiter.named(RULE).check(&victim, &limit("1/1s")).await;
        result.expect_err("no decision").kind()
    };
    assert_eq!(take(&limiter, &victim, 1).await, Some(4));
    let hash = hash(&server);
    assert_eq!(take(&limiter, &other, 1).await, Some(4));
    let Reply::Array(fields) = server.command(&["HKEYS", &hash]) else { panic!("a hash") };
    let field = fields.into_iter().next().expect("one field").bytes();
    let mut client = server.client().expect("connects");
    for damage in [&b""[..], b"x", &[0; 7][..3], &[0; 8], &[9; 40], &[1; 200]] {
        client.call(&[b"HSET", hash.as_bytes(), &field, damage]).expect("set");
        assert_eq!(failure().await, ErrorKind::Protocol, "{damage:?}");
        assert_eq!(client.call(&[b"HGET", hash.as_bytes(), &field]).expect("a value").bytes(), damage, "it stays");
    }
    // A foreign field changes nothing.
    client.call(&[&b"HDEL"[..], hash.as_bytes(), &field]).expect("deleted");
    client.call(&[&b"HSET"[..], hash.as_bytes(), b"foreign", b"field"]).expect("set");
    assert_eq!(take(&limiter, &victim, 1).await, Some(4));
    assert_eq!(server.command(&["HGET", &hash, "foreign"]).text(), "field");
    // A key of another type.
    server.command(&["DEL", &hash]);
    server.command(&["SET", &hash, "a string"]);
    assert!(matches!(failure().await, ErrorKind::Protocol | ErrorKind::Refused));
    assert_eq!(take(&limiter, &other, 1).await, Some(3));
}

#[tokio::test]
async fn a_full_server_fails_only_calls_that_write() {
    let server = RedisServer::start();
    let (limiter, _) = with_rule(&server, packed(&["5/1h"])).await;
    let (full, free) = (key("full"), key("free"));
    assert_eq!(take(&limiter, &full, 5).await, Some(0));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let any = limit("1/1s");
    let (named, any) = (limiter.named(RULE), &any);
    let calls = [&full, &free, &full, &free].map(|key| named.check(key, any));
    let results = futures_util::future::join_all(calls).await;
    for (index, result) in results.into_iter().enumerate() {
        match (index % 2, result) {
            (0, Ok(Decision::Denied(_))) => {}
            (1, Err(error)) => assert_eq!(error.kind(), ErrorKind::OutOfMemory),
            (_, result) => panic!("call {index}: {result:?}"),
        }
    }
    // Alone, and as the first write of a batch: a refusal must not make the writes after it possible.
    let before = server.all_keys();
    let new: Vec<_> = (0..20).map(|number| key(&format!("new{number}"))).collect();
    for key in &new {
        assert_eq!(named.check(key, any).await.expect_err("no room").kind(), ErrorKind::OutOfMemory);
    }
    for result in futures_util::future::join_all(new.iter().map(|key| named.check(key, any))).await {
        assert_eq!(result.expect_err("no room").kind(), ErrorKind::OutOfMemory);
    }
    assert_eq!(server.all_keys(), before);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(take(&limiter, &free, 1).await, Some(4), "no permit was taken");
}

/// A log of the releases before 7 + 4 bytes a run: 8 bytes each, behind 11.
#[tokio::test]
async fn a_value_of_the_old_format_counts() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["5/1h"])).await;
    let key = key("a");
    assert_eq!(take(&limiter, &key, 1).await, Some(4));
    let hash = hash(&server);
    let field = server.command(&["HKEYS", &hash]).array().remove(0).bytes();
    let now = u64::try_from(clock.now().as_millis()).expect("a time of this age");
    let old = [&[1][..], &now.to_be_bytes()[2..], &[0; 4], &[0; 4], &3_u32.to_be_bytes()].concat();
    let mut client = server.client().expect("connects");
    client.call(&[&b"HSET"[..], hash.as_bytes(), &field, &old]).expect("set");
    assert_eq!((take(&limiter, &key, 1).await, take(&limiter, &key, 2).await), (Some(1), None));
    assert_eq!(hashes_and_others(&server).1, Vec::<String>::new());
    clock.advance(Duration::from_secs(3601));
    assert_eq!(take(&limiter, &key, 1).await, Some(4));
    assert_eq!(client.call(&[b"HGET", hash.as_bytes(), &field]).expect("a value").bytes()[0], 7, "of the new format");
}
