//! Receipts that travel: a call is settled once, by any process.

use std::time::Duration;

use limiter_testkit::{Cluster, Random, RedisServer, full_or, unique};
use rate_limited::Algorithm::{FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{
    Allowed, Builder, Error, ErrorKind, Key, Layout, Limit, Limiter, ManualClock, Mode, OnError, Receipt, Rule,
    RuleSet, Source, Usage,
};

use crate::cluster;
use crate::deadlines::eventually;
use crate::settles::{left, take};
use crate::support::{LONG_DEADLINE, builder_for, key, limit};

mod outages;
mod processes;

const SECRET: [u8; 32] = [7; 32];

/// Two limiters with connections of their own, which share a secret. Neither caches denials.
///
/// Their clock stands still: no time passes while a call is on its way. It moves once both are connected.
struct Pair {
    one: Limiter,
    other: Limiter,
    clock: ManualClock,
}

impl Pair {
    async fn of(builder: impl Fn() -> Builder) -> Self {
        let (clock, prefix) = (ManualClock::new(), unique("receipts"));
        let [one, other] = [(); 2].map(|()| builder().prefix(&prefix));
        let pair = Self { one: connect(one, &clock).await, other: connect(other, &clock).await, clock };
        pair.pass();
        pair
    }

    /// Lets a millisecond pass, once all connections are made.
    fn pass(&self) {
        self.clock.advance(Duration::from_millis(1));
    }
}

/// A limiter of a pair.
async fn connect(builder: Builder, clock: &ManualClock) -> Limiter {
    let builder = builder.receipt_secret(SECRET).remember_denials(Duration::ZERO).deadline(LONG_DEADLINE);
    builder.on_error(OnError::Raise).clock(clock.clone()).connect().await.expect("a server")
}

/// The receipt as another process reads it.
fn receipt(limiter: &Limiter, key: &Key, allowed: &Allowed) -> Receipt {
    limiter.receipt(key, allowed).expect("a receipt").to_string().parse().expect("its text")
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn limits(text: &str) -> Vec<Limit> {
    let limit = limit(text);
    let buckets = [TokenBucket, LeakyBucket].map(|algorithm| limit.with_algorithm(algorithm));
    let windows = [SlidingWindow, FixedWindow, SlidingCounter].map(|algorithm| limit.with_algorithm(algorithm));
    let zset = limit.with_layout(Layout::Zset).expect("a sliding window");
    buckets.into_iter().chain(windows).chain([zset]).collect()
}

#[tokio::test]
async fn a_receipt_settles_a_call_once_in_any_process() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    for (index, limit) in limits("10/1h").into_iter().enumerate() {
        for actual in [0, 2, 5, 8, 13] {
            let key = key("call:").part(index).part(actual);
            // The start of the windows and the level of a bucket before the call.
            let (allowed, local) = (take(&one, &key, &limit, 5).await, key.clone().text("local"));
            let expected = {
                let allowed = take(&one, &local, &limit, 5).await;
                one.settle(&allowed, actual).await.expect("settled")
            };
            let receipt = receipt(&one, &key, &allowed);
            assert_eq!(kind(one.receipt(&key, &allowed)), Some(ErrorKind::Settled), "one receipt for a call");
            assert_eq!(kind(one.settle(&allowed, 0).await), Some(ErrorKind::Settled), "the receipt has the permits");
            one.refund(&allowed).await.expect("nothing to refund");
            let usage = other.settle_receipt(&key, &receipt, actual).await.expect("settled");
            let numbers = |usage: &Usage| (usage.remaining(), usage.overdrawn(), usage.uncounted(), usage.limit());
            assert_eq!(numbers(&usage), numbers(&expected), "{limit:?}, {actual}");
            let before = left(&one, &key, &limit).await;
            for limiter in [&one, &other] {
                assert_eq!(kind(limiter.settle_receipt(&key, &receipt, 0).await), Some(ErrorKind::Settled));
                assert_eq!(kind(limiter.refund_receipt(&key, &receipt).await), Some(ErrorKind::Settled));
            }
            assert_eq!(left(&one, &key, &limit).await, before, "{limit:?}, {actual}");
        }
    }
}

#[tokio::test]
async fn a_limiter_in_memory_has_receipts_of_its_own() {
    let builder = || Limiter::builder().url("memory:").receipt_secret(SECRET);
    let (limiter, other) = (builder().build().expect("valid"), builder().build().expect("valid"));
    let (key, limit) = (key("a"), limit("10/10s"));
    for (actual, remaining) in [(2, 8), (5, 3), (7, 0)] {
        let allowed = take(&limiter, &key, &limit, 3).await;
        let receipt = receipt(&limiter, &key, &allowed);
        assert_eq!(kind(other.settle_receipt(&key, &receipt, 0).await), Some(ErrorKind::Config));
        let usage = limiter.settle_receipt(&key, &receipt, actual).await.expect("settled");
        assert_eq!(usage.remaining(), remaining);
        assert_eq!(kind(limiter.settle_receipt(&key, &receipt, 0).await), Some(ErrorKind::Settled));
        assert_eq!(left(&limiter, &key, &limit).await, remaining);
    }
}

#[tokio::test]
async fn a_receipt_is_of_one_key_and_the_other_keys_of_the_call_stay_as_they_are() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    let memory = Limiter::builder().url("memory:").receipt_secret(SECRET).build().expect("valid");
    for (one, other) in [(&one, &other), (&memory, &memory)] {
        let (user, org) = (key("user"), key("org"));
        let (minute, hour) = (limit("10/1m"), limit("100/1h"));
        let calls = [(&user, &minute, 2), (&org, &hour, 5), (&user, &hour, 3)];
        let allowed = one.check_all(&calls).await.expect("a decision").into_result().expect("allowed");
        let of_user = receipt(one, &user, &allowed);
        assert_eq!(kind(one.receipt(&key("else"), &allowed)), Some(ErrorKind::Config));
        assert_eq!(kind(other.settle_receipt(&org, &of_user, 0).await), Some(ErrorKind::Config), "another key");
        other.settle_receipt(&user, &of_user, 4).await.expect("settled");
        let left = async |key: &Key, limit: &Limit| left(one, key, limit).await;
        let used = [left(&user, &minute).await, left(&user, &hour).await, left(&org, &hour).await];
        assert_eq!(used, [6, 96, 95]);
        let of_org = receipt(one, &org, &allowed);
        other.refund_receipt(&org, &of_org).await.expect("refunded");
        assert_eq!([left(&user, &hour).await, left(&org, &hour).await], [96, 100]);
    }
}

