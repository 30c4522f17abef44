//! Random schedules against the naive oracle, on every store.

use std::time::Duration;

use limiter_testkit::{Oracle, Random, Verdict};
use rate_limited::{Decision, Key, Limit};

use crate::support::Subject;

#[tokio::test]
async fn memory_agrees_with_the_oracle() {
    agrees_with_the_oracle(Subject::memory().await, 20_000).await;
}

#[tokio::test]
async fn redis_agrees_with_the_oracle() {
    agrees_with_the_oracle(Subject::redis().await, 6_000).await;
}

#[tokio::test]
async fn memory_admits_97_percent_where_runs_merge() {
    admits_97_percent_where_runs_merge(Subject::memory().await).await;
}

#[tokio::test]
async fn redis_admits_97_percent_where_runs_merge() {
    admits_97_percent_where_runs_merge(Subject::redis().await).await;
}

/// Three keys, limits raised and lowered, costs from 0 to more than there is: the same answers, to the millisecond.
async fn agrees_with_the_oracle(subject: Subject, steps: u32) {
    let mut random = Random::new(u64::from(steps));
    let window = Duration::from_secs(2);
    let window_ms = 2_000;
    let mut now_ms = 0;
    let keys = ["a", "b", "c"].map(Key::new);
    let mut oracles = [Oracle::new(), Oracle::new(), Oracle::new()];
    for step in 0..steps {
        let idle = match random.below(50) {
            0 => random.below(2 * window_ms),
            // Never more distinct instants in a window than a log keeps apart.
            1..=20 => random.between(16, 90),
            _ => 0,
        };
        now_ms += idle;
        subject.advance_millis(idle);
        let which = usize::try_from(random.below(3)).expect("small");
        let max = u32::try_from(random.between(1, 30)).expect("small");
        let cost = u32::try_from(random.below(6)).expect("small");
        let limit = Limit::new(max, window).expect("a limit");
        let (key, oracle) = (&keys[which], &mut oracles[which]);
        if random.below(10) == 0 {
            let seen = subject.limiter.peek(key, &limit).await.expect("the store answers");
            assert_eq!(verdict(&seen), oracle.peek(now_ms, window_ms, max, 1), "look at step {step}");
        }
        let decision = subject.limiter.check_n(key, &limit, cost).await.expect("the store answers");
        assert_eq!(verdict(&decision), oracle.check(now_ms, window_ms, max, cost), "step {step}");
    }
}

/// 99 % of 1000 a second, each call at a millisecond of its own or nearly.
async fn admits_97_percent_where_runs_merge(subject: Subject) {
    let mut random = Random::new(3);
    let limit: Limit = "1000/s".parse().expect("a limit");
    let key = Key::new("busy");
    let mut oracle = Oracle::new();
    let (mut asked, mut admitted) = (0, 0);
    for now_ms in 0..6_000 {
        for _ in 0..2 {
            if random.below(1_000) >= 495 {
                continue;
            }
            asked += 1;
            if subject.limiter.check(&key, &limit).await.expect("the store answers").is_allowed() {
                admitted += 1;
                assert!(oracle.check(now_ms, 1_000, 1_000, 1).allowed, "more than 1000 in a second at {now_ms} ms");
            }
        }
        subject.advance_millis(1);
    }
    assert!(asked > 5_800, "{asked} calls");
    assert!(admitted * 100 >= asked * 97, "{admitted} of {asked}");
}

fn verdict(decision: &Decision) -> Verdict {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).expect("within a window");
    match decision {
        Decision::Allowed(allowed) => Verdict {
            allowed: true,
            remaining: allowed.remaining(),
            retry_after_ms: Some(0),
            reset_after_ms: millis(allowed.reset_after()),
        },
        Decision::Denied(denied) => Verdict {
            allowed: false,
            remaining: denied.remaining(),
            retry_after_ms: (!denied.is_final()).then(|| millis(denied.retry_after())),
            reset_after_ms: millis(denied.reset_after()),
        },
    }
}
