//! Packed rules: many counts share one hash in Redis, and decide as counts with keys of their own do.

use std::time::Duration;

use limiter_testkit::{RedisServer, Reply, unique};
use rate_limited::{Builder, Decision, ErrorKind, Key, Limiter, ManualClock, OnError, Rule};

use crate::acl::documented_rules;
use crate::cluster::names_in;
use crate::deadlines::once_connected;
use crate::support::{builder_for, key, limit, unpacked_limit};

mod bad_input;
mod large;
mod lost;
mod servers;
mod sweeps;

const BUCKETS: u32 = 16_384;
const RULE: &str = "packed";

/// A packed rule with these limits.
fn packed(limits: &[&str]) -> Rule {
    limits.iter().fold(Rule::new().packed(BUCKETS), |rule, text| rule.limit(text.parse().expect("a limit")))
}

/// A builder that remembers no denials and raises errors.
fn strict(server: &RedisServer) -> Builder {
    builder_for(server).remember_denials(Duration::ZERO).on_error(OnError::Raise)
}

/// A limiter with a packed rule, and its clock.
async fn with_rule(server: &RedisServer, rule: Rule) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let builder = strict(server).rule(RULE, rule).clock(clock.clone());
    (builder.connect().await.expect("a server"), clock)
}

/// Makes one call. Returns the permits that remain, or `None` for a denial.
async fn take(limiter: &Limiter, key: &Key, cost: u32) -> Option<u32> {
    match limiter.named(RULE).check_n(key, &limit("1/1s"), cost).await.expect("a decision") {
        Decision::Allowed(allowed) => Some(allowed.remaining()),
        Decision::Denied(_) => None,
    }
}

/// The shared hashes of a server, and the other keys.
fn hashes_and_others(server: &RedisServer) -> (Vec<String>, Vec<String>) {
    server.all_keys().into_iter().partition(|key| key.contains('#'))
}

/// The only shared hash of a server.
fn hash(server: &RedisServer) -> String {
    let (mut hashes, _) = hashes_and_others(server);
    assert_eq!(hashes.len(), 1, "{hashes:?}");
    hashes.remove(0)
}

/// The length of the value of each field.
fn value_lengths(server: &RedisServer, hash: &str) -> Vec<i64> {
    let Reply::Array(fields) = server.command(&["HKEYS", hash]) else { panic!("a hash") };
    let mut client = server.client().expect("connects");
    let length = |field: Reply| {
        let field = field.bytes();
        assert_eq!(field.len(), 16, "a field is a digest");
        client.call(&[b"HSTRLEN", hash.as_bytes(), &field]).expect("replies").integer()
    };
    fields.into_iter().map(length).collect()
}

/// Keys whose counts share one hash: all are in one slot, and a slot has one hash with the least number of them.
fn keys_of_one_hash() -> impl Iterator<Item = Key> {
    names_in(4711).map(|name| key(&name))
}

#[tokio::test]
async fn counts_share_hashes_that_expire() {
    const KEYS: u16 = 40;
    let server = RedisServer::start();
    let limiter = strict(&server).rule(RULE, packed(&["5/10s"])).connect().await.expect("a server");
    for key in keys_of_one_hash().take(KEYS.into()) {
        assert_eq!(take(&limiter, &key, 1).await, Some(4));
    }
    let hash = hash(&server);
    assert_eq!(server.command(&["HLEN", &hash]).integer(), i64::from(KEYS));
    assert_eq!(server.all_keys(), [&*hash]);
    let left = server.pttl(&hash);
    assert!((9_000..=13_700).contains(&left), "no sooner than the last count, and not much later: {left}");
}

