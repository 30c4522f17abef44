//! Denials that this process knows to last: it answers by itself until the store's answer can change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer, unique};
use rate_limited::{Allowed, Builder, Decision, Denied, Key, Limit, Limiter, ManualClock, Source, rate_limited};

use crate::deadlines::eventually;
use crate::support::{AMPLE, begun, key, limit, on, script_calls};

/// Two limiters on one server, as in two processes, by one clock.
struct Scene {
    server: RedisServer,
    prefix: String,
    clock: ManualClock,
}

impl Scene {
    fn new() -> Self {
        Self { server: RedisServer::start(), prefix: unique("denials"), clock: ManualClock::new() }
    }

    async fn limiter(&self) -> Limiter {
        self.with(|builder| builder).await
    }

    async fn with(&self, options: impl FnOnce(Builder) -> Builder) -> Limiter {
        let builder = Limiter::builder().url(&self.server.url()).prefix(&self.prefix).clock(self.clock.clone());
        options(builder.deadline(AMPLE)).connect().await.expect("the server is there")
    }

    fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Script calls so far.
    fn calls(&self) -> u64 {
        script_calls(&self.server)
    }
}

async fn ask(limiter: &Limiter, key: &Key, limit: &Limit, cost: u32) -> Result<Allowed, Denied> {
    limiter.check_n(key, limit, cost).await.expect("a decision").into_result()
}

async fn denial(limiter: &Limiter, limit: &Limit) -> Denied {
    ask(limiter, &key("a"), limit, 1).await.expect_err("denied")
}

async fn use_up(limiter: &Limiter, limit: &Limit) -> Allowed {
    ask(limiter, &key("a"), limit, limit.max()).await.expect("all of it")
}

#[tokio::test]
async fn a_flood_costs_the_store_one_call_and_says_what_the_store_would() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let asking = scene.with(|builder| builder.remember_denials(Duration::ZERO)).await;
    let five = limit("5/10s");
    use_up(&limiter, &five).await;
    scene.advance_millis(1);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
    let before = scene.calls();
    for millis in [0, 1, 500, 498] {
        scene.advance_millis(millis);
        let known = denial(&limiter, &five).await;
        assert_eq!(known.source(), Source::DeniedUntil);
        let truth = denial(&asking, &five).await;
        assert_eq!(truth.source(), Source::Store);
        let facts = |denied: &Denied| (denied.retry_after(), denied.remaining(), denied.reset_after(), denied.limit());
        assert_eq!(facts(&known), facts(&truth));
        for _ in 0..100 {
            assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
        }
    }
    assert_eq!(scene.calls() - before, 4, "those that ask each time");
    scene.advance_millis(1);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store, "once a second");
}

#[rate_limited(key = "flood", limit = "2/10s")]
async fn flooded() -> Result<(), Denied> {
    Ok(())
}

