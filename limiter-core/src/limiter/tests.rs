use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::{
    Algorithm, Builder, Decision, Error, ErrorKind, Key, Limit, ManualClock, Mode, OnError, Rule, RuleSet, Source,
};

/// Changes a limiter to what a child of `fork` inherits. Calls `run` with it while every lock of the parent is held, as by
/// a thread that the child does not have.
fn in_child_with_held_locks<R>(limiter: &mut Limiter, run: impl FnOnce(&Limiter) -> R) -> R {
    Arc::get_mut(&mut limiter.insides).expect("the only handle").inherit();
    let parent = limiter.insides.of_parent();
    parent.rules.with_state_locked(|| {
        let Backend::Memory(store) = &parent.backend else { panic!("a store in memory") };
        store.with_all_locked(|| run(limiter))
    })
}

fn result_of(decision: Result<Decision, Error>) -> Result<(bool, Source), ErrorKind> {
    match decision {
        Ok(Decision::Allowed(allowed)) => Ok((true, allowed.source())),
        Ok(Decision::Denied(denied)) => Ok((false, denied.source())),
        Err(error) => Err(error.kind()),
    }
}

#[test]
fn a_child_takes_no_lock_of_its_parent() {
    let (key, limit, allowed) = (Key::new("a"), Limit::WIDEST, Ok((true, Source::Store)));
    let mut limiter = Builder::default().max_keys(1).memory(RuleTable::of_environment());
    in_child_with_held_locks(&mut limiter, |limiter| {
        assert_eq!(result_of(limiter.check_blocking(&key, &limit)), allowed);
        assert_eq!(result_of(limiter.check_n_blocking(&key, &limit, 2)), allowed);
        let both = [(&key, &limit, 1), (&key, &limit, 1)];
        assert_eq!(result_of(limiter.check_all_blocking(&both)), allowed);
        assert_eq!(result_of(limiter.peek_blocking(&key, &limit)), allowed);
        assert_eq!(result_of(limiter.wait_blocking(&key, &limit, Duration::from_secs(60))), allowed);
        assert_eq!(result_of(limiter.named("a rule").check_blocking(&key, &limit)), allowed);
        limiter.set_rules(RuleSet::new().rule("a rule", Rule::new().limit(limit))).expect("valid");
        assert_eq!(result_of(limiter.named("a rule").check_blocking(&key, &limit)), allowed);
        limiter.reset_blocking(&key, &limit).expect("reset");
    });
}

/// The counts of a limiter in memory are those of a process. The rules are those of the fork.
#[test]
fn a_limiter_in_memory_begins_empty_in_a_child_with_the_rules_of_its_parent() {
    let (key, limit) = (Key::new("a"), "2/1m".parse().expect("a limit"));
    let mut limiter = Limiter::memory();
    limiter.set_rules(RuleSet::new().rule("a rule", Rule::new().limit(limit))).expect("valid");
    let call = |limiter: &Limiter| limiter.named("a rule").check_blocking(&key, &Limit::WIDEST).expect("decides");
    let Decision::Allowed(of_parent) = call(&limiter) else { panic!("the first call") };
    Arc::get_mut(&mut limiter.insides).expect("the only handle").inherit();
    let error = limiter.refund_blocking(&of_parent).expect_err("the parent has counted it");
    assert_eq!(error.kind(), ErrorKind::Forked);
    let allowed = [(); 3].map(|()| call(&limiter).is_allowed());
    assert_eq!(allowed, [true, true, false]);
    let another = Limiter::memory().refund_blocking(&of_parent).expect_err("another limiter");
    assert_eq!(another.kind(), ErrorKind::Config);
}