#[tokio::test]
async fn a_hash_lives_as_long_as_its_last_count() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["100/1h"])).await;
    let (key, hour, quarter) = (key("a"), 3_600_000, Duration::from_secs(901));
    assert_eq!(take(&limiter, &key, 1).await, Some(99));
    let hash = hash(&server);
    assert!(server.pttl(&hash) >= hour);
    assert_eq!(server.command(&["PEXPIRE", &hash, "5000"]).integer(), 1);
    clock.advance(quarter);
    assert_eq!(take(&limiter, &key, 1).await, Some(98));
    assert!(server.pttl(&hash) >= hour, "the first write of a count in a quarter of a window sees to an expiry");
    assert_eq!(server.command(&["PERSIST", &hash]).integer(), 1);
    clock.advance(quarter);
    assert_eq!(take(&limiter, &key, 1).await, Some(97));
    assert!(server.pttl(&hash) >= hour, "and so it does if there is none");
}

#[tokio::test]
async fn a_denial_and_a_peek_write_nothing() {
    let server = RedisServer::start();
    let (limiter, _) = with_rule(&server, packed(&["2/1h", "3/2h"])).await;
    let key = key("a");
    assert_eq!((take(&limiter, &key, 1).await, take(&limiter, &key, 1).await), (Some(1), Some(0)));
    let dumps = || {
        let (hashes, _) = hashes_and_others(&server);
        hashes.into_iter().map(|hash| (server.command(&["DUMP", &hash]).bytes(), hash)).collect::<Vec<_>>()
    };
    let before = dumps();
    assert_eq!(before.len(), 2, "one for each window");
    for _ in 0..20 {
        assert_eq!(take(&limiter, &key, 1).await, None);
        let peeked = limiter.named(RULE).peek(&key, &limit("1/1s")).await.expect("a decision");
        assert_eq!(peeked.remaining(), 0);
    }
    assert_eq!(dumps(), before);
}

#[tokio::test]
async fn a_log_that_grows_moves_out_and_returns() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["100/1h"])).await;
    let (long, short) = (key("a"), key("b"));
    assert_eq!(take(&limiter, &short, 1).await, Some(99));
    let mut lengths = Vec::new();
    for taken in 1..=40 {
        assert_eq!(take(&limiter, &long, 1).await, Some(100 - taken));
        clock.advance(Duration::from_millis(10));
        lengths.push(hashes_and_others(&server).1.len());
    }
    assert!(lengths[0] == 0 && lengths[39] == 1, "{lengths:?}");
    let (hashes, others) = hashes_and_others(&server);
    assert!(others[0].ends_with(":{a}1h/14"), "its own name: {others:?}");
    let marked = hashes.iter().flat_map(|hash| value_lengths(&server, hash)).filter(|length| *length == 7).count();
    assert_eq!(marked, 1, "a marker");
    assert!(hashes.iter().all(|hash| server.pttl(hash) >= server.pttl(&others[0])), "a marker outlives its key");
    // All of it has expired but the last few permits.
    clock.advance(Duration::from_secs(3600) - Duration::from_millis(30));
    assert_eq!(take(&limiter, &long, 1).await, Some(97));
    assert!(hashes_and_others(&server).1.is_empty(), "it has returned");
    assert_eq!(take(&limiter, &long, 97).await, Some(0));
    assert_eq!(take(&limiter, &long, 1).await, None);
}

#[tokio::test]
async fn refunds_and_resets_follow_a_log_that_has_moved_out() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["30/1h"])).await;
    let (key, any) = (key("a"), limit("1/1s"));
    let mut decisions = Vec::new();
    for _ in 0..18 {
        let decision = limiter.named(RULE).check(&key, &any).await.expect("a decision");
        decisions.push(decision.into_result().expect("a permit is free"));
        clock.advance(Duration::from_millis(10));
    }
    assert_eq!(hashes_and_others(&server).1.len(), 1);
    for (refunded, allowed) in (1..).zip(&decisions) {
        limiter.refund(allowed).await.expect("refunded");
        let left = limiter.named(RULE).peek(&key, &any).await.expect("a decision").remaining();
        assert_eq!(left, 12 + refunded);
    }
    assert!(hashes_and_others(&server).1.is_empty());
    for _ in 0..18 {
        assert!(take(&limiter, &key, 1).await.is_some());
        clock.advance(Duration::from_millis(10));
    }
    limiter.named(RULE).reset(&key, &any).await.expect("reset");
    assert_eq!(server.all_keys(), Vec::<String>::new());
    assert_eq!(take(&limiter, &key, 1).await, Some(29));
}

