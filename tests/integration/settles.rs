//! Settlements: an allowed call counts what it cost, once that is known.

use std::time::Duration;

use limiter_testkit::{Cluster, Random, RedisServer, full_or};
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{
    Allowed, Decision, Denied, ErrorKind, Key, Layout, Limit, Limiter, Mode, OnError, Permit, Rule, RuleSet, Source,
    Usage, rate_limited,
};

use crate::cluster;
use crate::support::{Subject, builder_for, key, limit, unpacked_limit};

mod outages;

pub(crate) async fn take(limiter: &Limiter, key: &Key, limit: &Limit, cost: u32) -> Allowed {
    limiter.check_n(key, limit, cost).await.expect("a decision").into_result().expect("allowed")
}

pub(crate) async fn left(limiter: &Limiter, key: &Key, limit: &Limit) -> u32 {
    limiter.peek(key, limit).await.expect("a decision").remaining()
}

/// The numbers of a usage.
fn numbers(usage: &Usage) -> (u32, u32, u32, Duration) {
    (usage.remaining(), usage.overdrawn(), usage.uncounted(), usage.reset_after())
}

/// The numbers of a decision, and whether it is allowed.
fn seen(decision: &Decision) -> (bool, u32, Duration, Option<Duration>) {
    let retry_after = match decision {
        Decision::Denied(denied) if !denied.is_final() => Some(denied.retry_after()),
        _ => None,
    };
    (decision.is_allowed(), decision.remaining(), decision.reset_after(), retry_after)
}

/// A call on each store.
struct Held([Allowed; 2]);

/// Runs the same random operations on both stores. Each must see the same numbers.
async fn assert_stores_agree(redis: Subject, algorithm: Algorithm, layout: Layout) {
    let memory = Subject::memory().await;
    for subject in [&memory, &redis] {
        subject.clock.advance(Duration::from_micros(1_000_000_000 - subject.now_us() % 1_000_000_000));
    }
    let subjects = [&memory, &redis];
    let mut random = Random::new(u64::from(algorithm as u8) + 11);
    let mut held: Vec<Held> = Vec::new();
    for round in 0..full_or(4_000, 700) {
        let pause = Duration::from_micros(match random.below(10) {
            0 => random.below(900_000),
            1..=6 => random.below(60_000),
            _ => 0,
        });
        memory.clock.advance(pause);
        redis.clock.advance(pause);
        let mut between = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let keys = [key(["a", "b"][between(0, 1) as usize]), key("c")];
        let limits = [limit("12/400ms"), limit("9/400ms")].map(|limit| {
            let limit = limit.with_algorithm(algorithm);
            match algorithm {
                TokenBucket | LeakyBucket => limit.with_burst(8).expect("a bucket"),
                SlidingWindow => limit.with_layout(layout).expect("a sliding window"),
                _ => limit,
            }
        });
        let cost = between(0, 6);
        let is_of_two = between(0, 2) == 0;
        let operation = between(0, 9);
        let mut results = Vec::new();
        match operation {
            0..=4 => {
                let mut allowed = Vec::new();
                for subject in subjects {
                    let requests = [(&keys[0], &limits[0], cost), (&keys[1], &limits[1], cost / 2)];
                    let requests = if is_of_two { &requests[..] } else { &requests[..1] };
                    let decision = subject.limiter.check_all(requests).await.expect("a decision");
                    results.push(format!("{:?}", seen(&decision)));
                    allowed.extend(decision.into_result().ok());
                }
                if let Ok(allowed) = <[Allowed; 2]>::try_from(allowed) {
                    held.push(Held(allowed));
                }
            }
            5..=8 if !held.is_empty() => {
                let index = between(0, u64::try_from(held.len() - 1).expect("small")) as usize;
                let is_kept = between(0, 3) == 0;
                let actual = between(0, 9);
                for (subject, allowed) in subjects.iter().zip(&held[index].0) {
                    if operation == 8 {
                        subject.limiter.refund_n(allowed, actual).await.expect("a refund");
                        results.push(String::new());
                        continue;
                    }
                    let settled = subject.limiter.settle(allowed, actual).await;
                    results.push(format!("{:?}", settled.as_ref().map(numbers).map_err(rate_limited::Error::kind)));
                }
                if operation != 8 && !is_kept {
                    held.swap_remove(index);
                }
            }
            _ => {
                for subject in subjects {
                    let peeked = subject.limiter.peek(&keys[0], &limits[0]).await.expect("a decision");
                    results.push(format!("{:?}", seen(&peeked)));
                }
            }
        }
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "{algorithm:?}, round {round}, {operation}: {results:?}"
        );
    }
}

