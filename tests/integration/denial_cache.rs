//! Tests of the denial cache: the process denies locally until the store's decision can change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Allowed, Builder, Decision, Denied, Key, Limit, Limiter, ManualClock, Source, rate_limited};

use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, builder_for, key, limit, poll_once};

/// Two limiters on one server, as in two processes, by one clock.
struct SharedServer {
    server: RedisServer,
    prefix: String,
    clock: ManualClock,
}

impl SharedServer {
    fn new() -> Self {
        Self { server: RedisServer::start(), prefix: unique("denials"), clock: ManualClock::new() }
    }

    async fn limiter(&self) -> Limiter {
        self.limiter_with(|builder| builder).await
    }

    async fn limiter_with(&self, options: impl FnOnce(Builder) -> Builder) -> Limiter {
        let builder =
            Limiter::builder().presence(false).url(self.server.url()).prefix(&self.prefix).clock(self.clock.clone());
        options(builder.deadline(LONG_DEADLINE)).connect().await.expect("the server is there")
    }

    fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Returns the number of script calls so far.
    fn script_call_count(&self) -> u64 {
        self.server.script_calls()
    }
}

async fn check(limiter: &Limiter, key: &Key, limit: &Limit, cost: u32) -> Result<Allowed, Denied> {
    limiter.check_n(key, limit, cost).await.expect("a decision").into_result()
}

async fn denial(limiter: &Limiter, limit: &Limit) -> Denied {
    check(limiter, &key("a"), limit, 1).await.expect_err("denied")
}

async fn use_up(limiter: &Limiter, limit: &Limit) -> Allowed {
    check(limiter, &key("a"), limit, limit.max()).await.expect("the whole limit is free")
}

#[tokio::test]
async fn cached_denials_equal_the_stores_and_cost_one_call_per_second() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let uncached = shared.limiter_with(|builder| builder.remember_denials(Duration::ZERO)).await;
    let five = limit("5/10s");
    use_up(&limiter, &five).await;
    shared.advance_millis(1);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
    let before = shared.script_call_count();
    for millis in [0, 1, 500, 498] {
        shared.advance_millis(millis);
        let cached = denial(&limiter, &five).await;
        assert_eq!(cached.source(), Source::DeniedUntil);
        let fresh = denial(&uncached, &five).await;
        assert_eq!(fresh.source(), Source::Store);
        let fields = |denied: &Denied| (denied.retry_after(), denied.remaining(), denied.reset_after(), denied.limit());
        assert_eq!(fields(&cached), fields(&fresh));
        for _ in 0..100 {
            assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
        }
    }
    assert_eq!(shared.script_call_count() - before, 4, "only the limiter without a cache calls the store");
    shared.advance_millis(1);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store, "once a second");
}

#[rate_limited(key = "flood", limit = "2/10s")]
async fn limited() -> Result<(), Denied> {
    Ok(())
}