#[tokio::test]
async fn lone_calls_and_batches_count_together() {
    const TASKS: usize = 64;
    let server = RedisServer::start();
    let limiter = strict(&server).rule(RULE, packed(&["1000/1h"])).connect().await.expect("a server");
    let keys: Vec<_> = (0..4).map(|number| key(&format!("k{number}"))).collect();
    for taken in 1..=200 {
        // After some of them, callers write their commands themselves.
        assert_eq!(
            take(&limiter, &keys[taken % 4], 1).await,
            Some(1000 - u32::try_from(taken.div_ceil(4)).expect("small"))
        );
    }
    let calls = (0..TASKS).map(|number| take(&limiter, &keys[number % 4], 1));
    assert!(futures_util::future::join_all(calls).await.into_iter().all(|left| left.is_some()));
    for key in &keys {
        assert_eq!(take(&limiter, key, 0).await, Some(1000 - 50 - 16));
    }
}

#[tokio::test]
async fn all_limits_of_a_packed_rule_allow_or_none_takes() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["3/1s", "10/1h"])).await;
    let (key, plain) = (key("a"), limit("5/2h"));
    for left in [2, 1, 0] {
        assert_eq!(take(&limiter, &key, 1).await, Some(left));
    }
    assert_eq!(take(&limiter, &key, 1).await, None);
    clock.advance(Duration::from_secs(1));
    // With a count that has a key of its own.
    let limits = limiter.named(RULE).limits_for(&key, &plain).expect("valid");
    let requests = [(&key, &limits[1], 1), (&key, &plain, 5)];
    assert!(limiter.check_all(&requests).await.expect("a decision").is_allowed());
    assert!(limiter.check_all(&requests).await.expect("a decision").is_denied());
    assert_eq!(limiter.peek(&key, &limits[1]).await.expect("a decision").remaining(), 6);
}

#[tokio::test]
async fn a_receipt_of_a_packed_rule_is_used_once() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let builder = strict(&server).rule(RULE, packed(&["100/1h"])).receipt_secret([7; 32]).clock(clock.clone());
    let limiter = builder.connect().await.expect("a server");
    // A receipt returns permits only if the process has known the server for longer, in transit too.
    clock.advance(Duration::from_secs(1));
    let (key, any) = (key("a"), limit("1/1s"));
    let decision = limiter.named(RULE).check_n(&key, &any, 30).await.expect("a decision");
    let allowed = decision.into_result().expect("fits");
    let receipt = limiter.receipt(&key, &allowed).expect("a receipt");
    let receipt = receipt.to_string().parse().expect("its text");
    limiter.settle_receipt(&key, &receipt, 10).await.expect("used");
    assert_eq!(limiter.named(RULE).peek(&key, &any).await.expect("a decision").remaining(), 90);
    let again = limiter.settle_receipt(&key, &receipt, 20).await.expect_err("it was used");
    assert_eq!(again.kind(), ErrorKind::Settled);
    assert_eq!(limiter.named(RULE).peek(&key, &any).await.expect("a decision").remaining(), 90);
}

