//! Charges: permits that are counted whether they fit or not.

use std::time::Duration;

use limiter_testkit::{Cluster, Random, RedisServer, full_or};
use rate_limited::Algorithm::{self, FixedWindow, LeakyBucket, SlidingCounter, SlidingWindow, TokenBucket};
use rate_limited::{Decision, ErrorKind, Key, Layout, Limit, Limiter, Mode, OnError, Rule, RuleSet, Source, Usage};
use tokio::task::JoinSet;

mod killed_processes;

use crate::cluster;
use crate::support::{LONG_DEADLINE, Subject, builder_for, limit, poll_once};

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
    fn random(algorithm: Algorithm, shape: &Shape, random: &mut Random) -> Self {
        let mut between = |low, high| u32::try_from(random.between(low, high)).expect("small");
        let max = between(shape.max / 12, shape.max);
        let limit = Limit::new(max, shape.window).expect("a limit").with_algorithm(algorithm);
        let limit = match algorithm {
            TokenBucket | LeakyBucket => limit.with_burst(between(1, 12)).expect("a bucket"),
            SlidingWindow => limit.with_layout(shape.layout).expect("a sliding window"),
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

/// The limits and pauses of a schedule.
struct Shape {
    layout: Layout,
    window: Duration,
    /// The largest `max`.
    max: u64,
    /// Most pauses are at most so long, in microseconds.
    pause: u64,
    keys: usize,
    rounds: u64,
}

impl Shape {
    fn short(layout: Layout) -> Self {
        let (window, rounds) = (Duration::from_millis(400), full_or(600, 120));
        Self { layout, window, max: 12, pause: 60_000, keys: 12, rounds }
    }

    /// Logs of many runs: they are written in place, merge runs, and are trimmed.
    fn long() -> Self {
        let (layout, window, rounds) = (Layout::Compact, Duration::from_secs(30), full_or(4_000, 1_200));
        Self { layout, window, max: 600, pause: 90_000, keys: 4, rounds }
    }
}

/// Runs the same random operations on both stores. Each must see the same numbers.
async fn assert_stores_agree(redis: Subject, algorithm: Algorithm, shape: Shape) {
    let memory = Subject::memory().await;
    for subject in [&memory, &redis] {
        subject.clock.advance(Duration::from_micros(1_000_000_000 - subject.now_us() % 1_000_000_000));
    }
    let mut random = Random::new(u64::from(algorithm as u8) + 3);
    for round in 0..shape.rounds {
        let pause = Duration::from_micros(match random.below(12) {
            0 => random.below(16 * shape.pause),
            1..=8 => random.below(shape.pause),
            _ => 0,
        });
        memory.clock.advance(pause);
        redis.clock.advance(pause);
        let mut calls = JoinSet::new();
        let mut expected = Vec::new();
        // Every other key, so that calls at one instant have no key in common.
        for index in (0..shape.keys).step_by(2) {
            let step = Step::random(algorithm, &shape, &mut random);
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
            assert_stores_agree(Subject::redis().await, $algorithm, Shape::short(Layout::Compact)).await;
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
    assert_stores_agree(Subject::zset().await, SlidingWindow, Shape::short(Layout::Zset)).await;
}

#[tokio::test]
async fn stores_agree_on_a_log_of_many_runs() {
    assert_stores_agree(Subject::redis().await, SlidingWindow, Shape::long()).await;
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

/// The store has no record of the charge, so it must not decide alone as long as that counts.
#[tokio::test]
async fn a_charge_that_the_standby_limiter_counted_holds_while_the_store_is_there() {
    let mut server = RedisServer::start();
    let builder = builder_for(&server).max_in_flight(1).deadline(LONG_DEADLINE).busy_poll(Duration::ZERO);
    let limiter = builder.connect().await.expect("a server");
    // The call in flight has no reply before the charge.
    server.pause();
    let (held, key, limit) = (Key::new("held"), Key::new("a"), limit("5/1h"));
    let in_flight = poll_once(vec![Box::pin(limiter.check(&held, &limit))]).await;
    let usage = limiter.charge(&key, &limit, 7).await.expect("the standby limiter");
    assert_eq!((usage.overdrawn(), usage.source()), (2, Source::Standby));
    drop(in_flight);
    server.resume();
    let denied = limiter.check(&key, &limit).await.expect("a decision");
    assert_eq!((denied.is_denied(), denied.source()), (true, Source::Standby));
}

#[tokio::test]
async fn charges_of_several_slots_are_counted_in_each() {
    let cluster = Cluster::builder().masters_only().start();
    let limiter = cluster::builder_for(&cluster).connect().await.expect("a cluster");
    let (keys, limit) = (cluster::key_per_master(&cluster), limit("5/366d"));
    let charges: Vec<_> = keys.iter().zip([2, 9, 4]).map(|(key, cost)| (key, &limit, cost)).collect();
    let usage = limiter.charge_all(&charges).await.expect("a charge");
    assert_eq!((usage.overdrawn(), usage.remaining()), (4, 0));
    for (key, left) in keys.iter().zip([3, 0, 1]) {
        assert_eq!(limiter.peek(key, &limit).await.expect("a decision").remaining(), left);
    }
}

/// A log with leases is read by its own module. Its leased permits count as used.
#[tokio::test]
async fn a_charge_of_a_key_with_leases_counts_beside_them() {
    let subject = Subject::with_builder(builder_for(RedisServer::timeless()).leases(true)).await;
    let (key, limit) = (Key::new("leased"), limit("20000/10s"));
    let mut allowed = 0;
    for _ in 0..400 {
        allowed += u32::from(subject.limiter.check(&key, &limit).await.expect("a decision").is_allowed());
    }
    let usage = subject.limiter.charge(&key, &limit, 30_000).await.expect("a charge");
    assert!(usage.overdrawn() >= 10_000 + allowed, "{usage:?} after {allowed}");
    subject.advance_millis(60);
    assert!(subject.limiter.check(&key, &limit).await.expect("a decision").is_denied());
}