/// Whoever is denied by what is known is told so, by the name of its rule, and is seen.
#[tokio::test]
async fn a_flood_of_an_annotated_function_costs_the_store_one_call() {
    let (scene, seen) = (Scene::new(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&seen);
    let watched = move |_: &Denied| {
        count.fetch_add(1, Relaxed);
    };
    let limiter = scene.with(|builder| builder.on_denied(watched)).await;
    for source in [None, None, Some(Source::Store), Some(Source::DeniedUntil)] {
        let denied = limiter.scope(flooded()).await.err();
        assert_eq!(
            denied.map(|denied| (denied.name().to_owned(), denied.source())).unzip(),
            match source {
                Some(source) => (Some("flood".to_owned()), Some(source)),
                None => (None, None),
            }
        );
    }
    let before = scene.calls();
    for _ in 0..100 {
        assert_eq!(limiter.scope(flooded()).await.expect_err("denied").source(), Source::DeniedUntil);
    }
    assert_eq!((scene.calls() - before, seen.load(Relaxed)), (0, 102));
    scene.advance_millis(1000);
    assert_eq!(limiter.scope(flooded()).await.expect_err("denied").source(), Source::Store, "once a second");
}

#[tokio::test]
async fn nobody_is_denied_a_moment_too_long() {
    let scene = Scene::new();
    let limiter = scene.with(|builder| builder.remember_denials(Duration::from_secs(60))).await;
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
        scene.clock.advance(first.retry_after() - Duration::from_millis(1));
        assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil, "{name}");
        scene.advance_millis(1);
        assert!(ask(&limiter, &key("a"), &five, 1).await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn limits_and_costs_do_not_disturb_each_other() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    let three = ask(&limiter, &key("a"), &seven, 3).await.expect_err("two are left of seven");
    let again = ask(&limiter, &key("a"), &seven, 3).await.expect_err("two are left of seven");
    assert_eq!((three.source(), again.source(), again.remaining()), (Source::Store, Source::DeniedUntil, 2));
    // More than one permit too much: some come back before it fits, so what is left changes before that.
    for _ in 0..2 {
        let four = ask(&limiter, &key("a"), &seven, 4).await.expect_err("two are left of seven");
        assert_eq!(four.source(), Source::Store);
    }
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    assert!(ask(&limiter, &key("a"), &seven, 1).await.is_ok(), "a raised limit holds at once");
    assert_eq!(
        denial(&limiter, &five).await.source(),
        Source::Store,
        "what was taken meanwhile may have made it longer"
    );
    assert!(ask(&limiter, &key("a"), &five, 0).await.is_ok(), "a cost of nothing");
    assert!(ask(&limiter, &key("b"), &five, 5).await.is_ok(), "another key");
}

#[tokio::test]
async fn what_this_process_gives_back_is_there_at_once() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let five = limit("5/10s");
    let taken = use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    limiter.refund(&taken).await.expect("given back");
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    limiter.reset(&key("a"), &five).await.expect("forgotten");
    use_up(&limiter, &five).await;
}

#[tokio::test]
async fn what_another_process_gives_back_is_noticed_within_a_second() {
    let scene = Scene::new();
    let (limiter, other) = (scene.limiter().await, scene.limiter().await);
    let five = limit("5/1h");
    use_up(&limiter, &five).await;
    denial(&limiter, &five).await;
    other.reset(&key("a"), &five).await.expect("forgotten");
    scene.advance_millis(999);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    scene.advance_millis(1);
    use_up(&limiter, &five).await;
}

#[tokio::test]
async fn a_final_denial_and_one_of_several_limits_are_the_stores() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let (five, six) = (limit("5/10s"), limit("6/1h"));
    for _ in 0..2 {
        let never = ask(&limiter, &key("a"), &five, 6).await.expect_err("never");
        assert_eq!((never.is_final(), never.source()), (true, Source::Store));
    }
    use_up(&limiter, &five).await;
    for _ in 0..2 {
        let both = limiter.check_all(&[(&key("a"), &five, 1), (&key("a"), &six, 1)]).await.expect("a decision");
        assert!(matches!(both, Decision::Denied(denied) if denied.source() == Source::Store));
    }
}

/// An answer that was on its way while the key was reset is not remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_not_undone_by_a_denial_from_before() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let five = limit("5/1h");
    for _ in 0..300 {
        let _ = limiter.check_n(&key("a"), &five, 5).await.expect("a decision");
        // Many more of the same kind are under way while it is reset; none of them is admitted by the test's clock twice.
        let floods: Vec<_> = (0..16)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { drop(limiter.check_n(&key("a"), &five, 5).await) })
            })
            .collect();
        limiter.reset(&key("a"), &five).await.expect("forgotten");
        let known = limiter.check_n(&key("a"), &five, 5).await.expect("a decision");
        let truth = limiter.peek(&key("a"), &five).await.expect("a look");
        // Whoever came first has all five; nobody is told otherwise than by the store.
        assert!(known.is_allowed() || truth.remaining() == 0, "denied what is there");
        for flood in floods {
            flood.await.expect("no panic");
        }
        limiter.reset(&key("a"), &five).await.expect("forgotten");
        assert!(ask(&limiter, &key("a"), &five, 5).await.is_ok(), "it was reset, and nobody else is there");
        limiter.reset(&key("a"), &five).await.expect("forgotten");
    }
}