#[tokio::test]
async fn processes_with_another_number_of_hashes_count_apart() {
    let server = RedisServer::start();
    let prefix = unique("buckets");
    let limiter = async |rule: Rule| {
        let builder = strict(&server).prefix(&prefix).rule(RULE, rule.limit(unpacked_limit("5/1h")));
        builder.connect().await.expect("a server")
    };
    let key = key("a");
    for rule in [Rule::new(), Rule::new().packed(BUCKETS), Rule::new().packed(2 * BUCKETS)] {
        let limiter = limiter(rule).await;
        assert_eq!(take(&limiter, &key, 5).await, Some(0), "each place grants the quota once");
        assert_eq!(take(&limiter, &key, 1).await, None);
    }
}

#[tokio::test]
async fn documented_permissions_suffice_and_each_is_needed() {
    let server = RedisServer::builder().tcp().user_with_rules("app", "pw", "-@all").start();
    let url = server.url();
    let rules = documented_rules("packed");
    let run = async |rules: &[&str]| {
        assert_eq!(server.command(&[&["ACL", "SETUSER", "app", "reset", "on", ">pw"], rules].concat()).text(), "OK");
        server.command(&["FLUSHALL"]);
        once_connected(async || {
            let builder = Limiter::builder().url(&url).on_error(OnError::Raise).deadline(Duration::from_secs(5));
            let limiter = builder.rule(RULE, packed(&["1000/1h"])).presence(false).connect().await?;
            for number in 0..300 {
                // Some logs move out, and some writes sweep.
                let key = key(&format!("k{}", number % 8));
                let _ = limiter.named(RULE).check(&key, &limit("1/1s")).await?;
            }
            limiter.named(RULE).reset(&key("k0"), &limit("1/1s")).await?;
            limiter.named(RULE).reset(&key("unused"), &limit("1/1s")).await
        })
        .await
    };
    run(&rules).await.expect("they suffice");
    for rule in rules.iter().filter(|rule| rule.starts_with(['+', '~'])) {
        let others: Vec<_> = rules.iter().copied().filter(|other| other != rule).collect();
        let result = run(&others).await;
        // Without a sweep dead counts stay until their hash expires. Commands of other rules are not used here.
        let is_unused = ["+hrandfield", "+mget"].contains(rule);
        assert_eq!(result.is_ok(), is_unused, "{rule}: {result:?}");
        if let Err(error) = result {
            assert!(matches!(error.kind(), ErrorKind::Refused), "{rule}: {error}");
        }
        for key in server.all_keys() {
            assert!(server.pttl(&key) > 0, "without {rule}, {key} has an expiry");
        }
    }
}

/// A count that has moved out has a name of its own: the same key may have counts of other rules, each with its limit.
#[tokio::test]
async fn a_count_that_moves_out_and_returns_changes_no_other_count_of_its_key() {
    const RULES: [&str; 3] = ["plain", "packed", "packed into others"];
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let with_limit = || Rule::new().limit(unpacked_limit("10000/1h"));
    let builder = strict(&server).clock(clock.clone()).rule(RULES[0], with_limit());
    let builder = builder.rule(RULES[1], with_limit().packed(BUCKETS)).rule(RULES[2], with_limit().packed(2 * BUCKETS));
    let (limiter, key) = (builder.connect().await.expect("a server"), key("a"));
    let take = async |rule: usize, cost| {
        let decision = limiter.named(RULES[rule]).check_n(&key, &limit("1/1s"), cost).await.expect("a decision");
        decision.into_result().expect("a permit").remaining()
    };
    // Seven runs of more than 255 permits are too long for a field.
    for round in 1..=7 {
        let left = [take(0, 600).await, take(1, 300).await, take(2, 500).await];
        assert_eq!(left, [600, 300, 500].map(|cost| 10_000 - round * cost));
        clock.advance(Duration::from_millis(10));
    }
    assert_eq!(hashes_and_others(&server).1.len(), 3);
    limiter.named(RULES[1]).reset(&key, &limit("1/1s")).await.expect("a reset");
    assert_eq!(hashes_and_others(&server).1.len(), 2);
    assert_eq!([take(0, 1).await, take(1, 1).await, take(2, 1).await], [5_799, 9_999, 6_499]);
}
