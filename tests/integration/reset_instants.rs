//! Tests of the field `x-ratelimit-reset`: one instant is one number, whatever part of the limiter decides, and at any
//! time.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::http::{self, Fields};
use rate_limited::{Algorithm, Builder, Decision, Limiter, ManualClock, Source};

use crate::deadlines::eventually;
use crate::support::{builder_for, key, limit, wait_until_quick};

/// The seconds since 1970 at which more permits are there, as a client gets them.
pub(crate) fn reset(decision: &Decision) -> u64 {
    let fields = http::fields(decision, Fields::Legacy);
    let (_, seconds) = fields.iter().find(|(name, _)| *name == "x-ratelimit-reset").expect("a limit is enforced");
    seconds.parse().expect("seconds")
}

/// The distance of two decisions, such that they are in all parts of a second and of a millisecond.
const STEP: Duration = Duration::from_micros(37_003);

/// A limiter on a server whose own clock stands still.
async fn on_redis(configure: impl FnOnce(Builder) -> Builder) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let builder = configure(builder_for(RedisServer::timeless())).clock(clock.clone());
    (builder.connect().await.expect("the server is there"), clock)
}

/// Asserts that decisions at many times within `time` are of one source, and name one number.
async fn assert_one_number(limiter: &Limiter, clock: &ManualClock, text: &str, time: Duration, source: Source) -> u64 {
    let (end, mut expected) = (clock.now() + time, None);
    let second = clock.now().as_secs();
    while clock.now() < end {
        let decision = limiter.check(&key("a"), &limit(text)).await.expect("a decision");
        assert_eq!(decision.source(), source, "{decision:?}");
        let (reset, now) = (reset(&decision), clock.now());
        assert_eq!(*expected.get_or_insert(reset), reset, "{source:?} at {now:?}");
        clock.advance(STEP);
    }
    assert!(clock.now().as_secs() > second, "the decisions are in two seconds");
    expected.expect("a decision")
}

/// Real clocks, which no test moves. A window begins at a multiple of 2.5 s since 1970, so an instant of its end, in
/// whole seconds, is a multiple of 5 s, or half of one rounded up.
#[tokio::test]
async fn a_fixed_window_has_one_reset_by_real_clocks() {
    let server = RedisServer::start();
    let redis = builder_for(&server).connect().await.expect("the server is there");
    let limit = limit("100000/2500ms").with_algorithm(Algorithm::FixedWindow);
    let until = Instant::now() + Duration::from_millis(2_600);
    while Instant::now() < until {
        for limiter in [&redis, &Limiter::memory()] {
            let decision = limiter.check(&key("a"), &limit).await.expect("a decision");
            assert!(matches!(reset(&decision) % 5, 0 | 3), "{} of {decision:?}", reset(&decision));
        }
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
}

#[tokio::test]
async fn denials_of_the_store_name_one_instant() {
    let (limiter, clock) = on_redis(|builder| builder.remember_denials(Duration::ZERO)).await;
    let allowed = limiter.check(&key("a"), &limit("1/2500ms")).await.expect("a decision");
    let time = Duration::from_millis(2_400);
    assert_eq!(assert_one_number(&limiter, &clock, "1/2500ms", time, Source::Store).await, reset(&allowed));
}

#[tokio::test]
async fn cached_denials_name_the_instant_of_the_store() {
    let (limiter, clock) = on_redis(|builder| builder).await;
    clock.advance(Duration::from_millis(600));
    let allowed = limiter.check(&key("a"), &limit("1/2500ms")).await.expect("a decision");
    let denied = limiter.check(&key("a"), &limit("1/2500ms")).await.expect("a decision");
    assert_eq!((reset(&denied), denied.source()), (reset(&allowed), Source::Store));
    // The cache checks the store again after a second.
    let time = Duration::from_millis(950);
    assert_eq!(assert_one_number(&limiter, &clock, "1/2500ms", time, Source::DeniedUntil).await, reset(&allowed));
}

#[tokio::test]
async fn denials_of_the_standby_limiter_name_one_instant() {
    let (mut server, clock) = (RedisServer::start(), ManualClock::new());
    let builder = builder_for(&server).clock(clock.clone()).remember_denials(Duration::ZERO);
    let limiter = builder.connect().await.expect("the server is there");
    let allowed = limiter.check(&key("a"), &limit("1/2500ms")).await.expect("a decision");
    server.kill();
    let time = Duration::from_millis(2_400);
    assert_eq!(assert_one_number(&limiter, &clock, "1/2500ms", time, Source::Standby).await, reset(&allowed));
}

/// All permits of a lease are back at the same time.
#[tokio::test]
async fn calls_of_one_lease_name_one_instant() {
    let (limiter, clock) = on_redis(|builder| builder.leases(true)).await;
    wait_until_quick(&limiter).await;
    // A lease of this limit lasts for 39 ms: from the end of one second into the next.
    let (key, limit) = (key("a"), limit("100000/2500ms"));
    clock.advance(Duration::from_millis(980));
    let check = async || limiter.check(&key, &limit).await.expect("a decision");
    eventually("a lease is in force", async || check().await.source() == Source::Lease).await;
    let first = check().await;
    let (expected, second) = (reset(&first), clock.now().as_secs());
    for _ in 0..16 {
        let decision = check().await;
        assert_eq!((reset(&decision), decision.reset_after() > limit.window()), (expected, true), "{decision:?}");
        clock.advance(Duration::from_micros(2_301));
    }
    assert!(clock.now().as_secs() > second);
}
