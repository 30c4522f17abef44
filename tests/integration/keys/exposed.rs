//! Tests of `expose_keys`: decisions have the key that they describe, and no limiter exposes keys unasked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Builder, Decision, Key, Limit, Limiter, OnError, Source, rate_limited};

use crate::support::{builder_for, limit};

const SECRET: [u8; 16] = [7; 16];

fn shown(decision: &Decision) -> Option<String> {
    match decision {
        Decision::Allowed(allowed) => allowed.key(),
        Decision::Denied(denied) => denied.key(),
    }
    .map(str::to_owned)
}

/// The keys that observers have seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Option<String>>>>);

impl Seen {
    fn observe(&self, builder: Builder) -> Builder {
        let (allowed, denied) = (self.clone(), self.clone());
        let push = |seen: &Self, key: Option<&str>| seen.0.lock().expect("no panic").push(key.map(str::to_owned));
        builder
            .on_allowed(move |decision| push(&allowed, decision.key()))
            .on_denied(move |decision| push(&denied, decision.key()))
    }

    fn take(&self) -> Vec<Option<String>> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// Each kind of direct call, allowed and denied. `expected` is the text of the keys `a` and `user:@1`.
async fn assert_decisions_have_keys(builder: Builder, expected: [Option<&str>; 2]) {
    let seen = Seen::default();
    let limiter = seen.observe(builder).connect().await.expect("connects");
    let (keys, limits) = ([Key::new("a"), Key::new("user:").part(1)], [limit("2/1h"), limit("1/1h")]);
    let expected = expected.map(|key| key.map(str::to_owned));
    let both = [(&keys[0], &limits[0], 1), (&keys[1], &limits[1], 1)];
    let limits_of_one = [(&keys[1], &limits[1], 1), (&keys[0], &limits[0], 2)];
    let max_wait = Duration::from_millis(1);
    let answered = |decision: Result<Decision, _>| shown(&decision.expect("answers"));

    assert_eq!(answered(limiter.peek(&keys[1], &limits[1]).await), expected[1]);
    assert_eq!(seen.take(), [], "a peek is not observed");
    let decisions = [
        answered(limiter.check_all(&both).await),
        answered(limiter.check_all(&both).await),
        answered(limiter.check(&keys[1], &limits[1]).await),
        answered(limiter.check(&keys[1], &limits[1]).await),
        answered(limiter.check_n(&keys[0], &limits[0], 1).await),
        answered(limiter.check_n(&keys[0], &limits[0], 9).await),
        answered(limiter.wait(&keys[1], &limits[1], max_wait).await),
        answered(limiter.check_all(&limits_of_one).await),
    ];
    let [a, user] = expected;
    let described = [&user, &user, &user, &user, &a, &a, &user, &user].map(Clone::clone);
    assert_eq!(decisions, described);
    // The first decision, which is about two rules, is reported for each of them.
    let reported: Vec<_> = [a.clone()].into_iter().chain(described).collect();
    assert_eq!(seen.take(), reported);
    limiter.reset(&keys[0], &limits[0]).await.expect("reset");
    assert_eq!(answered(limiter.wait(&keys[0], &limits[0], max_wait).await), a);
    assert_eq!(answered(limiter.check_all(&[]).await), None, "there is no key");
    assert_eq!(seen.take(), [a, None]);
}

#[tokio::test]
async fn decisions_have_the_key_that_they_describe() {
    let server = RedisServer::start();
    let (plain, none) = ([Some("a"), Some("user:@1")], [None, None]);
    assert_decisions_have_keys(Limiter::builder().expose_keys(), plain).await;
    assert_decisions_have_keys(Limiter::builder().hash_keys(SECRET).expose_keys(), plain).await;
    assert_decisions_have_keys(builder_for(&server).expose_keys(), plain).await;
    assert_decisions_have_keys(Limiter::builder(), none).await;
    assert_decisions_have_keys(builder_for(&server), none).await;
    assert_decisions_have_keys(builder_for(&server).hash_keys(SECRET), none).await;
}

/// With a secret they have the digests that are in the names of Redis, and a key read from one has the same.
#[tokio::test]
async fn decisions_have_the_digest_that_redis_has() {
    let server = RedisServer::start();
    let builder = || builder_for(&server).prefix("rl").hash_keys(SECRET);
    let names = builder().connect().await.expect("connects");
    let subject = |key: &Key| {
        let name = names.store_key(key, &limit("1/1h")).expect("a name");
        name.split(['{', '}']).nth(1).expect("a hash tag").to_owned()
    };
    let digests = [subject(&Key::new("a")), subject(&Key::new("user:").part(1))];
    assert!(digests.iter().all(|digest| digest.len() == 33 && digest.starts_with('+')), "{digests:?}");
    assert_decisions_have_keys(builder().expose_keys(), digests.each_ref().map(|digest| Some(digest.as_str()))).await;
    let limiter = builder().expose_keys().connect().await.expect("connects");
    let read = Key::from_encoded(&digests[0]).expect("an encoding");
    let decision = limiter.check(&read, &limit("9/1h")).await.expect("answers");
    assert_eq!(shown(&decision).as_ref(), Some(&digests[0]));
}

#[tokio::test]
async fn decisions_of_failure_policies_have_keys() {
    let unavailable = || Limiter::builder().url("redis+unix:///nowhere.sock").expose_keys();
    let (key, once) = (Key::new("user:").part(1), limit("1/1h"));
    for (policy, source) in
        [(OnError::Open, Source::Policy), (OnError::Closed, Source::Policy), (OnError::Standby, Source::Standby)]
    {
        let limiter = unavailable().on_error(policy).build().expect("a limiter");
        let decision = limiter.check(&key, &once).await.expect("a decision");
        assert_eq!((shown(&decision).as_deref(), source), (Some("user:@1"), source), "{policy:?}");
    }
    let hashed = unavailable().hash_keys(SECRET).on_error(OnError::Closed).build().expect("a limiter");
    let decision = hashed.check(&key, &once).await.expect("a decision");
    assert!(shown(&decision).is_some_and(|key| key.starts_with('+')));
}

/// Fallbacks, handlers and observers of annotated calls, whose fast path has a code of its own.
#[tokio::test]
async fn denials_of_annotated_calls_have_keys() {
    #[rate_limited(key = "user:{user_id}", limit = "1/1h", fallback = |denied| denied.key().map(str::to_owned))]
    async fn by_user(user_id: u64) -> Option<String> {
        let _ = user_id;
        None
    }
    #[rate_limited(key = "static", limits = ["1/1h", "2/2h"], fallback = |denied| denied.key().map(str::to_owned))]
    fn constant() -> Option<String> {
        None
    }
    #[rate_limited(key = "invalid", limit = plan, fallback = |denied| denied.key().map(str::to_owned))]
    fn by_plan(plan: Limit) -> Option<String> {
        let _ = plan;
        None
    }
    let server = RedisServer::start();
    let seen = Seen::default();
    let memory = seen.observe(Limiter::builder()).expose_keys().build().expect("a limiter");
    let redis = seen.observe(builder_for(&server)).expose_keys().connect().await.expect("connects");
    for limiter in [memory, redis] {
        let user = || limiter.scope(by_user(7));
        assert_eq!([user().await, user().await, user().await], [None, Some("user:@7".into()), Some("user:@7".into())]);
        let constant = || limiter.scope_sync(constant);
        assert_eq!([constant(), constant()], [None, Some("static".into())]);
        let plan = || limiter.scope_sync(|| by_plan(limit("1/1h")));
        assert_eq!([plan(), plan()], [None, Some("invalid".into())]);
        // The allowed call of `constant` is reported for each of its limits.
        let keys = ["user:@7", "user:@7", "user:@7", "static", "static", "static", "invalid", "invalid"];
        assert_eq!(seen.take(), keys.map(|key| Some(key.to_owned())));
    }
}

#[tokio::test]
async fn debug_and_display_do_not_show_the_key() {
    let secret = unique("secret");
    let limiter = Limiter::builder().expose_keys().build().expect("a limiter");
    let key = Key::new("user:").part(&secret);
    for _ in 0..2 {
        let decision = limiter.check(&key, &limit("1/1h")).await.expect("answers");
        assert!(shown(&decision).is_some_and(|key| key.contains(&secret)));
        let denied = decision.clone().into_result().err().map_or_else(String::new, |denied| denied.to_string());
        assert!(!format!("{decision:?} {denied} {limiter:?}").contains(&secret));
    }
}
