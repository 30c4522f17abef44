//! Tests of rules in shadow mode that use a counter of other rules of the call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter_testkit::{Cluster, RedisServer, unique};
use rate_limited::{
    Allowed, Builder, Decision, Denied, Error, ErrorKind, Key, Layout, Limiter, Mode, OnError, Rule, RuleSet, Source,
};

use super::one_counter::{allowed, builders};
use crate::cluster;
use crate::support::{Subject, builder_for, key, limit};

/// The decisions of a rule in shadow mode.
#[derive(Clone, Default)]
struct Shadowed(Arc<Mutex<Vec<Denied>>>);

impl Shadowed {
    fn observe(&self, builder: Builder) -> Builder {
        let denials = Arc::clone(&self.0);
        builder.on_shadowed(move |denied| denials.lock().expect("no panic").push(denied.clone()))
    }

    fn take(&self) -> Vec<Denied> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn trials() -> RuleSet {
    ["trial", "trial 2", "trial 3"]
        .into_iter()
        .fold(RuleSet::new(), |rules, name| rules.rule(name, Rule::new().mode(Mode::Shadow)))
}

/// Creates a limiter on each store, with trial rules in shadow mode.
async fn with_trial(configure: impl Fn(Builder) -> Builder) -> [Subject; 2] {
    let [memory, redis] = [Limiter::builder(), builder_for(RedisServer::timeless())].map(configure);
    let subjects = [Subject::with_builder(memory).await, Subject::with_builder(redis).await];
    for subject in &subjects {
        subject.limiter.set_rules(trials()).expect("valid rules");
    }
    subjects
}

#[tokio::test]
async fn a_rule_in_shadow_mode_takes_nothing_of_an_enforced_counter_and_decides_as_if_enforced() {
    let shadowed = Shadowed::default();
    for subject in with_trial(|builder| shadowed.observe(builder)).await {
        let (key, enforced, trial) = (key("a"), limit("6/1m"), limit("3/1m"));
        let call = async || {
            let rules = [("all", &key, &enforced, 1), ("trial", &key, &trial, 1)];
            subject.limiter.check_rules(&rules).await.expect("the store answers")
        };
        for taken in 1..=6 {
            let allowed = allowed(call().await);
            assert_eq!((allowed.name(), allowed.remaining()), ("all", 6 - taken));
            assert_eq!(allowed.shadowed().is_some(), taken > 3, "{taken}");
            if let Some(denied) = allowed.shadowed() {
                assert_eq!((denied.name(), denied.remaining()), ("trial", 0));
                assert_eq!((denied.limit(), denied.retry_after()), (trial, Duration::from_secs(60)));
            }
        }
        assert!(call().await.is_denied());
        assert_eq!(shadowed.take().len(), 3);
    }
}

#[tokio::test]
async fn permits_of_a_counter_that_a_rule_in_shadow_mode_shares_come_back_by_one_refund() {
    for subject in with_trial(|builder| builder).await {
        let (key, other, enforced, trial) = (key("a"), Key::new("other"), limit("6/1m"), limit("6/1m"));
        let rules = [("all", &key, &enforced, 2), ("trial", &key, &trial, 1), ("trial", &other, &trial, 1)];
        let allowed = allowed(subject.limiter.check_rules(&rules).await.expect("the store answers"));
        let left = async |key: &Key| subject.limiter.peek(key, &enforced).await.expect("the store answers").remaining();
        assert_eq!((left(&key).await, left(&other).await), (4, 5), "its other counter counts as before");
        subject.limiter.refund(&allowed).await.expect("the store answers");
        assert_eq!((left(&key).await, left(&other).await), (6, 6));
    }
}

#[tokio::test]
async fn concurrent_calls_under_a_rule_in_shadow_mode_are_decided_one_after_the_other() {
    let shadowed = Shadowed::default();
    for subject in with_trial(|builder| shadowed.observe(builder)).await {
        let (key, enforced, trial) = (key("a"), limit("60/1m"), limit("25/1m"));
        let rules = [("all", &key, &enforced, 1), ("trial", &key, &trial, 1)];
        let calls = (0..80).map(|_| subject.limiter.check_rules(&rules));
        let decisions = futures_util::future::join_all(calls).await;
        let admitted = decisions.into_iter().filter(|decision| decision.as_ref().is_ok_and(Decision::is_allowed));
        assert_eq!((admitted.count(), shadowed.take().len()), (60, 35));
    }
}

/// Calls under an enforced rule and a trial rule that differ in the layout, one way and the other.
async fn layouts_have_counters_of_their_own(builder: Builder) {
    let shadowed = Shadowed::default();
    let limiter = shadowed.observe(builder).on_error(OnError::Raise).rules(trials()).connect().await.expect("a store");
    let in_layout = |text, layout| limit(text).with_layout(layout).expect("a sliding window");
    for (enforced, trial) in [(Layout::Zset, Layout::Compact), (Layout::Compact, Layout::Zset)] {
        // Keys have no prefix in the sorted sets.
        let key = Key::new(unique("layout"));
        let (enforced, trial) = (in_layout("6/1h", enforced), in_layout("3/1h", trial));
        let rules = [("all", &key, &enforced, 1), ("trial", &key, &trial, 1)];
        for taken in 1..=6 {
            let allowed = allowed(limiter.check_rules(&rules).await.expect("the store answers"));
            assert_eq!((allowed.remaining(), allowed.source()), (6 - taken, Source::Store));
            assert_eq!(allowed.shadowed().is_some(), taken > 3, "{enforced:?}, call {taken}");
        }
        assert!(limiter.check_rules(&rules).await.expect("the store answers").is_denied());
        assert_eq!(shadowed.take().len(), 3);
        let left = limiter.peek(&key, &trial).await.expect("the store answers").remaining();
        assert_eq!(left, 0, "three calls in {:?}", trial.layout());
    }
}

#[tokio::test]
async fn layouts_have_counters_of_their_own_in_memory() {
    layouts_have_counters_of_their_own(Limiter::builder()).await;
}

#[tokio::test]
async fn layouts_have_counters_of_their_own_on_one_server() {
    layouts_have_counters_of_their_own(builder_for(RedisServer::shared())).await;
}

#[tokio::test]
async fn layouts_have_counters_of_their_own_on_a_cluster() {
    let cluster = Cluster::builder().masters_only().start();
    layouts_have_counters_of_their_own(cluster::builder_for(&cluster)).await;
}

/// A limiter with `hash_keys` can use no sorted set. That must not concern the enforced rules.
#[tokio::test]
async fn a_trial_that_cannot_be_decided_fails_alone() {
    let builder = builder_for(RedisServer::shared()).hash_keys([7; 32]).on_error(OnError::Raise).rules(trials());
    let limiter = builder.connect().await.expect("a store");
    let (key, enforced) = (key("a"), limit("6/1h"));
    let trial = limit("3/1h").with_layout(Layout::Zset).expect("a sliding window");
    for taken in 1..=6 {
        let rules = [("all", &key, &enforced, 1), ("trial", &key, &trial, 1)];
        let allowed = allowed(limiter.check_rules(&rules).await.expect("the enforced rule is valid"));
        assert_eq!((allowed.remaining(), allowed.source()), (6 - taken, Source::Store));
    }
}

#[tokio::test]
async fn trials_on_an_enforced_counter_are_reported_each_by_itself() {
    let shadowed = Shadowed::default();
    for subject in with_trial(|builder| shadowed.observe(builder)).await {
        let (key, limits) = (key("a"), ["6/1m", "3/1m", "2/1m"].map(limit));
        for denials in [&[][..], &[], &["trial 2"], &["trial", "trial 2"]] {
            let rules =
                [("all", &key, &limits[0], 1), ("trial", &key, &limits[1], 1), ("trial 2", &key, &limits[2], 1)];
            allowed(subject.limiter.check_rules(&rules).await.expect("the store answers"));
            let reported = shadowed.take();
            let names: Vec<_> = reported.iter().map(Denied::name).collect();
            assert_eq!(names, denials);
        }
    }
}

/// No enforced rule uses the counter. The third trial connects those before it.
#[tokio::test]
async fn trials_on_one_counter_take_its_permits_once() {
    let (shadowed, admitted) = (Shadowed::default(), Arc::new(Mutex::new(Vec::new())));
    let observe = |builder| {
        let admitted = Arc::clone(&admitted);
        shadowed.observe(builder).on_allowed(move |allowed: &Allowed| {
            admitted.lock().expect("no panic").push(allowed.name().to_owned());
        })
    };
    for subject in with_trial(observe).await {
        let (a, b, c, limits) = (key("a"), key("b"), key("c"), ["3/1m", "9/1m"].map(limit));
        let rules = [
            ("trial", &a, &limits[0], 1),
            ("trial 2", &b, &limits[1], 2),
            ("trial 3", &a, &limits[1], 1),
            ("trial 3", &b, &limits[1], 1),
            ("all", &c, &limits[1], 1),
        ];
        let left = async || {
            let left = async |key| subject.limiter.peek(key, &limits[1]).await.expect("the store answers").remaining();
            [left(&a).await, left(&b).await, left(&c).await]
        };
        let call = async || allowed(subject.limiter.check_rules(&rules).await.expect("the store answers"));
        let first = call().await;
        assert_eq!(left().await, [8, 7, 8]);
        let names = std::mem::take(&mut *admitted.lock().expect("no panic"));
        assert_eq!(names, ["all", "trial", "trial 2", "trial 3", "trial 3"]);
        subject.limiter.refund(&first).await.expect("the store answers");
        assert_eq!(left().await, [9, 9, 9]);
        for taken in 1..=3 {
            assert!(call().await.shadowed().is_none());
            assert_eq!(left().await, [9 - taken, 9 - 2 * taken, 9 - taken]);
        }
        assert_eq!(call().await.shadowed().map(Denied::name), Some("trial"));
        assert_eq!(left().await, [6, 3, 5], "if one of them denies, the others do not count the call");
        assert_eq!(shadowed.take().len(), 1);
        admitted.lock().expect("no panic").clear();
    }
}

/// A trial does not take the protection of a hot key away.
#[tokio::test]
async fn denials_of_a_rule_with_a_trial_are_cached() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).rules(trials()).connect().await.expect("a store");
    let (key, enforced, trial) = (key("a"), limit("2/1h"), limit("1/1h"));
    let rules = [("all", &key, &enforced, 1), ("trial", &key, &trial, 1), ("trial 2", &key, &trial, 1)];
    let check = async || limiter.check_rules(&rules).await.expect("the store answers").into_result();
    let first = check().await.expect("two are allowed");
    check().await.expect("two are allowed");
    let denied = check().await.expect_err("two are allowed");
    assert_eq!((denied.source(), denied.name(), denied.limit()), (Source::Store, "all", enforced));
    let calls = server.script_calls();
    for _ in 0..3 {
        let denied = check().await.expect_err("two are allowed");
        assert_eq!((denied.source(), denied.name(), denied.limit()), (Source::DeniedUntil, "all", enforced));
    }
    assert_eq!(server.script_calls(), calls);
    limiter.refund(&first).await.expect("the store answers");
    assert!(check().await.is_ok(), "a permit came back");
}

