//! Settlements while the store fails, and after it did.

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Algorithm, ErrorKind, Limiter, ManualClock, OnError, Rule, RuleSet, Source};

use super::{left, take};
use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, key, limit};

#[tokio::test]
async fn a_call_of_the_standby_limiter_is_settled_by_it() {
    let limiter = Limiter::failing(ErrorKind::Unavailable);
    let limit = limit("10/10s");
    for (actual, remaining, overdrawn) in [(2, 8, 0), (5, 5, 0), (13, 0, 3)] {
        let key = key("actual:").part(actual);
        let allowed = take(&limiter, &key, &limit, 5).await;
        assert_eq!(allowed.source(), Source::Standby);
        let usage = limiter.settle(&allowed, actual).await.expect("settled");
        assert_eq!((usage.remaining(), usage.overdrawn(), usage.source()), (remaining, overdrawn, Source::Standby));
        assert_eq!(limiter.settle(&allowed, 1).await.expect_err("settled before").kind(), ErrorKind::Settled);
    }
}

/// A server that restarts empty has lost the permits: it gives none back, and charges what is above.
#[tokio::test]
async fn permits_that_a_server_lost_are_not_given_back_and_more_is_charged() {
    let mut server = RedisServer::start();
    let clock = ManualClock::new();
    let builder = Limiter::builder().url(server.url()).prefix(unique("settles")).deadline(LONG_DEADLINE);
    let builder = builder.remember_denials(Duration::ZERO).clock(clock.clone()).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("a server");
    let limit = limit("20/10s");
    let (less, more) = (key("less"), key("more"));
    let calls = [take(&limiter, &less, &limit, 5).await, take(&limiter, &more, &limit, 5).await];
    server.restart();
    eventually("connected", async || limiter.charge(&key("probe"), &limit, 0).await.is_ok()).await;
    take(&limiter, &less, &limit, 3).await;
    limiter.settle(&calls[0], 1).await.expect("settled");
    let usage = limiter.settle(&calls[1], 9).await.expect("settled");
    assert_eq!(usage.remaining(), 16, "4 are above the 5 that the server has lost");
    let level = limiter.charge(&less, &limit, 0).await.expect("a level");
    assert_eq!(level.remaining(), 17, "permits of another call were given back");
}

/// The receipt is used up after a failure. What the call needed in addition counts in the standby limiter.
#[tokio::test]
async fn a_settlement_that_fails_counts_in_the_standby_limiter() {
    let mut server = RedisServer::start();
    let clock = ManualClock::new();
    let builder = Limiter::builder().url(server.url()).prefix(unique("settles")).deadline(LONG_DEADLINE);
    let limiter = builder.clock(clock.clone()).connect().await.expect("a server");
    let (key, limit) = (key("a"), limit("20/10s"));
    let calls = [take(&limiter, &key, &limit, 5).await, take(&limiter, &key, &limit, 5).await];
    server.kill();
    let usage = limiter.settle(&calls[0], 9).await.expect("the standby limiter");
    assert_eq!((usage.remaining(), usage.source()), (6, Source::Standby));
    assert_eq!(left(&limiter, &key, &limit).await, 6);
    assert!(limiter.settle(&calls[1], 2).await.expect_err("nothing is back").is_transient());
    assert_eq!(limiter.settle(&calls[1], 2).await.expect_err("used up").kind(), ErrorKind::Settled);
}

/// The policy of a rule holds for the settlement of its calls. What is only given back is an error, under every policy.
#[tokio::test]
async fn a_settlement_follows_the_policy_of_its_rule() {
    let mut server = RedisServer::start();
    let builder = Limiter::builder().url(server.url()).prefix(unique("settles")).deadline(LONG_DEADLINE);
    let limiter = builder.on_error(OnError::Raise).connect().await.expect("a server");
    let rules = RuleSet::new().rule("tokens", Rule::new().on_error(OnError::Standby));
    limiter.set_rules(rules).expect("valid");
    let (key, limit) = (key("a"), limit("20/1h"));
    let mut calls = Vec::new();
    for _ in 0..3 {
        let decision = limiter.named("tokens").check_n(&key, &limit, 5).await.expect("a decision");
        calls.push(decision.into_result().expect("allowed"));
    }
    server.kill();
    let usage = limiter.settle(&calls[0], 9).await.expect("the standby limiter");
    assert_eq!((usage.remaining(), usage.source()), (1, Source::Standby));
    assert!(limiter.settle(&calls[1], 2).await.expect_err("nothing is back").is_transient());
    limiter.settle_rule(&calls[2], "tokens", 5).await.expect("nothing changes");
    assert!(limiter.refund(&calls[1]).await.is_ok(), "it is used up");
}

/// The standby limiter counts what settled calls have cost, and not what they took.
#[tokio::test]
async fn the_mirror_counts_what_settled_calls_have_cost() {
    let mut server = RedisServer::start();
    let clock = ManualClock::new();
    let builder = Limiter::builder().url(server.url()).prefix(unique("settles")).deadline(LONG_DEADLINE);
    let limiter = builder.clock(clock.clone()).connect().await.expect("a server");
    let (key, limit) = (key("a"), limit("20/10s"));
    for actual in [9, 2] {
        let allowed = take(&limiter, &key, &limit, 5).await;
        let usage = limiter.settle(&allowed, actual).await.expect("settled");
        assert_eq!(usage.source(), Source::Store);
    }
    server.kill();
    let seen = limiter.peek(&key, &limit).await.expect("the standby limiter");
    assert_eq!((seen.remaining(), seen.source()), (9, Source::Standby));
}

/// A full bucket has no room for a part of a charge. The standby limiter counts the rest, of several limits of one key too.
#[tokio::test]
async fn the_mirror_counts_what_a_full_bucket_had_room_for() {
    let mut server = RedisServer::start();
    let builder = Limiter::builder().url(server.url()).prefix(unique("settles")).deadline(LONG_DEADLINE);
    let limiter = builder.clock(ManualClock::new()).connect().await.expect("a server");
    let (key, limit) = (key("a"), limit("5/10s").with_algorithm(Algorithm::TokenBucket));
    let usage = limiter.charge_all(&[(&key, &limit, 3), (&key, &limit, 50)]).await.expect("a charge");
    assert_eq!((usage.overdrawn(), usage.uncounted(), usage.source()), (5, 43, Source::Store));
    server.kill();
    let usage = limiter.charge(&key, &limit, 0).await.expect("the standby limiter");
    assert_eq!((usage.overdrawn(), usage.source()), (5, Source::Standby));
}