#[tokio::test]
async fn requests_on_one_counter_are_settled_each() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    let (key, loose, strict) = (key("a"), limit("20/1h"), limit("15/1h"));
    let calls = [(&key, &loose, 2), (&key, &strict, 3)];
    let allowed = one.check_all(&calls).await.expect("a decision").into_result().expect("allowed");
    assert_eq!(left(&one, &key, &loose).await, 15);
    other.settle_receipt(&key, &receipt(&one, &key, &allowed), 4).await.expect("settled");
    assert_eq!(left(&one, &key, &loose).await, 12, "4 of each request");
}

#[tokio::test]
async fn a_receipt_that_cannot_be_used_says_why_and_counts_nothing() {
    let server = RedisServer::start();
    let Pair { one: limiter, other: foreign, clock } = Pair::of(|| builder_for(&server)).await;
    let (key, limit) = (key("a"), limit("10/10s").with_algorithm(FixedWindow));
    let allowed = take(&limiter, &key, &limit, 5).await;
    let used = receipt(&limiter, &key, &allowed);
    let text = used.to_string();
    for wrong in ["", "rl1-", &text[..text.len() - 2], &format!("{text}00"), &text.to_uppercase()] {
        assert_eq!(kind(wrong.parse::<Receipt>()), Some(ErrorKind::Config), "{wrong}");
    }
    let others = [
        builder_for(&server).receipt_secret([8; 32]).build().expect("valid"),
        builder_for(&server).receipt_secret(SECRET).build().expect("valid"),
        builder_for(&server).build().expect("valid"),
    ];
    for other in &others {
        assert_eq!(kind(other.refund_receipt(&key, &used).await), Some(ErrorKind::Config));
    }
    assert_eq!(kind(others[2].receipt(&key, &allowed)), Some(ErrorKind::Config), "no secret");
    assert_eq!(kind(foreign.receipt(&key, &allowed)), Some(ErrorKind::Config), "a foreign decision");
    assert_eq!(left(&limiter, &key, &limit).await, 5);
    // An hour, and a week.
    for pause in [3_599, 1, 7 * 24 * 3_600] {
        clock.advance(Duration::from_secs(pause));
        let error = limiter.settle_receipt(&key, &used, 9).await;
        assert_eq!(error.is_ok(), pause == 3_599, "{pause}");
        if pause != 3_599 {
            let error = error.expect_err("too old");
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains("an older one"), "{error}");
        }
    }
    assert_eq!(kind(Limiter::builder().receipt_secret([7; 15]).url("memory:").build()), Some(ErrorKind::Config));
}