/// The errors of a limiter.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<Vec<ErrorKind>>>);

impl Failures {
    fn observe(&self, builder: Builder) -> Builder {
        let errors = Arc::clone(&self.0);
        builder.on_failure(move |error: &Error| errors.lock().expect("no panic").push(error.kind()))
    }

    fn take(&self) -> Vec<ErrorKind> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

#[tokio::test]
async fn too_many_limits_in_shadow_mode_deny_nothing() {
    let failures = Failures::default();
    for builder in builders() {
        let builder = failures.observe(builder).on_error(OnError::Closed).rules(trials());
        let limiter = builder.connect().await.expect("a store");
        let (a, b, limit) = (key("a"), key("b"), limit("1000/1h"));
        let check = async |trials: &[(&'static str, &Key, u32)]| {
            let all = [("all", &a, &limit, 1); 128];
            let trials = trials.iter().flat_map(|&(name, key, count)| (0..count).map(move |_| (name, key)));
            let rules: Vec<_> = all.into_iter().chain(trials.map(|(name, key)| (name, key, &limit, 1))).collect();
            allowed(limiter.check_rules(&rules).await.expect("the store answers")).remaining()
        };
        let left = async || limiter.peek(&b, &limit).await.expect("the store answers").remaining();
        assert_eq!((check(&[("trial", &b, 128)]).await, left().await), (872, 872), "two decisions");
        assert_eq!(failures.take(), []);
        assert_eq!((check(&[("trial", &a, 1), ("trial 2", &b, 1)]).await, left().await), (744, 872));
        assert_eq!(failures.take(), [ErrorKind::InvalidLimit], "one too many to observe");
        let items = [(&b, &limit, 1); 129];
        let allowed = allowed(limiter.named("trial").check_all(&items).await.expect("the store answers"));
        assert_eq!((allowed.is_enforced(), left().await), (false, 872));
        assert_eq!(failures.take(), [ErrorKind::InvalidLimit]);
    }
}