macro_rules! stores_agree {
    ($($test:ident: $algorithm:ident),+ $(,)?) => {
        $(#[tokio::test] async fn $test() {
            assert_stores_agree(Subject::redis().await, $algorithm, Layout::Compact).await;
        })+
    };
}

stores_agree! {
    stores_agree_on_a_sliding_window: SlidingWindow,
    stores_agree_on_a_fixed_window: FixedWindow,
    stores_agree_on_a_sliding_counter: SlidingCounter,
    stores_agree_on_a_token_bucket: TokenBucket,
    stores_agree_on_a_leaky_bucket: LeakyBucket,
}

#[tokio::test]
async fn stores_agree_on_a_sorted_set() {
    assert_stores_agree(Subject::zset().await, SlidingWindow, Layout::Zset).await;
}

#[tokio::test]
async fn a_settled_call_counts_its_cost_and_is_settled_once() {
    for subject in [Subject::memory().await, Subject::redis().await, Subject::zset().await] {
        let (limiter, limit) = (&subject.limiter, subject.limit("10/10s"));
        for (actual, remaining, overdrawn) in [(2, 8, 0), (5, 5, 0), (7, 3, 0), (10, 0, 0), (13, 0, 3), (0, 10, 0)] {
            let key = key("actual:").part(actual);
            let allowed = take(limiter, &key, &limit, 5).await;
            let usage = limiter.settle(&allowed, actual).await.expect("settled");
            assert_eq!(
                (usage.remaining(), usage.overdrawn(), usage.uncounted()),
                (remaining, overdrawn, 0),
                "{actual}"
            );
            assert_eq!((usage.source(), usage.limit()), (Source::Store, limit));
            let again = limiter.settle(&allowed.clone(), 9).await.expect_err("settled before");
            assert_eq!(again.kind(), ErrorKind::Settled);
            limiter.refund(&allowed).await.expect("nothing to refund");
            assert_eq!(left(limiter, &key, &limit).await, remaining, "{actual}");
        }
    }
}

#[tokio::test]
async fn a_settlement_starts_from_what_the_call_still_holds() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit) = (&subject.limiter, limit("10/10s"));
        for (refunded, actual) in [(2, 1), (2, 3), (2, 6), (9, 4), (9, 0)] {
            let key = key("refunded:").part(refunded).part(actual);
            let allowed = take(limiter, &key, &limit, 5).await;
            limiter.refund_n(&allowed, refunded).await.expect("refunded");
            let usage = limiter.settle(&allowed, actual).await.expect("settled");
            assert_eq!(usage.remaining(), 10 - actual, "{refunded}, {actual}");
        }
        let free = take(limiter, &key("free"), &limit, 0).await;
        assert_eq!(limiter.settle(&free, 4).await.expect("settled").remaining(), 6, "a cost of 0");
    }
}

