//! Shadow mode beside an oracle: it reports exactly the denials that enforcement would make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use limiter_testkit::{Oracle, Random, RedisServer, full_or};
use rate_limited::{Builder, Key, Limiter, ManualClock, Mode, Rule, RuleSet};

use crate::support::{builder_for, limit};

const WINDOW_MS: u64 = 1_000;

#[tokio::test]
async fn shadow_denials_in_memory_equal_those_of_enforcement() {
    compare(full_or(1_000, 200), Limiter::builder).await;
}

#[tokio::test]
async fn shadow_denials_on_redis_equal_those_of_enforcement() {
    compare(full_or(100, 20), || builder_for(RedisServer::timeless())).await;
}

/// Compares random schedules of calls with random costs.
async fn compare(schedules: u64, builder: impl Fn() -> Builder) {
    let (shadowed, clock) = (Arc::new(AtomicU32::new(0)), ManualClock::new());
    let counter = Arc::clone(&shadowed);
    let limiter = builder()
        .clock(clock.clone())
        .rules(RuleSet::new().rule("trial", Rule::new().mode(Mode::Shadow)))
        .on_shadowed(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .on_denied(|denied| panic!("{denied}"))
        .connect()
        .await
        .expect("a store");
    let mut reported = 0;
    for seed in 0..schedules {
        let (mut random, mut oracle) = (Random::new(seed), Oracle::new());
        let key = Key::new("trial:").part(seed);
        let max = 1 + u32::try_from(random.below(6)).expect("small");
        let limit = limit(&format!("{max}/{WINDOW_MS}ms"));
        for step in 0..40 {
            clock.advance(Duration::from_millis(random.below(WINDOW_MS / 2)));
            let cost = u32::try_from(random.below(u64::from(max) + 2)).expect("small");
            let now_ms = u64::try_from(clock.now().as_millis()).expect("a time of this age");
            let expected = oracle.check(now_ms, WINDOW_MS, max, cost);
            let decision = limiter.named("trial").check_n(&key, &limit, cost).await.expect("a store");
            let allowed = decision.into_result().expect("shadow mode denies no call");
            let denied = allowed.shadowed();
            assert_eq!(denied.is_none(), expected.allowed, "schedule {seed}, step {step}");
            if let Some(denied) = denied {
                reported += 1;
                assert_eq!(denied.remaining(), expected.remaining, "schedule {seed}, step {step}");
            }
        }
    }
    assert!(reported > 0);
    assert_eq!(shadowed.load(Ordering::Relaxed), reported);
}
