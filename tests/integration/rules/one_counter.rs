//! Tests of limits of one call's rules that use one counter: each is evaluated, and the call counts once.

use std::time::Duration;

use limiter_testkit::{LeakyBucketOracle, Oracle, Random, RedisServer, TokenBucketOracle};
use rate_limited::{
    Algorithm, Allowed, Builder, Decision, Denied, Key, Limit, Limiter, Mode, Rule, RuleSet, rate_limited,
};

use crate::support::{Subject, builder_for, key, limit, on_every_store, on_zset, unpacked_limit};

on_every_store! {
    the_smallest_limit_holds_and_is_used_up_in_any_order,
    the_largest_cost_is_taken,
    each_limit_is_evaluated_with_its_own_cost,
    a_refund_returns_each_permit_once,
    items_of_a_direct_call_add_up,
    windows_agree_with_an_oracle,
    token_buckets_agree_with_an_oracle,
    leaky_buckets_agree_with_an_oracle,
}

mod on_sorted_sets {
    use super::*;

    on_zset! { windows_agree_with_an_oracle, a_refund_returns_each_permit_once }
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingCounter,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Decides about a call under rules: the key, limit and cost of each.
async fn take(subject: &Subject, rules: &[(&Key, Limit, u32)]) -> Decision {
    let rules: Vec<_> = NAMES.iter().zip(rules).map(|(name, (key, limit, cost))| (*name, *key, limit, *cost)).collect();
    subject.limiter.check_rules(&rules).await.expect("the store answers")
}

pub(super) fn allowed(decision: Decision) -> Allowed {
    decision.into_result().expect("permits are left")
}

async fn the_smallest_limit_holds_and_is_used_up_in_any_order(subject: Subject) {
    for algorithm in ALGORITHMS {
        for order in [["5/1m", "10/1m"], ["10/1m", "5/1m"], ["5/1m", "5/1m"]] {
            let key = Key::new("order:").part(format!("{algorithm:?}{order:?}"));
            let limits = order.map(|text| limit(text).with_algorithm(algorithm));
            let mut admitted = 0;
            for _ in 0..20 {
                admitted += u32::from(take(&subject, &limits.map(|limit| (&key, limit, 1))).await.is_allowed());
            }
            let expected = if algorithm == Algorithm::LeakyBucket { 1 } else { 5 };
            assert_eq!(admitted, expected, "{algorithm:?} {order:?}");
        }
    }
}

async fn the_largest_cost_is_taken(subject: Subject) {
    let (key, [small, large]) = (key("a"), ["10/1m", "20/1m"].map(limit));
    let decision = take(&subject, &[(&key, small, 1), (&key, large, 3)]).await;
    assert_eq!((decision.limit(), decision.remaining()), (small, 7));
    assert_eq!(subject.limiter.peek(&key, &large).await.expect("the store answers").remaining(), 17);
}

async fn each_limit_is_evaluated_with_its_own_cost(subject: Subject) {
    let (key, [small, large]) = (key("a"), ["5/1m", "10/1m"].map(limit));
    // 3, 6: one more fits into the small limit before the second call.
    for remaining in [2, 0] {
        let decision = take(&subject, &[(&key, small, 1), (&key, large, 3)]).await;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
    }
    let denied = take(&subject, &[(&key, small, 1), (&key, large, 5)]).await.into_result().expect_err("6 are taken");
    assert_eq!((denied.limit(), denied.retry_after(), denied.name()), (small, Duration::from_secs(60), "a"));
    let denied = take(&subject, &[(&key, limit("20/1m"), 1), (&key, large, 5)]).await.into_result().expect_err("6");
    assert_eq!((denied.limit(), denied.remaining(), denied.name()), (large, 4, "b"));
}

async fn a_refund_returns_each_permit_once(subject: Subject) {
    let (key, [small, large]) = (key("a"), ["9/1m", "20/1m"].map(|text| subject.limit(text)));
    let left = async || subject.limiter.peek(&key, &large).await.expect("the store answers").remaining();
    let first = allowed(take(&subject, &[(&key, small, 1), (&key, large, 1)]).await);
    let second = allowed(take(&subject, &[(&key, small, 2), (&key, large, 5)]).await);
    assert_eq!(left().await, 14);
    for expected in [15, 15] {
        subject.limiter.refund(&first).await.expect("the store answers");
        assert_eq!(left().await, expected);
    }
    for expected in [17, 19, 20, 20] {
        subject.limiter.refund_n(&second, 2).await.expect("the store answers");
        assert_eq!(left().await, expected);
    }
}

async fn items_of_a_direct_call_add_up(subject: Subject) {
    let (key, [small, large]) = (key("a"), ["5/1m", "10/1m"].map(limit));
    let items = [(&key, &small, 1), (&key, &large, 1), (&key, &large, 1)];
    assert_eq!(subject.limiter.check_all(&items).await.expect("the store answers").remaining(), 2);
    assert_eq!(subject.limiter.named("a").check_all(&items[1..]).await.expect("the store answers").remaining(), 5);
    assert!(subject.limiter.check_all(&items).await.expect("the store answers").is_denied());
    let rules = [("a", &key, &large, 2), ("a", &key, &large, 1), ("b", &key, &large, 1)];
    assert_eq!(subject.limiter.check_rules(&rules).await.expect("the store answers").remaining(), 2);
}

/// The permits of a call on each key, their stamp and the receipt.
type Taken = (Vec<(usize, u32)>, u64, Allowed);

/// A random call: up to four rules on two keys.
fn random_call(random: &mut Random, mut random_limit: impl FnMut(&mut Random) -> Limit) -> Vec<(usize, Limit, u32)> {
    let mut below = |bound: u64| u32::try_from(random.below(bound)).expect("small");
    let sizes: Vec<_> = (0..=below(4)).map(|_| (usize::try_from(below(2)).expect("small"), below(4))).collect();
    sizes.into_iter().map(|(index, cost)| (index, random_limit(random), cost)).collect()
}

async fn windows_agree_with_an_oracle(subject: Subject) {
    const WINDOW: u64 = 400;
    let (mut random, mut now) = (Random::new(23), 0);
    let keys = [key("a"), key("b")];
    let mut oracles = [Oracle::new(), Oracle::new()];
    let mut receipts = Vec::<Taken>::new();
    for step in 0..1_500 {
        let pause = if random.below(3) == 0 { random.below(120) } else { 0 };
        now += pause;
        subject.advance_millis(pause);
        if random.below(6) == 0 && !receipts.is_empty() {
            let (taken, stamp, receipt) = receipts.swap_remove(0);
            subject.limiter.refund(&receipt).await.expect("the store answers");
            for (index, cost) in taken {
                oracles[index].refund(now, WINDOW, stamp, cost);
            }
        }
        let rules = random_call(&mut random, |random| subject.limit(&format!("{}/{WINDOW}ms", random.between(1, 9))));
        let decision =
            take(&subject, &rules.iter().map(|&(index, limit, cost)| (&keys[index], limit, cost)).collect::<Vec<_>>())
                .await;
        let verdicts: Vec<_> =
            rules.iter().map(|&(index, limit, cost)| oracles[index].peek(now, WINDOW, limit.max(), cost)).collect();
        let fits = verdicts.iter().all(|verdict| verdict.allowed);
        assert_eq!(decision.is_allowed(), fits, "step {step}: {rules:?}");
        match decision {
            Decision::Denied(denied) => {
                let waits: Option<Vec<_>> = verdicts.iter().map(|verdict| verdict.retry_after).collect();
                let wait = waits.and_then(|waits| waits.into_iter().max());
                assert_eq!(denied.retry_after(), wait.map_or(Denied::NEVER, Duration::from_millis), "step {step}");
                let denying = verdicts.iter().find(|verdict| !verdict.allowed).expect("it is denied");
                assert_eq!(denied.remaining(), denying.remaining, "step {step}");
            }
            Decision::Allowed(allowed) => {
                let taken: Vec<_> = (0..2).map(|index| (index, largest_cost(&rules, index))).collect();
                for &(index, cost) in &taken {
                    assert!(oracles[index].check(now, WINDOW, u32::MAX, cost).allowed);
                }
                let left = |&(index, limit, _): &(usize, Limit, u32)| oracles[index].peek(now, WINDOW, limit.max(), 0);
                assert_eq!(Some(allowed.remaining()), rules.iter().map(|rule| left(rule).remaining).min());
                receipts.push((taken, now, allowed));
            }
        }
    }
}

fn largest_cost(rules: &[(usize, Limit, u32)], index: usize) -> u32 {
    rules.iter().filter(|rule| rule.0 == index).map(|rule| rule.2).max().unwrap_or(0)
}

/// The largest cost and the smallest `max` of the rules on one key.
fn taken_on(rules: &[(usize, Limit, u32)], index: usize) -> Option<(u32, u32)> {
    let slowest = rules.iter().filter(|rule| rule.0 == index).map(|rule| rule.1.max()).min()?;
    Some((largest_cost(rules, index), slowest))
}

fn random_bucket(random: &mut Random, algorithm: Algorithm) -> Limit {
    let mut between = || u32::try_from(random.between(1, 9)).expect("small");
    let limit = Limit::new(between(), Duration::from_millis(700)).expect("a limit").with_algorithm(algorithm);
    limit.with_burst(between()).expect("a bucket")
}

async fn token_buckets_agree_with_an_oracle(subject: Subject) {
    const WINDOW: u64 = 700_000;
    let mut random = Random::new(24);
    let keys = [key("a"), key("b")];
    let mut oracles = [TokenBucketOracle::new(), TokenBucketOracle::new()];
    for step in 0..600 {
        if random.below(2) == 0 {
            subject.clock.advance(Duration::from_micros(random.below(90_000)));
        }
        let now = subject.now_us();
        let rules = random_call(&mut random, |random| random_bucket(random, Algorithm::TokenBucket));
        let decision =
            take(&subject, &rules.iter().map(|&(index, limit, cost)| (&keys[index], limit, cost)).collect::<Vec<_>>())
                .await;
        let verdict = |oracle: &TokenBucketOracle, limit: Limit, cost| {
            oracle.clone().check(now, WINDOW, (limit.max(), limit.burst()), cost)
        };
        let verdicts: Vec<_> =
            rules.iter().map(|&(index, limit, cost)| verdict(&oracles[index], limit, cost)).collect();
        assert_eq!(decision.is_allowed(), verdicts.iter().all(|verdict| verdict.allowed), "step {step}: {rules:?}");
        if decision.is_allowed() {
            for (index, oracle) in oracles.iter_mut().enumerate() {
                if let Some((cost, slowest)) = taken_on(&rules, index) {
                    assert!(oracle.check(now, WINDOW, (slowest, u32::MAX), cost).allowed);
                }
            }
            let left = rules.iter().map(|&(index, limit, _)| verdict(&oracles[index], limit, 0).remaining);
            assert_eq!(Some(decision.remaining()), left.min(), "step {step}: {rules:?}");
        } else {
            let waits: Option<Vec<_>> = verdicts.iter().map(|verdict| verdict.retry_after).collect();
            let wait = waits.and_then(|waits| waits.into_iter().max());
            let retry_after = decision.into_result().expect_err("denied").retry_after();
            assert_eq!(retry_after, wait.map_or(Denied::NEVER, Duration::from_micros), "step {step}: {rules:?}");
        }
    }
}

async fn leaky_buckets_agree_with_an_oracle(subject: Subject) {
    const WINDOW: u64 = 700_000;
    let mut random = Random::new(25);
    let keys = [key("a"), key("b")];
    let mut oracles = [LeakyBucketOracle::new(), LeakyBucketOracle::new()];
    for step in 0..600 {
        if random.below(2) == 0 {
            subject.clock.advance(Duration::from_micros(random.below(150_000)));
        }
        let now = subject.now_us();
        let rules = random_call(&mut random, |random| random_bucket(random, Algorithm::LeakyBucket));
        let decision =
            take(&subject, &rules.iter().map(|&(index, limit, cost)| (&keys[index], limit, cost)).collect::<Vec<_>>())
                .await;
        let verdict = |oracle: &LeakyBucketOracle, limit: Limit, cost| {
            oracle.clone().check(now, WINDOW, (limit.max(), limit.burst()), (cost, 0)).0
        };
        let fits = rules.iter().all(|&(index, limit, cost)| verdict(&oracles[index], limit, cost).allowed);
        assert_eq!(decision.is_allowed(), fits, "step {step}: {rules:?}");
        if fits {
            for (index, oracle) in oracles.iter_mut().enumerate() {
                if let Some((cost, slowest)) = taken_on(&rules, index) {
                    // A limit without a cost may be the slowest, and asks for no turn.
                    assert!(oracle.check(now, WINDOW, (slowest, u32::MAX), (cost, u64::MAX)).0.allowed);
                }
            }
        }
    }
}

#[rate_limited(key = "plan:{user}", limits = ["10/min", plan])]
async fn with_plan(user: u64, plan: Limit) -> Result<(), Denied> {
    let _ = (user, plan);
    Ok(())
}

#[rate_limited(key = "twice:{user}", limit = "10/min")]
#[rate_limited(key = "twice:{user}", limit = plan, name = "plan")]
async fn with_two_rules(user: u64, plan: Limit) -> Result<(), Denied> {
    let _ = (user, plan);
    Ok(())
}

#[tokio::test]
async fn attributes_of_one_function_count_once() {
    for builder in builders() {
        let limiter = builder.connect().await.expect("a store");
        limiter
            .scope(async {
                for user in 0..2 {
                    let (mut one, mut two) = (0, 0);
                    for _ in 0..20 {
                        one += u32::from(with_plan(user, limit("5/min")).await.is_ok());
                        two += u32::from(with_two_rules(user, limit("5/min")).await.is_ok());
                    }
                    assert_eq!((one, two), (5, 5));
                }
            })
            .await;
    }
}

#[tokio::test]
async fn limits_and_overrides_of_a_text_count_once() {
    const TEXT: &str = "
        [rules.x]
        key = 'x:{user}'
        limits = ['5/min', '10/min']
        [[rules.x.override]]
        match = { user = 'vip' }
        limits = ['30/min', '20/min', '7/s']
    ";
    for builder in builders() {
        let limiter = builder.rules(TEXT.parse().expect("rules")).connect().await.expect("a store");
        let default = unpacked_limit("100/min");
        for (user, expected) in [("a", 5), ("vip", 7)] {
            let (key, mut admitted) = (Key::new("x:").part(user), 0);
            for _ in 0..40 {
                admitted += u32::from(limiter.named("x").check(&key, &default).await.expect("a store").is_allowed());
            }
            assert_eq!(admitted, expected, "{user}");
        }
        let left =
            limiter.peek(&Key::new("x:").part("vip"), &unpacked_limit("30/min")).await.expect("a store").remaining();
        assert_eq!(left, 23, "a call took one permit");
    }
}

pub(super) fn builders() -> [Builder; 2] {
    [Limiter::builder(), builder_for(RedisServer::shared())]
}

/// The standby limiter has counted each call of the store once, and counts its own once.
#[tokio::test]
async fn the_standby_limiter_counts_each_call_once() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("a store");
    let (key, small, large) = (key("a"), limit("9/1h"), limit("20/1h"));
    let call = async || {
        let rules = [("a", &key, &large, 1), ("b", &key, &small, 1)];
        limiter.check_rules(&rules).await.expect("a policy").is_allowed()
    };
    for _ in 0..4 {
        assert!(call().await);
    }
    drop(server);
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += u32::from(call().await);
    }
    assert_eq!(admitted, 5);
}

/// The number of a rule is its position in the call, whatever the modes of the others.
#[tokio::test]
async fn rules_count_once_at_any_position_of_a_call() {
    let off = RuleSet::new().rule("off", Rule::new().mode(Mode::Off));
    for builder in builders() {
        let limiter = builder.rules(off.clone()).connect().await.expect("a store");
        let (key, small, large) = (key("a"), limit("5/1m"), limit("10/1m"));
        let keys: Vec<_> = (0..256).map(|number| Key::new("off:").part(number)).collect();
        let mut rules: Vec<_> = keys.iter().map(|key| ("off", key, &large, 1)).collect();
        rules.extend([("a", &key, &small, 1), ("b", &key, &large, 1)]);
        let mut admitted = 0;
        for _ in 0..20 {
            admitted += u32::from(limiter.check_rules(&rules).await.expect("a store").is_allowed());
        }
        assert_eq!(admitted, 5);
    }
}