#[tokio::test]
async fn requests_are_settled_each_or_by_rule() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, calls, tokens) = (&subject.limiter, limit("10/10s"), limit("1000/1m"));
        let (org, user) = (key("org"), key("user"));
        let rules = [("calls", &org, &calls, 1), ("tokens", &org, &tokens, 500), ("own", &user, &tokens, 500)];
        let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
        let usage = limiter.settle_rule(&allowed, "tokens", 620).await.expect("settled");
        assert_eq!((usage.remaining(), usage.limit()), (380, tokens));
        let again = limiter.settle_rule(&allowed, "tokens", 1).await.expect_err("settled before");
        assert_eq!(again.kind(), ErrorKind::Settled);
        let unknown = limiter.settle_rule(&allowed, "a name that no call has had", 7).await.expect_err("no rule");
        assert_eq!(unknown.kind(), ErrorKind::Config);
        // The rest of the receipt is still there.
        limiter.refund_n(&allowed, 100).await.expect("refunded");
        assert_eq!(left(limiter, &user, &tokens).await, 600);
        assert_eq!((left(limiter, &org, &calls).await, left(limiter, &org, &tokens).await), (10, 380));
        limiter.settle(&allowed, 2).await.expect("settled");
        assert_eq!((left(limiter, &org, &calls).await, left(limiter, &org, &tokens).await), (8, 380));
        assert_eq!(left(limiter, &user, &tokens).await, 998);

        let requests = [(&key("first"), &calls, 4), (&key("second"), &tokens, 4)];
        let allowed = limiter.check_all(&requests).await.expect("a decision").into_result().expect("allowed");
        let wrong = limiter.settle_each(&allowed, &[1]).await.expect_err("two requests");
        assert_eq!(
            wrong.to_string(),
            "`actual` must have a number for each of the 2 requests, got 1: write one for each limit"
        );
        limiter.settle_each(&allowed, &[1, 9]).await.expect("settled");
        assert_eq!(
            (left(limiter, &key("first"), &calls).await, left(limiter, &key("second"), &tokens).await),
            (9, 991)
        );
    }
}

/// Two rules on one counter take the larger cost.
#[tokio::test]
async fn rules_on_one_counter_count_the_largest_of_their_costs() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit, key) = (&subject.limiter, limit("20/10s"), key("both"));
        let rules = [("a", &key, &limit, 5), ("b", &key, &limit, 3)];
        let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
        for (rule, actual, remaining) in [("a", 8, 12), ("b", 2, 12)] {
            limiter.settle_rule(&allowed, rule, actual).await.expect("settled");
            assert_eq!(left(limiter, &key, &limit).await, remaining, "{rule}");
        }
        let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
        limiter.settle_rule(&allowed, "a", 1).await.expect("settled");
        assert_eq!(left(limiter, &key, &limit).await, 9, "the other rule counts 3");
    }
}

/// The entry of the key is removed before the cost is known.
#[tokio::test]
async fn a_call_in_memory_that_outlives_its_window_is_charged() {
    let subject = Subject::memory().await;
    let (limiter, limit) = (&subject.limiter, limit("5/10s"));
    let long = "a key that is too long to be stored in place ".repeat(8);
    for name in ["short", "of more than twenty-two bytes", long.as_str()] {
        let user = Key::new("user:").part(name);
        for is_known in [false, true] {
            let calls = [take(limiter, &user, &limit, 1).await, take(limiter, &user, &limit, 1).await];
            subject.advance_millis(20_000);
            for other in 0..500 {
                take(limiter, &key("other:").part(other), &limit, 1).await;
            }
            if is_known {
                take(limiter, &user, &limit, 1).await;
            }
            let first = limiter.settle(&calls[0], 4).await.expect("settled");
            assert_eq!((first.uncounted(), first.remaining()), (0, 2 - u32::from(is_known)), "{name}");
            let usage = limiter.settle(&calls[1], 5).await.expect("settled");
            assert_eq!(usage.overdrawn(), 2 + u32::from(is_known), "{name}");
            assert_eq!(left(limiter, &user, &limit).await, 0, "{name}");
            let denied = limiter.check(&user, &limit).await.expect("a decision").into_result().expect_err("denied");
            assert_eq!(denied.retry_after(), Duration::from_secs(10), "{name}");
            subject.advance_millis(10_000);
            assert!(limiter.check(&user, &limit).await.expect("a decision").is_allowed());
            subject.advance_millis(10_000);
        }
    }
}