/// A cached denial has the rule's name and the right source, and observers get it.
#[tokio::test]
async fn flood_of_an_annotated_function_costs_one_call_per_second() {
    let (shared, seen) = (SharedServer::new(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&seen);
    let observer = move |_: &Denied| {
        count.fetch_add(1, Relaxed);
    };
    let limiter = shared.limiter_with(|builder| builder.on_denied(observer)).await;
    for source in [None, None, Some(Source::Store), Some(Source::DeniedUntil)] {
        let denied = limiter.scope(limited()).await.err();
        assert_eq!(
            denied.map(|denied| (denied.name().to_owned(), denied.source())).unzip(),
            match source {
                Some(source) => (Some("flood".to_owned()), Some(source)),
                None => (None, None),
            }
        );
    }
    let before = shared.script_call_count();
    for _ in 0..100 {
        assert_eq!(limiter.scope(limited()).await.expect_err("denied").source(), Source::DeniedUntil);
    }
    assert_eq!((shared.script_call_count() - before, seen.load(Relaxed)), (0, 102));
    shared.advance_millis(1000);
    assert_eq!(limiter.scope(limited()).await.expect_err("denied").source(), Source::Store, "once a second");
}

#[tokio::test]
async fn cached_denial_ends_exactly_at_retry_after() {
    let shared = SharedServer::new();
    let limiter = shared.limiter_with(|builder| builder.remember_denials(Duration::from_secs(60))).await;
    for name in ["sliding", "fixed", "counter", "bucket"] {
        let five = limit("5/25s").with_algorithm(match name {
            "sliding" => rate_limited::Algorithm::SlidingWindow,
            "fixed" => rate_limited::Algorithm::FixedWindow,
            "counter" => rate_limited::Algorithm::SlidingCounter,
            _ => rate_limited::Algorithm::TokenBucket,
        });
        use_up(&limiter, &five).await;
        let first = denial(&limiter, &five).await;
        let again = denial(&limiter, &five).await;
        assert_eq!((first.source(), again.source()), (Source::Store, Source::DeniedUntil), "{name}");
        shared.clock.advance(first.retry_after() - Duration::from_millis(1));
        assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil, "{name}");
        shared.advance_millis(1);
        assert!(check(&limiter, &key("a"), &five, 1).await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn cached_denials_are_specific_to_limit_and_cost() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    let three = check(&limiter, &key("a"), &seven, 3).await.expect_err("two are left of seven");
    let again = check(&limiter, &key("a"), &seven, 3).await.expect_err("two are left of seven");
    assert_eq!((three.source(), again.source(), again.remaining()), (Source::Store, Source::DeniedUntil, 2));
    // Two permits are missing. One comes back earlier and changes `remaining`, so this denial is not cached.
    for _ in 0..2 {
        let four = check(&limiter, &key("a"), &seven, 4).await.expect_err("two are left of seven");
        assert_eq!(four.source(), Source::Store);
    }
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    assert!(check(&limiter, &key("a"), &seven, 1).await.is_ok(), "a raised limit applies at once");
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store, "an admission invalidates the cached denial");
    assert!(check(&limiter, &key("a"), &five, 0).await.is_ok(), "a cost of nothing");
    assert!(check(&limiter, &key("b"), &five, 5).await.is_ok(), "another key");
}

#[tokio::test]
async fn refund_and_reset_by_this_process_apply_at_once() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let five = limit("5/10s");
    let taken = use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    limiter.refund(&taken).await.expect("refunded");
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    limiter.reset(&key("a"), &five).await.expect("reset");
    use_up(&limiter, &five).await;
}

#[tokio::test]
async fn reset_by_another_process_applies_within_a_second() {
    let shared = SharedServer::new();
    let (limiter, other) = (shared.limiter().await, shared.limiter().await);
    let five = limit("5/1h");
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    other.reset(&key("a"), &five).await.expect("reset");
    shared.advance_millis(999);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    shared.advance_millis(1);
    use_up(&limiter, &five).await;
}

#[tokio::test]
async fn final_and_multi_limit_denials_are_not_cached() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let (five, six) = (limit("5/10s"), limit("6/1h"));
    for _ in 0..2 {
        let never = check(&limiter, &key("a"), &five, 6).await.expect_err("never");
        assert_eq!((never.is_final(), never.source()), (true, Source::Store));
    }
    use_up(&limiter, &five).await;
    for _ in 0..2 {
        let both = limiter.check_all(&[(&key("a"), &five, 1), (&key("a"), &six, 1)]).await.expect("a decision");
        assert!(matches!(both, Decision::Denied(denied) if denied.source() == Source::Store));
    }
}

/// A denial that was in flight during a reset is not cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denial_in_flight_during_a_reset_is_not_cached() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let five = limit("5/1h");
    for _ in 0..300 {
        let _ = limiter.check_n(&key("a"), &five, 5).await.expect("a decision");
        // More calls of the same kind are in flight during the reset.
        let floods: Vec<_> = (0..16)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { drop(limiter.check_n(&key("a"), &five, 5).await) })
            })
            .collect();
        limiter.reset(&key("a"), &five).await.expect("reset");
        let cached = limiter.check_n(&key("a"), &five, 5).await.expect("a decision");
        let fresh = limiter.peek(&key("a"), &five).await.expect("a peek");
        // One of the calls has all five permits. A denial is right only if the store has none left.
        assert!(cached.is_allowed() || fresh.remaining() == 0, "denied although permits are free");
        for flood in floods {
            flood.await.expect("no panic");
        }
        limiter.reset(&key("a"), &five).await.expect("reset");
        assert!(
            check(&limiter, &key("a"), &five, 5).await.is_ok(),
            "the key was reset, and no other call is in flight"
        );
        limiter.reset(&key("a"), &five).await.expect("reset");
    }
}