#[tokio::test]
async fn the_receipt_of_a_call_that_counted_nothing_does_nothing() {
    let limiter = Limiter::builder().url("memory:").receipt_secret(SECRET);
    let limiter = limiter.rule("off", Rule::new().mode(Mode::Off)).declare("off").build();
    let (limiter, key, limit) = (limiter.expect("valid"), key("a"), limit("10/10s"));
    let allowed = limiter.named("off").check(&key, &limit).await.expect("a decision").into_result().expect("allowed");
    let of_nothing = receipt(&limiter, &key, &allowed);
    let usage = limiter.settle_receipt(&key, &of_nothing, 4).await.expect("nothing");
    assert_eq!((usage.source(), usage.uncounted()), (Source::Mode, 4));
    assert_eq!(left(&limiter, &key, &limit).await, 10);
    let postpaid = limiter.check_postpaid(&key, &limit).await.expect("a decision").into_result().expect("allowed");
    let usage = limiter.settle_receipt(&key, &receipt(&limiter, &key, &postpaid), 4).await.expect("settled");
    assert_eq!(usage.remaining(), 6, "nothing was taken, and the receipt names the counter");
}

/// Each receipt is used twice at once. To the permit, one use of each counts.
#[tokio::test]
async fn of_two_uses_at_once_one_counts() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    let (key, mut random) = (key("a"), Random::new(38));
    let limit = limit("4000000/1h").with_algorithm(FixedWindow);
    let mut counted: u32 = 0;
    for round in 0..full_or(10_000, 500) {
        let cost = u32::try_from(random.between(0, 300)).expect("small");
        let allowed = take(&one, &key, &limit, cost).await;
        let text = one.receipt(&key, &allowed).expect("a receipt").to_string();
        let actual = |random: &mut Random| u32::try_from(random.between(0, 390)).expect("small");
        let (first, second) = (actual(&mut random), actual(&mut random));
        let (one_copy, other_copy) = (text.parse().expect("its text"), text.parse().expect("its text"));
        let uses =
            tokio::join!(one.settle_receipt(&key, &one_copy, first), other.settle_receipt(&key, &other_copy, second));
        counted += match uses {
            (Ok(_), Err(error)) if error.kind() == ErrorKind::Settled => first,
            (Err(error), Ok(_)) if error.kind() == ErrorKind::Settled => second,
            uses => panic!("round {round}: {uses:?}"),
        };
        assert_eq!(left(&one, &key, &limit).await, 4_000_000 - counted, "round {round}");
    }
}

#[tokio::test]
async fn the_mark_of_a_receipt_expires_with_it() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    for (name, text, hours) in [("short", "10/10s", 1), ("long", "10/5h", 5)] {
        let (key, limit) = (key(name), limit(text));
        let allowed = take(&one, &key, &limit, 5).await;
        other.settle_receipt(&key, &receipt(&one, &key, &allowed), 5).await.expect("settled");
        let marks: Vec<_> = server.keys().into_iter().filter(|name| name.contains(":receipt:")).collect();
        let ttls = marks.iter().map(|mark| server.pttl(mark) / 1000);
        let longest = ttls.max().expect("a mark");
        assert!(longest <= hours * 3_600 && longest > hours * 3_600 - 120, "{longest} s");
    }
}