#[tokio::test]
async fn a_decision_that_counted_nothing_is_not_charged() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit) = (&subject.limiter, limit("5/10s"));
        for (mode, counted) in [(Mode::Enforce, 4), (Mode::Shadow, 4), (Mode::Off, 0)] {
            let key = key("mode:").part(mode.as_str());
            limiter.set_rules(RuleSet::new().rule("moded", Rule::new().mode(mode))).expect("valid");
            let allowed = limiter.named("moded").check_n(&key, &limit, 2).await.expect("a decision");
            let usage = limiter.settle(&allowed.into_result().expect("allowed"), 4).await.expect("settled");
            assert_eq!((usage.uncounted() > 0, usage.source() == Source::Mode), (counted == 0, counted == 0), "{mode}");
            assert_eq!(left(limiter, &key, &limit).await, 5 - counted, "{mode}");
        }
        // A rule in shadow mode that denied the call counts as under enforcement.
        let key = key("shadow");
        limiter.set_rules(RuleSet::new().rule("moded", Rule::new().mode(Mode::Shadow))).expect("valid");
        take(limiter, &key, &limit, 5).await;
        let allowed = limiter.named("moded").check(&key, &limit).await.expect("a decision");
        limiter.settle(&allowed.into_result().expect("allowed"), 4).await.expect("settled");
        let left = limiter.charge(&key, &limit, 0).await.expect("a level");
        assert_eq!(left.overdrawn(), 0);
    }
    let open = Limiter::builder().failing(ErrorKind::Unavailable).on_error(OnError::Open).build().expect("valid");
    let allowed = take(&open, &key("open"), &limit("5/10s"), 2).await;
    let usage = open.settle(&allowed, 4).await.expect("nothing was counted");
    assert_eq!((usage.uncounted(), usage.source()), (4, Source::Policy));
    let other = Limiter::memory();
    let foreign = take(&other, &key("a"), &limit("5/10s"), 2).await;
    assert_eq!(open.settle(&foreign, 4).await.expect_err("foreign").kind(), ErrorKind::Config);
    assert_eq!(other.settle_blocking(&foreign, 3).expect("settled").remaining(), 2, "its own limiter settles it");
}

#[tokio::test]
async fn calls_of_several_slots_are_settled_in_each() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = cluster::builder_for(&cluster).connect().await.expect("a cluster");
    let (keys, limit) = (cluster::key_per_master(&cluster), limit("5/366d"));
    let requests: Vec<_> = keys.iter().zip([2, 3, 4]).map(|(key, cost)| (key, &limit, cost)).collect();
    let allowed = limiter.check_all(&requests).await.expect("a decision").into_result().expect("allowed");
    let usage = limiter.settle_each(&allowed, &[1, 3, 7]).await.expect("settled");
    assert_eq!((usage.overdrawn(), usage.remaining()), (2, 0));
    for (key, remaining) in keys.iter().zip([4, 2, 0]) {
        assert_eq!(left(&limiter, key, &limit).await, remaining);
    }
}

/// What is above the permits of a lease comes from the lease, and what is below returns to it.
#[tokio::test]
async fn a_call_by_a_lease_is_settled_in_this_process() {
    let subject = Subject::with_builder(builder_for(RedisServer::timeless()).leases(true)).await;
    let (key, limit, limiter) = (key("leased"), limit("20000/10s"), &subject.limiter);
    let mut counted = 0;
    let mut sources = Vec::new();
    for round in 0..400 {
        let actual = round % 5;
        let allowed = take(limiter, &key, &limit, 2).await;
        let usage = limiter.settle(&allowed, actual).await.expect("settled");
        sources.push((allowed.source(), usage.source()));
        counted += actual;
    }
    assert!(sources.contains(&(Source::Lease, Source::Lease)), "{sources:?}");
    // The lease is over, so what is unused is back.
    subject.advance_millis(60);
    limiter.charge(&key, &limit, 0).await.expect("a level");
    subject.advance_millis(60);
    crate::deadlines::eventually("returned", async || {
        limiter.charge(&key, &limit, 0).await.expect("a level").remaining() == 20_000 - counted
    })
    .await;
}