#[cfg(feature = "redis")]
#[test]
fn a_child_begins_its_own_totals_of_activity() {
    use crate::store::redis::ActivitySource;

    let mut limiter = Limiter::builder().activity(crate::Activity::new("test")).build().expect("valid");
    let (key, limit) = (Key::new("a"), "5/10s".parse().expect("a limit"));
    let has_totals = |limiter: &Limiter| {
        let activity = limiter.inside().observers.activity().expect("it is on");
        activity.next_entry("0123456789abcdef host 1", &str::to_owned).is_some()
    };
    assert!(limiter.check_blocking(&key, &limit).expect("decides").is_allowed() && has_totals(&limiter));
    Arc::get_mut(&mut limiter.insides).expect("the only handle").inherit();
    assert!(!has_totals(&limiter));
    assert!(limiter.check_blocking(&key, &limit).expect("decides").is_allowed() && has_totals(&limiter));
}

/// Returns the result of one poll, if it is ready.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_waiting_call_takes_its_whole_cost_or_nothing() {
    let (clock, key, limit) = (ManualClock::new(), Key::new("a"), "5/10s".parse().expect("a limit"));
    let limiter = Builder::default().clock(clock.clone()).memory(RuleTable::of_environment());
    assert_eq!(result_of(limiter.check_n_blocking(&key, &limit, 3)), Ok((true, Source::Store)));
    let mut wait = pin!(limiter.wait_n(&key, &limit, 4, Duration::from_secs(60)));
    assert!(poll_once(wait.as_mut()).is_none());
    assert_eq!(limiter.peek_blocking(&key, &limit).expect("decides").remaining(), 2, "nothing is taken yet");
    clock.advance(Duration::from_secs(10));
    let decision = poll_once(wait.as_mut()).expect("ready").expect("decides");
    assert!(decision.is_allowed());
    assert_eq!(decision.remaining(), 1);
    let denied = limiter.wait_n_blocking(&key, &limit, 2, Duration::from_secs(9)).expect("decides");
    assert_eq!((denied.is_denied(), denied.remaining()), (true, 1), "it cannot be served within its wait");
    assert!(limiter.wait_n_blocking(&key, &limit, 1, Duration::ZERO).expect("decides").is_allowed());
}

#[test]
fn a_wait_for_more_than_the_limit_ever_allows_is_denied_at_once() {
    let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), "5/10s".parse::<Limit>().expect("a limit"));
    let bucket = limit.with_algorithm(Algorithm::LeakyBucket).with_burst(3).expect("a bucket");
    for (limit, cost) in [(limit, 6), (bucket, 4)] {
        let decision = limiter.wait_n_blocking(&key, &limit, cost, Duration::from_secs(3_600)).expect("decides");
        assert!(decision.into_result().expect_err("denied").is_final());
        assert!(limiter.wait_n_blocking(&key, &limit, 0, Duration::ZERO).expect("decides").is_allowed());
    }
}

/// A subscriber that records the fields of warnings.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Returns the warnings of this thread while `run` ran.
    #[cfg(feature = "leases")]
    pub(crate) fn during(run: impl FnOnce()) -> Vec<String> {
        let warnings = Self::default();
        tracing::subscriber::with_default(warnings.clone(), run);
        warnings.0.lock().expect("no panic").clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.0.lock().expect("no panic").push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_burst_that_no_algorithm_uses_is_one_warning_for_each_rule() {
    let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), "50/10s".parse::<Limit>().expect("a limit"));
    let bucket = limit.with_algorithm(Algorithm::TokenBucket);
    let rule = || Rule::new().burst(7);
    let rules = RuleSet::new().rule("own window", rule()).rule("own bucket", rule());
    limiter.set_rules(rules.rule("configured", rule().limit(limit))).expect("valid");
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for (name, limit) in [("own window", limit), ("own bucket", bucket), ("configured", limit)] {
            let named = limiter.named(name);
            assert!((0..3).all(|_| named.check_blocking(&key, &limit).expect("memory").is_allowed()));
        }
    });
    let lines = warnings.0.lock().expect("no panic").clone();
    let is_about = |line: &String, name| line.contains("a rule has a burst") && line.contains(name);
    assert!(lines.len() == 2 && is_about(&lines[0], "own window") && is_about(&lines[1], "configured"), "{lines:?}");
}

