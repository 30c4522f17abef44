//! The series of the process: stores, errors, keys and sets of rules. Each test has a process of its own.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{RedisServer, unique};
use rate_limited::metrics::STORE_BUCKETS;
use rate_limited::{Change, ErrorKind, HealthState, Limiter, ManualClock, OnError, Rule, RuleSet, SharedRules};

use crate::child_process;
use crate::recorder::Collector;
use crate::{key, limit};

fn value(series: &str) -> Option<f64> {
    Collector::installed().value(series)
}

/// The number of limiters whose last set of rules was refused.
fn refused(origin: &str) -> Option<f64> {
    value(&format!(r#"rate_limited_rules_refused{{origin="{origin}"}}"#))
}

fn loads(origin: &str, outcome: &str) -> Option<f64> {
    value(&format!(r#"rate_limited_rules_loads_total{{origin="{origin}",outcome="{outcome}"}}"#))
}

/// Waits until a condition holds.
#[track_caller]
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "{what}: {:?}", Collector::installed().names());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Defines tests that run in a process of their own.
macro_rules! in_a_process {
    ($($test:ident),+ $(,)?) => {
        mod each {
            $(#[test] fn $test() {
                crate::child_process::run(concat!("process::", stringify!($test)), &[("X", "")]);
            })+
        }
    };
}
in_a_process!(
    errors_are_counted_by_kind_from_0_on,
    calls_to_a_store_are_timed_by_operation_and_outcome,
    the_number_of_keys_is_set_at_most_once_a_second_and_is_0_without_a_limiter,
    decisions_by_shared_counters_are_counted,
    sets_of_rules_are_counted_by_origin_and_outcome,
    a_refused_set_stays_on_its_gauge_until_another_is_in_force,
    shared_rules_have_a_version_and_count_their_loads,
    a_store_is_up_while_every_limiter_has_its_server,
    batches_are_recorded_and_no_worker_runs_the_recorder,
);

#[test]
fn the_buckets_rise_from_50_us_and_have_a_bound_at_the_default_deadline() {
    assert!(STORE_BUCKETS.is_sorted_by(|one, next| one < next));
    assert!(STORE_BUCKETS[0] == 0.000_05 && STORE_BUCKETS.contains(&0.1) && STORE_BUCKETS[13] == 1.0);
}

#[test]
#[ignore = "needs a process of its own"]
fn errors_are_counted_by_kind_from_0_on() {
    if !child_process::is_child() {
        return;
    }
    let limiter = Limiter::builder().failing(ErrorKind::Timeout).on_error(OnError::Raise).build().expect("builds");
    Collector::installed();
    assert!(limiter.check_blocking(&key("a"), &limit("1/s")).is_err());
    assert_eq!(value(r#"rate_limited_errors_total{kind="timeout"}"#), Some(1.0));
    assert_eq!(value(r#"rate_limited_errors_total{kind="read_only"}"#), Some(0.0));
    let kinds = Collector::installed().names().iter().filter(|name| name.contains("errors_total")).count();
    assert_eq!(kinds, 12);
}

#[test]
#[ignore = "needs a process of its own"]
fn calls_to_a_store_are_timed_by_operation_and_outcome() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let (key, limit) = (key("a"), limit("10/1m"));
    let limiter = Limiter::slow(Duration::from_millis(2));
    let allowed = limiter.check_blocking(&key, &limit).expect("decides").into_result().expect("allowed");
    let _ = limiter.peek_blocking(&key, &limit).expect("decides");
    limiter.refund_blocking(&allowed).expect("refunds");
    limiter.reset_blocking(&key, &limit).expect("resets");
    let failing = Limiter::failing(ErrorKind::Unavailable);
    let _ = failing.check_blocking(&key, &limit).expect("decides");
    for (op, outcome) in [("decide", "ok"), ("peek", "ok"), ("refund", "ok"), ("reset", "ok"), ("decide", "error")] {
        let series = format!(r#"rate_limited_store_seconds{{op="{op}",outcome="{outcome}"}}"#);
        let samples = Collector::installed().samples(&series);
        assert_eq!(samples.len(), 1, "{series}");
        assert!(outcome == "error" || samples[0] >= 0.002, "{series}: {samples:?} s");
    }
}

#[test]
#[ignore = "needs a process of its own"]
fn the_number_of_keys_is_set_at_most_once_a_second_and_is_0_without_a_limiter() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let clock = ManualClock::new();
    let build = || Limiter::builder().clock(clock.clone()).build().expect("builds");
    let (first, second, limit) = (build(), build(), limit("10/1m"));
    let check = |limiter: &Limiter, name: &str| drop(limiter.check_blocking(&key(name), &limit).expect("decides"));
    let keys = || value(r#"rate_limited_keys{source="store"}"#);
    check(&first, "a");
    assert_eq!(keys(), Some(1.0));
    check(&first, "b");
    check(&first, "c");
    assert_eq!(keys(), Some(1.0), "less than a second later");
    check(&second, "a");
    assert_eq!(keys(), Some(2.0), "the limiters add up");
    clock.advance(Duration::from_secs(1));
    check(&first, "a");
    assert_eq!(keys(), Some(4.0));
    // A limiter whose store fails counts in its standby limiter.
    let failing = Limiter::builder().failing(ErrorKind::Timeout).clock(clock.clone()).build().expect("builds");
    check(&failing, "a");
    assert_eq!(value(r#"rate_limited_keys{source="standby"}"#), Some(1.0));
    drop((first, failing));
    assert_eq!((keys(), value(r#"rate_limited_keys{source="standby"}"#)), (Some(1.0), Some(0.0)));
}

#[test]
#[ignore = "needs a process of its own"]
fn decisions_by_shared_counters_are_counted() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let limiter = Limiter::builder().max_keys(1).clock(ManualClock::new()).build().expect("builds");
    let overflow = || value(r#"rate_limited_overflow_total{source="store"}"#);
    for (name, total) in [("a", 0.0), ("b", 1.0)] {
        let _ = limiter.check_blocking(&key(name), &limit("10/1m")).expect("decides");
        assert_eq!(overflow(), Some(total));
    }
}

#[test]
#[ignore = "needs a process of its own"]
fn sets_of_rules_are_counted_by_origin_and_outcome() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    fs::write(&file, "[rules.a]\nlimit = \"5/s\"\n").expect("writes");
    let rule = |text: &str| RuleSet::new().rule("b", Rule::new().limit(limit(text)));
    let limiter = Limiter::builder().rules(rule("5/s")).rules_file(&file).build().expect("builds");
    assert_eq!((loads("file", "ok"), loads("file", "refused")), (Some(1.0), Some(0.0)));
    assert_eq!((loads("builder", "ok"), loads("builder", "refused")), (Some(1.0), Some(0.0)));
    limiter.set_rules(rule("6/s")).expect("valid");
    let twice = RuleSet::new().rule("b", Rule::new().limit(limit("6/s")).deadline(Duration::ZERO));
    assert!(limiter.set_rules(twice).is_err());
    assert_eq!((loads("runtime", "ok"), loads("runtime", "refused")), (Some(1.0), Some(1.0)));
    fs::write(&file, "[rules.a]\nlimit = 5\n").expect("writes");
    eventually("refused", || loads("file", "refused") == Some(1.0));
    fs::write(&file, "[rules.a]\nlimit = \"7/s\"\n").expect("writes");
    eventually("in force", || loads("file", "ok") == Some(2.0));
    assert_eq!(loads("file", "refused"), Some(1.0), "a mistake counts once");
}

#[test]
#[ignore = "needs a process of its own"]
fn a_refused_set_stays_on_its_gauge_until_another_is_in_force() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    let write = |text: &str| fs::write(&file, text).expect("writes");
    write("[rules.a]\nlimit = \"5/s\"\n");
    let build = || Limiter::builder().rules_file(&file).build().expect("builds");
    let [one, other] = [build(), build()];
    assert_eq!(refused("file"), Some(0.0));
    write("[rules.a]\nlimit = 5\n");
    eventually("both are refused", || refused("file") == Some(2.0));
    // Another mistake is no second refusal.
    write("[rules.a]\nlimit = 6\n");
    eventually("refused again", || loads("file", "refused") == Some(4.0));
    assert_eq!(refused("file"), Some(2.0));
    drop(other);
    assert_eq!(refused("file"), Some(1.0), "a dropped limiter has no rules");
    write("[rules.a]\nlimit = \"6/s\"\n");
    eventually("in force", || refused("file") == Some(0.0));
    let set = |deadline| one.set_rules(RuleSet::new().rule("b", Rule::new().deadline(deadline)));
    assert!(set(Duration::ZERO).is_err());
    assert!(set(Duration::ZERO).is_err());
    assert_eq!(refused("runtime"), Some(1.0));
    set(Duration::from_secs(1)).expect("valid");
    assert_eq!(refused("runtime"), Some(0.0));
    assert!(set(Duration::ZERO).is_err());
    drop(one);
    assert_eq!((refused("runtime"), refused("file")), (Some(0.0), Some(0.0)));
}

#[tokio::test]
#[ignore = "needs a process of its own"]
async fn shared_rules_have_a_version_and_count_their_loads() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let (server, prefix) = (RedisServer::start(), unique("test"));
    let limiter = Limiter::builder().url(server.url()).prefix(&prefix).shared_rules().build().expect("builds");
    // A store without a text has refused none.
    eventually("polled", || limiter.shared_rules_error().is_some());
    assert_eq!((loads("shared", "refused"), loads("shared", "ok")), (Some(0.0), Some(0.0)));
    assert_eq!((refused("shared"), value("rate_limited_rules_version")), (Some(0.0), Some(0.0)));
    for version in 1..=2 {
        let change = Change { based_on: version - 1, ..Change::default() };
        SharedRules::new(&limiter).publish("", change).await.expect("published");
        eventually("in force", || loads("shared", "ok") == Some(version as f64));
        assert_eq!(value("rate_limited_rules_version"), Some(version as f64));
    }
    let broken =
        ["MSET", &format!("{prefix}-rules:{{rules}}:version"), "3 x", &format!("{prefix}-rules:{{rules}}:toml"), "["];
    server.command(&broken);
    eventually("refused", || loads("shared", "refused") == Some(1.0));
    assert_eq!((refused("shared"), value("rate_limited_rules_version")), (Some(1.0), Some(2.0)));
    let change = Change { based_on: 3, ..Change::default() };
    SharedRules::new(&limiter).publish("", change).await.expect("published");
    eventually("in force", || refused("shared") == Some(0.0));
    server.command(&["SET", &format!("{prefix}-rules:{{rules}}:version"), "foreign"]);
    eventually("refused", || refused("shared") == Some(1.0));
    drop(limiter);
    eventually("dropped", || refused("shared") == Some(0.0));
}

#[tokio::test]
#[ignore = "needs a process of its own"]
async fn a_store_is_up_while_every_limiter_has_its_server() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let up = || value("rate_limited_store_up");
    let mut server = RedisServer::start();
    let build = || Limiter::builder().url(server.url()).prefix(unique("test"));
    let limiter = build().connect().await.expect("connects");
    eventually("up", || up() == Some(1.0));
    assert_eq!(limiter.health().state, HealthState::Up);
    let stores = || value("rate_limited_stores");
    let failing = Limiter::failing(ErrorKind::Config);
    assert_eq!((up(), stores()), (Some(0.0), Some(2.0)), "one of two stores is down");
    drop(failing);
    assert_eq!(up(), Some(1.0));
    server.kill();
    eventually("down", || up() == Some(0.0));
    server.restart();
    eventually("up again", || up() == Some(1.0));
    assert_eq!(stores(), Some(1.0));
    drop(limiter);
    // The alert does not fire: it needs a store that is down.
    eventually("no store", || (up(), stores()) == (Some(0.0), Some(0.0)));
}

#[tokio::test]
#[ignore = "needs a process of its own"]
async fn batches_are_recorded_and_no_worker_runs_the_recorder() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let server = RedisServer::start();
    let limiter = Limiter::builder().url(server.url()).prefix(unique("test")).deadline(Duration::from_secs(30));
    let limiter = limiter.connect().await.expect("connects");
    let (key, limit) = (key("a"), limit("1000/1m"));
    for _ in 0..100 {
        let _ = limiter.check(&key, &limit).await.expect("decides");
    }
    let sizes = Collector::installed().samples("rate_limited_batch_size");
    assert_eq!(sizes.iter().sum::<f64>(), 100.0);
    let keys = || value(r#"rate_limited_keys{source="standby"}"#);
    assert_eq!(keys(), Some(1.0));
    drop(limiter);
    eventually("no keys and no store", || keys() == Some(0.0) && value("rate_limited_store_up") == Some(0.0));
    let threads = Collector::installed().threads();
    assert!(!threads.is_empty() && !threads.iter().any(|name| name == "rate-limited"), "{threads:?}");
}