/// A postpaid call needs one free permit and takes none.
#[tokio::test]
async fn a_postpaid_call_needs_a_permit_and_takes_none() {
    for subject in [Subject::memory().await, Subject::redis().await, Subject::zset().await] {
        let (limiter, limit, key) = (&subject.limiter, subject.limit("5/10s"), key("postpaid"));
        let mut calls = Vec::new();
        for _ in 0..7 {
            let decision = limiter.check_postpaid(&key, &limit).await.expect("a decision");
            assert_eq!(decision.remaining(), 5);
            calls.push(decision.into_result().expect("allowed"));
        }
        assert_eq!(limiter.settle(&calls[0], 4).await.expect("settled").remaining(), 1);
        assert!(limiter.check_postpaid(&key, &limit).await.expect("a decision").is_allowed());
        limiter.refund(&calls[1]).await.expect("nothing to refund");
        assert_eq!(limiter.settle(&calls[1], 3).await.expect("settled").overdrawn(), 2);
        let denied = limiter.check_postpaid(&key, &limit).await.expect("a decision").into_result();
        assert_eq!(denied.expect_err("denied").retry_after(), Duration::from_secs(10));
        let again = limiter.named("rule").check_postpaid(&key, &limit).await.expect("a decision");
        assert!(again.is_denied());
        subject.advance_millis(10_000);
        assert!(limiter.named("rule").check_postpaid(&key, &limit).await.expect("a decision").is_allowed());
        assert_eq!(left(limiter, &key, &limit).await, 5);
    }
}

#[tokio::test]
async fn a_rule_is_postpaid_by_its_settings() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit, key) = (&subject.limiter, limit("5/10s"), key("by-rule"));
        limiter.set_rules(RuleSet::new().rule("tokens", Rule::new().postpaid(true))).expect("valid");
        let in_force = limiter.rules().into_iter().find(|rule| rule.name() == "tokens").expect("it is in force");
        assert_eq!(in_force.postpaid(), Some(true));
        let rules = [("calls", &key, &limit, 1), ("tokens", &key, &limit, 400)];
        let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
        assert_eq!(left(limiter, &key, &limit).await, 4, "one counter counts the call alone");
        limiter.settle_rule(&allowed, "tokens", 4).await.expect("settled");
        assert_eq!(left(limiter, &key, &limit).await, 1, "of both rules the larger cost");
        let allowed = limiter.named("tokens").check_n(&key, &limit, 400).await.expect("a decision");
        limiter.settle(&allowed.into_result().expect("allowed"), 1).await.expect("settled");
        assert!(limiter.named("tokens").check(&key, &limit).await.expect("a decision").is_denied());
        for mode in [Mode::Off, Mode::Shadow] {
            limiter.set_rules(RuleSet::new().rule("tokens", Rule::new().postpaid(true).mode(mode))).expect("valid");
            assert!(limiter.named("tokens").check_postpaid(&key, &limit).await.expect("a decision").is_allowed());
        }
    }
}

/// Nothing could charge its calls afterwards, so each takes its cost.
#[tokio::test]
async fn a_function_that_settles_nothing_is_not_postpaid() {
    #[rate_limited(name = "tokens", key = "plain", limit = "2/10s", limiter = limiter.clone())]
    async fn plain(limiter: &Limiter) -> Result<(), Denied> {
        Ok(())
    }
    #[rate_limited(name = "tokens", key = "settled", limit = "2/10s", settle = |_| 0, limiter = limiter.clone())]
    async fn settled(limiter: &Limiter) -> Result<(), Denied> {
        Ok(())
    }
    #[rate_limited(name = "calls", key = "both", limit = "3/10s", limiter = limiter.clone())]
    #[rate_limited(name = "tokens", key = "both", limit = "2/20s", settle = |_| 0)]
    async fn both(limiter: &Limiter) -> Result<(), Denied> {
        Ok(())
    }
    for subject in [Subject::memory().await, Subject::redis().await] {
        let limiter = &subject.limiter;
        let postpaid = |rule: &str| RuleSet::new().rule(rule, Rule::new().postpaid(true));
        limiter.set_rules(postpaid("tokens")).expect("valid");
        let mut allowed = [0, 0];
        for _ in 0..5 {
            allowed[0] += u32::from(plain(limiter).await.is_ok());
            allowed[1] += u32::from(settled(limiter).await.is_ok());
        }
        assert_eq!(allowed, [2, 5]);
        // Each rule of a function has its own settlement.
        let mut allowed = 0;
        for _ in 0..5 {
            allowed += u32::from(both(limiter).await.is_ok());
        }
        assert_eq!(allowed, 3, "`tokens` takes nothing");
        subject.advance_millis(20_000);
        limiter.set_rules(postpaid("calls")).expect("valid");
        let mut remaining = Vec::new();
        for _ in 0..2 {
            both(limiter).await.expect("allowed");
            remaining.push(left(limiter, &Key::new("both"), &unpacked_limit("3/10s")).await);
        }
        assert_eq!(remaining, [2, 1], "nothing settles `calls`");
    }
}