#[test]
fn a_layout_that_the_limit_of_a_call_lacks_is_logged_once() {
    let limiter = Builder::default().on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (Key::new("a"), "50/10s".parse::<Limit>().expect("a limit"));
    limiter.set_rules(RuleSet::new().rule("a", Rule::new().layout(crate::Layout::Zset))).expect("valid");
    let bucket = limit.with_algorithm(Algorithm::TokenBucket);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        assert!(limiter.named("a").check_blocking(&key, &limit).expect("a sorted set").is_allowed());
        for _ in 0..3 {
            let error = limiter.named("a").check_blocking(&key, &bucket).expect_err("no such layout");
            assert_eq!(error.kind(), ErrorKind::InvalidLimit);
        }
    });
    let lines = warnings.0.lock().expect("no panic").clone();
    assert!(lines.len() == 1 && lines[0].contains("do not suit its limit"), "{lines:?}");
}

/// A payload whose drop panics as well.
struct PanicInDrop;

impl Drop for PanicInDrop {
    fn drop(&mut self) {
        panic!("a panic of the drop");
    }
}

#[test]
fn the_payload_of_an_observers_panic_affects_no_call() {
    let limiter = Limiter::builder().on_allowed(|_| std::panic::panic_any(PanicInDrop)).build().expect("builds");
    let decision = limiter.check_blocking(&Key::new("a"), &"1/min".parse().expect("a limit"));
    assert!(decision.expect("decides").is_allowed());
}

#[test]
fn each_change_of_the_rules_has_a_generation_of_its_own() {
    let (limiter, other) = (Limiter::memory(), Limiter::memory());
    assert_eq!(limiter.rules_generation(), 0);
    let set = |limiter: &Limiter, max| {
        let limit = Limit::new(max, Duration::from_secs(1)).expect("a limit");
        limiter.set_rules(RuleSet::new().rule("a", Rule::new().limit(limit))).expect("valid");
        limiter.rules_generation()
    };
    let generations = [set(&limiter, 1), set(&limiter, 2), set(&limiter, 2), set(&other, 1)];
    for (index, generation) in generations.iter().enumerate() {
        assert!(*generation != 0 && !generations[..index].contains(generation), "{generations:?}");
    }
    limiter.set_rules(RuleSet::new()).expect("empty");
    assert_eq!(limiter.rules_generation(), 0);
}

#[cfg(feature = "rules")]
#[test]
fn a_rule_in_force_has_the_key_that_a_set_states() {
    let text = "[rules.stated]\nkey = \"user:{id}\"\nlimit = \"1/s\"\n[rules.\"user:{id}\"]\nlimit = \"1/s\"";
    let rules: RuleSet = text.parse().expect("rules");
    let limiter = Limiter::builder().url("memory:").rules(rules).build().expect("valid");
    let in_force = limiter.rules();
    let key_of = |name| in_force.iter().find(|rule| rule.name() == name).expect("in force").key();
    assert_eq!((key_of("stated"), key_of("user:{id}")), (Some("user:{id}"), None));
}

#[test]
fn the_limits_of_a_rule_in_force_have_its_algorithm() {
    let limit = "5/s".parse::<Limit>().expect("a limit");
    let rule = Rule::new().limit(limit).algorithm(Algorithm::TokenBucket).burst(9);
    let limiter = Limiter::builder().url("memory:").rule("a", rule).build().expect("valid");
    let expected = limit.with_algorithm(Algorithm::TokenBucket).with_burst(9).expect("a burst");
    assert_eq!(limiter.rules()[0].limits(), [expected]);
    let of_calls = limiter.named("a").limits_for(&Key::new("k"), &"1/h".parse().expect("a limit"));
    assert_eq!(of_calls.expect("valid"), [expected]);
}