/// The store was slow to answer: what it said counts from when it said it, and not from when it was asked.
#[tokio::test]
async fn a_known_denial_promises_no_instant_before_the_stores() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limit = limit("1/400ms");
    let limiter = on(&server).url(proxy.url()).connect().await.expect("the server is there");
    let mut proven = false;
    for attempt in 0..100 {
        let key = Key::new(attempt.to_string());
        assert!(ask(&limiter, &key, &limit, 1).await.is_ok());
        proxy.hold_replies();
        let before = script_calls(&server);
        let slow = begun(vec![Box::pin(ask(&limiter, &key, &limit, 1))]).await.remove(0);
        eventually("decided", async || script_calls(&server) > before).await;
        // The reply takes this long.
        tokio::time::sleep(Duration::from_millis(150)).await;
        proxy.pass();
        // Neither is denied if the machine stood still until the window was over.
        let (Err(_), Err(known)) = (slow.await, ask(&limiter, &key, &limit, 1).await) else { continue };
        assert_eq!(known.source(), Source::DeniedUntil);
        tokio::time::sleep(known.retry_after()).await;
        assert!(ask(&limiter, &key, &limit, 1).await.is_ok(), "as was promised");
        proven = true;
        break;
    }
    assert!(proven, "the machine stood still each time");
}

/// It is done all the same, once it is sent: whoever hears of that is not the caller.
#[tokio::test]
async fn a_reset_or_a_refund_that_nobody_waits_for_is_seen_at_once() {
    for resets in [true, false] {
        let scene = Scene::new();
        let proxy = Proxy::start(&scene.server);
        let limiter = scene.with(|builder| builder.url(proxy.url())).await;
        let five = limit("5/1h");
        let allowed = use_up(&limiter, &five).await;
        assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
        assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
        proxy.hold_replies();
        let (freeing, subject) = (&limiter, key("a"));
        let under_way = begun(vec![Box::pin(async {
            if resets { freeing.reset(&subject, &five).await } else { freeing.refund(&allowed).await }
        })])
        .await;
        eventually("freed in the store", async || scene.server.keys().is_empty()).await;
        drop(under_way);
        proxy.pass();
        eventually("freed", async || limiter.peek(&key("a"), &five).await.expect("a look").remaining() == 5).await;
        assert!(ask(&limiter, &key("a"), &five, 1).await.is_ok(), "reset: {resets}");
    }
}

/// By whichever way they are taken: with more there, what was said of fewer holds no longer.
#[tokio::test]
async fn permits_that_go_with_others_make_it_ask_again() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    let (five, seven) = (limit("5/10s"), limit("7/10s"));
    use_up(&limiter, &five).await;
    scene.advance_millis(100);
    assert_eq!(denial(&limiter, &five).await.source(), Source::Store);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    let both = limiter.check_all(&[(&key("a"), &seven, 1), (&key("b"), &seven, 1)]).await.expect("a decision");
    assert!(both.is_allowed());
    let again = denial(&limiter, &five).await;
    assert_eq!((again.source(), again.reset_after()), (Source::Store, Duration::from_secs(10)));
}

/// The store may have decided as soon as it was asked, however late its answer comes.
#[tokio::test]
async fn a_denial_that_comes_late_lasts_no_longer_for_it() {
    let scene = Scene::new();
    let proxy = Proxy::start(&scene.server);
    let remember = Duration::from_secs(60);
    let limiter = scene.with(|builder| builder.url(proxy.url()).remember_denials(remember)).await;
    let five = limit("5/10s");
    use_up(&limiter, &five).await;
    proxy.hold_replies();
    let before = scene.calls();
    let late = begun(vec![Box::pin(denial(&limiter, &five))]).await.remove(0);
    eventually("decided", async || scene.calls() > before).await;
    scene.advance_millis(500);
    proxy.pass();
    assert_eq!(late.await.source(), Source::Store);
    assert_eq!(denial(&limiter, &five).await.source(), Source::DeniedUntil);
    scene.advance_millis(9_500);
    assert!(ask(&limiter, &key("a"), &five, 1).await.is_ok());
}