#[tokio::test]
async fn a_rule_is_settled_by_a_name_that_the_decision_or_the_program_has() {
    #[rate_limited(name = "of a function", key = "other", limit = "2/10s")]
    async fn other() -> Result<(), Denied> {
        Ok(())
    }
    let (limiter, key, limit) = (Limiter::memory(), key("names"), limit("100/10s"));
    limiter.set_rules(RuleSet::new().rule("off", Rule::new().mode(Mode::Off))).expect("valid");
    let rules = [("calls", &key, &limit, 1), ("tokens", &key, &limit, 40), ("off", &key, &limit, 3)];
    let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
    for absent in ["off", "of a function"] {
        let usage = limiter.settle_rule(&allowed, absent, 9).await.expect("nothing to settle");
        assert_eq!((usage.uncounted(), usage.source()), (9, Source::Mode));
    }
    let error = limiter.settle_rule(&allowed, "tokns", 9).await.expect_err("misspelt");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("got `tokns` (is it `tokens`?)"), "{error}");
    assert_eq!(limiter.settle_rule(&allowed, "tokens", 30).await.expect("settled").remaining(), 70);
    other().await.expect("allowed");
    // In a trial of all rules in shadow mode, one that would be denied has no part in the decision.
    let small = "30/10s".parse().expect("a limit");
    limiter.set_rules(RuleSet::new().defaults(Rule::new().mode(Mode::Shadow))).expect("valid");
    let rules = [("trial of calls", &key, &limit, 1), ("trial of tokens", &key, &small, 40)];
    let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("in shadow mode");
    limiter.settle_rule(&allowed, "trial of tokens", 9).await.expect("nothing to settle");
}

#[tokio::test]
async fn the_usage_of_a_limit_is_read_and_nothing_is_counted() {
    for subject in [Subject::memory().await, Subject::redis().await, Subject::zset().await] {
        let (limiter, key, limit) = (&subject.limiter, key("usage"), subject.limit("5/10s"));
        assert_eq!(numbers(&limiter.usage(&key, &limit).await.expect("a level")), (5, 0, 0, Duration::ZERO));
        limiter.charge(&key, &limit, 7).await.expect("charged");
        for _ in 0..2 {
            let usage = limiter.usage(&key, &limit).await.expect("a level");
            assert_eq!(numbers(&usage), (0, 2, 0, Duration::from_secs(10)));
        }
    }
}

#[test]
fn a_flush_waits_for_settlements_in_the_background() {
    #[rate_limited(key = "{id}", limit = "1000/1h", cost = 10, permit = budget, limiter = limiter.clone())]
    fn call(limiter: &Limiter, id: &str) -> Result<Permit, Denied> {
        Ok(budget)
    }
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).build().expect("valid");
    let calls: Vec<_> = (0..20).map(|_| call(&limiter, "a").expect("allowed")).collect();
    server.pause();
    calls.iter().for_each(|call| call.settle_in_background(1));
    std::thread::scope(|scope| {
        let flush = scope.spawn(Limiter::flush_blocking);
        std::thread::sleep(Duration::from_millis(30));
        assert!(!flush.is_finished(), "no settlement is done");
        server.resume();
    });
    let limit = unpacked_limit("1000/1h");
    let remaining = limiter.peek_blocking(&Key::new("").part("a"), &limit).expect("a decision").remaining();
    assert_eq!(remaining, 980);
}