#[tokio::test]
async fn the_mark_of_a_receipt_is_in_the_slot_of_its_key() {
    let cluster = Cluster::start();
    let pair = Pair::of(|| cluster::builder_for(&cluster)).await;
    let Pair { one, other, .. } = &pair;
    let zset = limit("10/1h").with_layout(Layout::Zset).expect("a sliding window");
    for key in cluster::key_per_master(&cluster).iter().chain([&key("a {tag} b"), &key("a } b")]) {
        for limit in [limit("10/1h"), zset] {
            // Both are connected to the server of the key.
            left(one, key, &limit).await;
            left(other, key, &limit).await;
            pair.pass();
            let allowed = take(one, key, &limit, 5).await;
            if limit == zset && *key == Key::new("a } b") {
                let refused = one.receipt(key, &allowed);
                assert_eq!(kind(refused), Some(ErrorKind::Config), "no name of a mark is in the slot");
                assert_eq!(one.settle(&allowed, 7).await.expect("it is still its own").remaining(), 3);
                continue;
            }
            let receipt = receipt(one, key, &allowed);
            assert_eq!(other.settle_receipt(key, &receipt, 7).await.expect("settled").remaining(), 3);
            assert_eq!(kind(other.settle_receipt(key, &receipt, 0).await), Some(ErrorKind::Settled));
            assert_eq!(left(one, key, &limit).await, 3);
        }
    }
}

/// The future of a settlement may be dropped. The receipt can be used again, and counts once.
#[tokio::test]
async fn a_use_that_fails_can_be_repeated() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    let (key, limit) = (key("a"), limit("10/1h"));
    let allowed = take(&one, &key, &limit, 5).await;
    let receipt = receipt(&one, &key, &allowed);
    let mut dropped = Box::pin(other.settle_receipt(&key, &receipt, 8));
    // On a busy machine the reply may be there after the first poll.
    let _ = std::future::poll_fn(|context| std::task::Poll::Ready(dropped.as_mut().poll(context).is_ready())).await;
    drop(dropped);
    let again = one.settle_receipt(&key, &receipt, 8).await;
    assert!(again.is_ok() || kind(again) == Some(ErrorKind::Settled));
    eventually("counted", async || left(&one, &key, &limit).await == 2).await;
    assert_eq!(kind(one.settle_receipt(&key, &receipt, 0).await), Some(ErrorKind::Settled));
    assert_eq!(left(&one, &key, &limit).await, 2);
}

/// A rule in shadow mode takes its permits at a time of its own. It must not keep what the others get back.
#[tokio::test]
async fn a_rule_in_shadow_mode_has_no_part_in_a_receipt() {
    let server = RedisServer::start();
    let Pair { one, other, .. } = Pair::of(|| builder_for(&server)).await;
    let own = Limiter::builder().receipt_secret(SECRET).build().expect("valid");
    for (one, other) in [(&one, &other), (&own, &own)] {
        one.set_rules(RuleSet::new().rule("trial", Rule::new().mode(Mode::Shadow))).expect("valid");
        let (key, budget, trial) = (key("org"), limit("1000/1h"), limit("20000/2h"));
        let rules = [("budget", &key, &budget, 500), ("trial", &key, &trial, 500)];
        let allowed = one.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
        let receipt = receipt(one, &key, &allowed);
        let usage = other.settle_receipt(&key, &receipt, 120).await.expect("settled");
        assert_eq!((usage.remaining(), usage.limit()), (880, budget));
        assert_eq!(left(one, &key, &trial).await, 19_500);
    }
}

/// Permits of the standby limiter are not given back: of two requests on one counter only what is above both is charged.
#[tokio::test]
async fn requests_of_one_limit_are_one_counter_of_a_receipt() {
    let limiter = Limiter::builder().failing(ErrorKind::Unavailable).receipt_secret(SECRET).build().expect("valid");
    let (key, limit) = (key("a"), limit("20/1h"));
    let requests = [(&key, &limit, 1), (&key, &limit, 5)];
    let allowed = limiter.check_all(&requests).await.expect("a decision").into_result().expect("allowed");
    assert_eq!(allowed.source(), Source::Standby);
    let text = receipt(&limiter, &key, &allowed).to_string();
    assert!(text.len() < receipt(&limiter, &key, &take(&limiter, &key, &limit, 1).await).to_string().len() + 2);
}