/// A cached denial must not end before the store admits the call, even if the store is slow.
#[tokio::test]
async fn cached_denial_ends_no_earlier_than_the_stores() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limit = limit("1/400ms");
    let limiter = builder_for(&server).url(proxy.url()).connect().await.expect("the server is there");
    let mut is_proven = false;
    for attempt in 0..100 {
        let key = Key::new(attempt.to_string());
        assert!(check(&limiter, &key, &limit, 1).await.is_ok());
        proxy.hold_replies();
        let before = server.script_calls();
        let slow = poll_once(vec![Box::pin(check(&limiter, &key, &limit, 1))]).await.remove(0);
        eventually("decided", async || server.script_calls() > before).await;
        // The time that the reply is held back.
        tokio::time::sleep(Duration::from_millis(150)).await;
        proxy.pass();
        // If the machine stalled until the window was over, neither call is denied.
        let (Err(_), Err(cached)) = (slow.await, check(&limiter, &key, &limit, 1).await) else { continue };
        assert_eq!(cached.source(), Source::DeniedUntil);
        tokio::time::sleep(cached.retry_after()).await;
        assert!(check(&limiter, &key, &limit, 1).await.is_ok(), "admitted after `retry_after`");
        is_proven = true;
        break;
    }
    assert!(is_proven, "the machine stalled each time");
}

/// Once sent, a reset or refund takes effect even if its caller is dropped. The cache must be invalidated then.
#[tokio::test]
async fn dropped_reset_or_refund_still_invalidates_the_cache() {
    for resets in [true, false] {
        let shared = SharedServer::new();
        let proxy = Proxy::start(&shared.server);
        let limiter = shared.limiter_with(|builder| builder.url(proxy.url())).await;
        let five = limit("5/1h");
        let allowed = use_up(&limiter, &five).await;
        assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
        assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
        proxy.hold_replies();
        let (resetting, subject) = (&limiter, key("a"));
        let in_flight = poll_once(vec![Box::pin(async {
            if resets { resetting.reset(&subject, &five).await } else { resetting.refund(&allowed).await }
        })])
        .await;
        eventually("freed in the store", async || shared.server.keys().is_empty()).await;
        drop(in_flight);
        proxy.pass();
        eventually("freed", async || limiter.peek(&key("a"), &five).await.expect("a peek").remaining() == 5).await;
        assert!(check(&limiter, &key("a"), &five, 1).await.is_ok(), "reset: {resets}");
    }
}

/// Permits taken by a decision over several limits also invalidate the cached denial.
#[tokio::test]
async fn multi_limit_admission_invalidates_the_cache() {
    let shared = SharedServer::new();
    let limiter = shared.limiter().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    use_up(&limiter, &five).await;
    shared.advance_millis(100);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    let both = limiter.check_all(&[(&key("a"), &seven, 1), (&key("b"), &seven, 1)]).await.expect("a decision");
    assert!(both.is_allowed());
    let again = denial(&limiter, &five).await;
    assert_eq!((again.source(), again.reset_after()), (Source::Store, Duration::from_secs(10)));
}

/// The store may have decided as soon as the request was sent, however late its reply arrives.
#[tokio::test]
async fn late_denial_is_cached_no_longer_than_a_prompt_one() {
    let shared = SharedServer::new();
    let proxy = Proxy::start(&shared.server);
    let remember = Duration::from_secs(60);
    let limiter = shared.limiter_with(|builder| builder.url(proxy.url()).remember_denials(remember)).await;
    let five = limit("5/10s");
    use_up(&limiter, &five).await;
    proxy.hold_replies();
    let before = shared.script_call_count();
    let late = poll_once(vec![Box::pin(denial(&limiter, &five))]).await.remove(0);
    eventually("decided", async || shared.script_call_count() > before).await;
    shared.advance_millis(500);
    proxy.pass();
    assert_eq!(late.await.source(), Source::Store);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    shared.advance_millis(9_500);
    assert!(check(&limiter, &key("a"), &five, 1).await.is_ok());
}
