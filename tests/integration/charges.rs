//! Charges: permits that are counted whether they fit or not.

use std::time::Duration;

use limiter_testkit::{Random, full_or};
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Decision, ErrorKind, Key, Layout, Limit, Limiter, Mode, OnError, Rule, RuleSet, Source, Usage};
use tokio::task::JoinSet;

use crate::support::{Subject, limit};

/// One operation on a key.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Check,
    Charge,
    Peek,
    /// A charge of this key and of the next one.
    ChargeTwo,
}

/// The numbers of a decision or of a usage.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Decision { allowed: bool, remaining: u32, retry_after: Option<Duration>, reset_after: Duration },
    Usage { remaining: u32, overdrawn: u32, uncounted: u32, reset_after: Duration },
}

impl From<Usage> for Seen {
    fn from(usage: Usage) -> Self {
        Self::Usage {
            remaining: usage.remaining(),
            overdrawn: usage.overdrawn(),
            uncounted: usage.uncounted(),
            reset_after: usage.reset_after(),
        }
    }
}

impl From<Decision> for Seen {
    fn from(decision: Decision) -> Self {
        let (remaining, reset_after) = (decision.remaining(), decision.reset_after());
        match decision {
            Decision::Allowed(_) => Self::Decision { allowed: true, remaining, retry_after: None, reset_after },
            Decision::Denied(denied) => {
                let retry_after = (!denied.is_final()).then(|| denied.retry_after());
                Self::Decision { allowed: false, remaining, retry_after, reset_after }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    limit: Limit,
    cost: u32,
}

impl Step {
    fn random(algorithm: Algorithm, layout: Layout, random: &mut Random) -> Self {
        let mut between = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let limit = Limit::new(between(1, 12), Duration::from_millis(400)).expect("a limit").with_algorithm(algorithm);
        let limit = match algorithm {
            TokenBucket | LeakyBucket => limit.with_burst(between(1, 12)).expect("a bucket"),
            SlidingWindow => limit.with_layout(layout).expect("a sliding window"),
            _ => limit,
        };
        let operation = [
            Operation::Check,
            Operation::Check,
            Operation::Check,
            Operation::Charge,
            Operation::Charge,
            Operation::Peek,
            Operation::ChargeTwo,
        ][between(0, 6) as usize];
        let cost = match operation {
            Operation::Charge | Operation::ChargeTwo if between(0, 3) == 0 => between(0, 40),
            _ => between(0, 5),
        };
        Self { operation, limit, cost }
    }

    async fn run(self, limiter: &Limiter, keys: [Key; 2]) -> Seen {
        let Self { operation, limit, cost } = self;
        let [key, other] = &keys;
        match operation {
            Operation::Check => limiter.check_n(key, &limit, cost).await.expect("a decision").into(),
            Operation::Charge => limiter.charge(key, &limit, cost).await.expect("a charge").into(),
            Operation::Peek => limiter.peek(key, &limit).await.expect("a decision").into(),
            Operation::ChargeTwo => {
                limiter.charge_all(&[(key, &limit, cost), (other, &limit, cost)]).await.expect("a charge").into()
            }
        }
    }
}

const KEYS: usize = 12;

/// Runs the same random operations on both stores. Each must see the same numbers.
async fn assert_stores_agree(redis: Subject, algorithm: Algorithm, layout: Layout) {
    let memory = Subject::memory().await;
    for subject in [&memory, &redis] {
        subject.clock.advance(Duration::from_micros(1_000_000_000 - subject.now_us() % 1_000_000_000));
    }
    let mut random = Random::new(u64::from(algorithm as u8) + 3);
    for round in 0..full_or(600, 120) {
        let pause = Duration::from_micros(match random.below(12) {
            0 => random.below(1_000_000),
            1..=8 => random.below(60_000),
            _ => 0,
        });
        memory.clock.advance(pause);
        redis.clock.advance(pause);
        let mut calls = JoinSet::new();
        let mut expected = Vec::new();
        // Every other key, so that calls at one instant have no key in common.
        for index in (0..KEYS).step_by(2) {
            let step = Step::random(algorithm, layout, &mut random);
            let keys = [index, index + 1].map(|index| Key::new("key:").part(index));
            let limiter = redis.limiter.clone();
            expected.push((step, step.run(&memory.limiter, keys.clone()).await));
            calls.spawn(async move { (index / 2, step.run(&limiter, keys).await) });
        }
        for (index, seen) in calls.join_all().await {
            let (step, expected) = &expected[index];
            assert_eq!(&seen, expected, "{algorithm:?}, round {round}, key {index}, {step:?}");
        }
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
async fn a_counter_holds_four_billion_permits_and_loses_none() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (key, limit) = (Key::new("full"), limit("5/10s"));
        let charge = async |cost| subject.limiter.charge(&key, &limit, cost).await.expect("a charge");
        let first = charge(u32::MAX).await;
        assert_eq!((first.remaining(), first.overdrawn(), first.uncounted()), (0, u32::MAX - 5, 0));
        subject.advance_millis(1);
        for cost in [u32::MAX, 2] {
            let full = charge(cost).await;
            assert_eq!((full.overdrawn(), full.uncounted()), (u32::MAX - 5, cost));
        }
        let denied = subject.limiter.check(&key, &limit).await.expect("a decision");
        assert!(denied.is_denied(), "the log wraps");
        assert_eq!(denied.into_result().expect_err("denied").retry_after(), Duration::from_millis(9_999));
    }
}

#[tokio::test]
async fn charges_of_one_counter_add_up_and_those_of_a_rule_count_once() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (key, limit) = (Key::new("twice"), limit("5/10s"));
        let limiter = &subject.limiter;
        let usage = limiter.charge_all(&[(&key, &limit, 2), (&key, &limit, 4)]).await.expect("a charge");
        assert_eq!((usage.remaining(), usage.overdrawn()), (0, 1));
        let nothing = limiter.charge_all(&[]).await.expect("no charge");
        assert_eq!((nothing.overdrawn(), nothing.uncounted(), nothing.source()), (0, 0, Source::Mode));
        let rule = Rule::new().limit("5/10s".parse().expect("a limit")).limit("9/10s".parse().expect("a limit"));
        limiter.set_rules(RuleSet::new().rule("both", rule)).expect("valid");
        let key = Key::new("once");
        let usage = limiter.named("both").charge(&key, &limit, 7).await.expect("a charge");
        assert_eq!((usage.limit().to_string(), usage.overdrawn()), ("5/10s".to_owned(), 2));
        assert_eq!(limiter.peek(&key, &"9/10s".parse().expect("a limit")).await.expect("a decision").remaining(), 2);
    }
}

#[tokio::test]
async fn a_charge_follows_the_mode_of_its_rule() {
    for subject in [Subject::memory().await, Subject::redis().await] {
        let (limiter, limit) = (&subject.limiter, limit("5/10s"));
        for (mode, counted) in [(Mode::Enforce, 3), (Mode::Shadow, 3), (Mode::Off, 0), (Mode::Deny, 0)] {
            let key = Key::new("mode:").part(mode.as_str());
            limiter.set_rules(RuleSet::new().rule("moded", Rule::new().mode(mode))).expect("valid");
            let usage = limiter.named("moded").charge(&key, &limit, 3).await.expect("a charge");
            assert_eq!(usage.uncounted(), 3 - counted, "{mode}");
            assert_eq!(usage.source() == Source::Store, counted > 0, "{mode}");
            let left = limiter.peek(&key, &limit).await.expect("a decision").remaining();
            assert_eq!(left, 5 - counted, "{mode}");
        }
    }
}

#[tokio::test]
async fn a_charge_fails_as_a_refund_does_and_counts_in_the_standby_limiter() {
    let (key, limit) = (Key::new("down"), limit("5/10s"));
    for on_error in [OnError::Open, OnError::Closed, OnError::Raise] {
        let limiter = Limiter::builder().failing(ErrorKind::Unavailable).on_error(on_error).build().expect("valid");
        let error = limiter.charge(&key, &limit, 3).await.expect_err("no store");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{on_error}");
    }
    let limiter = Limiter::failing(ErrorKind::Unavailable);
    let usage = limiter.charge(&key, &limit, 7).await.expect("the standby limiter");
    assert_eq!((usage.overdrawn(), usage.source()), (2, Source::Standby));
    assert!(limiter.check(&key, &limit).await.expect("a decision").is_denied());
}