/// A permit that is dropped with its caller has been settled.
#[tokio::test]
async fn a_settlement_in_the_background_is_not_lost() {
    #[rate_limited(key = "{id}", limit = "20/10s", cost = 5, permit = budget, limiter = limiter.clone())]
    async fn stream(limiter: &Limiter, id: &str) -> Result<Permit, Denied> {
        Ok(budget)
    }
    for limiter in [&builder_for(RedisServer::shared()).build().expect("valid"), &Limiter::memory()] {
        let (id, limit) = ("a", unpacked_limit("20/10s"));
        let budget = stream(limiter, id).await.expect("allowed");
        assert_eq!(budget.remaining(), 15);
        budget.settle_in_background(9);
        drop(budget);
        let key = Key::new("").part(id);
        crate::deadlines::eventually("settled", async || left(limiter, &key, &limit).await == 11).await;
        let budget = stream(limiter, id).await.expect("allowed");
        let error = std::thread::scope(|scope| {
            scope.spawn(|| budget.settle_blocking(7).map(|usage| usage.remaining())).join().expect("no panic")
        });
        assert_eq!(error.expect("settled"), 4);
    }
}

/// Rules of one bucket with other limits: each charge has the room of its own.
#[tokio::test]
async fn charges_of_one_bucket_have_the_room_of_their_own_limits() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, key) = (&subject.limiter, key("bucket"));
        let [small, large] = ["5/10s", "100/10s"].map(|text| limit(text).with_algorithm(TokenBucket));
        let usage = limiter.charge_all(&[(&key, &small, 3), (&key, &large, 50)]).await.expect("a charge");
        assert_eq!((usage.uncounted(), usage.overdrawn()), (0, 48));
        let key = Key::new("settled");
        let requests = [(&key, &small, 1), (&key, &large, 2)];
        let allowed = limiter.check_all(&requests).await.expect("a decision").into_result().expect("allowed");
        let usage = limiter.settle_each(&allowed, &[1, 60]).await.expect("settled");
        assert_eq!((usage.uncounted(), usage.overdrawn()), (0, 56));
    }
}

/// A leased call of a rule in shadow mode belongs to its own rule.
#[tokio::test]
async fn rules_in_shadow_mode_are_settled_by_their_own_names() {
    let redis = Subject::with_builder(builder_for(RedisServer::timeless()).leases(true)).await;
    for subject in [Subject::memory().await, redis] {
        let (limiter, calls, tokens) = (&subject.limiter, limit("10/10s"), limit("20000/1m"));
        let org = key("org");
        limiter.set_rules(RuleSet::new().rule("tokens", Rule::new().mode(Mode::Shadow))).expect("valid");
        let mut counted = 0;
        for round in 0..300 {
            let calls_key = key("calls:").part(round);
            let rules = [("calls", &calls_key, &calls, 1), ("tokens", &org, &tokens, 5)];
            let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
            limiter.settle_rule(&allowed, "calls", 2).await.expect("settled");
            assert_eq!(left(limiter, &calls_key, &calls).await, 8);
            let usage = limiter.settle_rule(&allowed, "tokens", 7).await.expect("settled");
            assert_eq!((usage.uncounted(), usage.limit()), (0, tokens));
            assert_eq!(limiter.settle(&allowed, 1).await.expect_err("settled before").kind(), ErrorKind::Settled);
            counted += 7;
        }
        subject.advance_millis(60);
        crate::deadlines::eventually("returned", async || {
            limiter.charge(&org, &tokens, 0).await.expect("a level").remaining() == 20_000 - counted
        })
        .await;
    }
}

#[tokio::test]
async fn the_numbers_of_several_rules_are_refused() {
    let (limiter, key, limit) = (Limiter::memory(), key("a"), limit("10/10s"));
    let rules = [("a", &key, &limit, 1), ("b", &Key::new("b"), &limit, 1)];
    let allowed = limiter.check_rules(&rules).await.expect("a decision").into_result().expect("allowed");
    let error = limiter.settle_each(&allowed, &[1, 2]).await.expect_err("two rules");
    assert_eq!(error.kind(), ErrorKind::Config);
    limiter.settle(&allowed, 3).await.expect("nothing was settled");
}

/// A denial that this process remembers ends with a settlement that gives permits back.
#[tokio::test]
async fn a_settlement_forgets_denials() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit, key) = (&subject.limiter, limit("5/10s"), key("denied"));
        let allowed = take(limiter, &key, &limit, 5).await;
        for _ in 0..3 {
            assert!(limiter.check(&key, &limit).await.expect("a decision").is_denied());
        }
        limiter.settle(&allowed, 4).await.expect("settled");
        assert!(limiter.check(&key, &limit).await.expect("a decision").is_allowed());
    }
}