#[cfg(feature = "test-util")]
#[test]
fn a_call_has_the_shorter_of_its_deadline_and_the_callers() {
    let (key, limit) = (Key::new("a"), Limit::new(5, Duration::from_secs(10)).expect("valid"));
    // The store takes 20 ms.
    let builder = Limiter::builder().slow(Duration::from_millis(20)).on_error(OnError::Raise);
    let builder = builder.deadline(Duration::from_secs(30));
    let limiter = builder.rule("own", Rule::new().deadline(Duration::from_millis(2))).build().expect("valid");
    let most = Duration::from_millis(5);
    let timed_out = |error: Error| error.kind() == ErrorKind::Timeout;
    let named = limiter.named("any").deadline_at_most(most);
    assert!(named.check_blocking(&key, &limit).is_err_and(timed_out));
    let rules = [("any", &key, &limit, 1), ("other", &key, &limit, 1)];
    assert!(crate::run::block_on(limiter.check_rules_within(&rules, most)).is_err_and(timed_out));
    assert!(
        crate::run::block_on(limiter.named("any").deadline_at_most(most).charge(&key, &limit, 1)).is_err_and(timed_out)
    );
    // Without it, or with a longer one, each has its own: that of the limiter, or of the rule.
    assert!(limiter.named("any").check_blocking(&key, &limit).is_ok());
    assert!(crate::run::block_on(limiter.check_rules_within(&rules, Duration::from_secs(20))).is_ok());
    assert!(
        limiter
            .named("own")
            .deadline_at_most(Duration::from_secs(1))
            .check_blocking(&key, &limit)
            .is_err_and(timed_out)
    );
}

#[test]
fn the_rules_of_the_builder_change_below_those_of_the_other_levels() {
    let limiter =
        Limiter::builder().rule("a", Rule::new().limit("1/s".parse().expect("valid"))).build().expect("valid");
    let limits = || {
        let rules = limiter.rules();
        rules.iter().map(|rule| format!("{} {:?} {:?}", rule.name(), rule.limits(), rule.key())).collect::<Vec<_>>()
    };
    let set = |text: &str| RuleSet::new().rule("b", Rule::new().limit(text.parse().expect("valid")).key("b:{id}"));
    limiter.set_builder_rules(set("2/s")).expect("valid");
    assert_eq!(limits(), ["b [Limit(2/s)] Some(\"b:{id}\")"]);
    limiter.set_rules(RuleSet::new().rule("b", Rule::new().limit("3/s".parse().expect("valid")))).expect("valid");
    assert_eq!(limits(), ["b [Limit(3/s)] Some(\"b:{id}\")"]);
    let other_key = RuleSet::new().rule("b", Rule::new().key("c:{id}"));
    limiter.set_rules(RuleSet::new().rule("b", Rule::new().key("b:{id}"))).expect("valid");
    assert!(limiter.set_builder_rules(other_key).is_err());
    limiter.set_builder_rules(RuleSet::new()).expect("valid");
    assert_eq!(limits(), ["b [] Some(\"b:{id}\")"]);
}

#[test]
fn a_charge_counts_under_a_postpaid_rule() {
    let (key, other, limit) = (Key::new("a"), Key::new("b"), Limit::new(10, Duration::from_secs(10)).expect("valid"));
    for mode in [Mode::Enforce, Mode::Shadow] {
        let rule = Rule::new().postpaid(true).mode(mode);
        let limiter = Limiter::builder().rule("later", rule).build().expect("valid");
        let later = limiter.named("later");
        let items = [(&key, &limit, 4), (&other, &limit, 1)];
        let usage = crate::run::block_on(later.charge_all(&items)).expect("memory");
        assert_eq!(usage.remaining(), 6, "{mode:?}");
        assert_eq!(later.charge_blocking(&other, &limit, 2).expect("memory").remaining(), 7, "{mode:?}");
    }
}
