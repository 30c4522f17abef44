//! Recorders that are installed late or twice, and recorders that panic. Each test has a process of its own.

use std::sync::atomic::Ordering;

use rate_limited::Limiter;

use crate::recorder::{Collector, PANICS};
use crate::{child_process, key, limit};

/// Defines tests that run in a process of their own.
macro_rules! in_a_process {
    ($($test:ident),+ $(,)?) => {
        mod each {
            $(#[test] fn $test() {
                crate::child_process::run(concat!("recorders::", stringify!($test)), &[("X", "")]);
            })+
        }
    };
}
in_a_process!(
    a_rule_that_was_used_before_the_recorder_stays_silent_and_others_count,
    a_second_recorder_is_refused_and_changes_nothing,
    a_panic_of_the_recorder_changes_no_decision,
);

fn allowed(rule: &str) -> Option<f64> {
    let series = format!(r#"rate_limited_decisions_total{{rule="{rule}",outcome="allowed",source="store"}}"#);
    Collector::installed().value(&series)
}

fn check(limiter: &Limiter, rule: &str) -> bool {
    limiter.named(rule).check_blocking(&key(rule), &limit("2/1m")).expect("decides").is_allowed()
}

#[test]
#[ignore = "needs a process of its own"]
fn a_rule_that_was_used_before_the_recorder_stays_silent_and_others_count() {
    if !child_process::is_child() {
        return;
    }
    let limiter = Limiter::memory();
    assert!(check(&limiter, "early"));
    Collector::installed();
    assert!(check(&limiter, "early") && check(&limiter, "late"));
    assert!(!check(&limiter, "early"));
    assert_eq!((allowed("early"), allowed("late")), (None, Some(1.0)));
}

#[test]
#[ignore = "needs a process of its own"]
fn a_second_recorder_is_refused_and_changes_nothing() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    let limiter = Limiter::memory();
    assert!(check(&limiter, "a"));
    let second = Collector::default();
    assert!(metrics::set_global_recorder(second.clone()).is_err());
    assert!(check(&limiter, "a") && check(&limiter, "b"));
    assert_eq!((allowed("a"), allowed("b")), (Some(2.0), Some(1.0)));
    assert_eq!(second.names(), [""; 0]);
}

#[test]
#[ignore = "needs a process of its own"]
fn a_panic_of_the_recorder_changes_no_decision() {
    if !child_process::is_child() {
        return;
    }
    Collector::installed();
    PANICS.store(true, Ordering::SeqCst);
    let limiter = Limiter::memory();
    assert_eq!([(); 4].map(|()| check(&limiter, "a")), [true, true, false, false]);
    PANICS.store(false, Ordering::SeqCst);
    assert!(check(&limiter, "b"));
    assert_eq!(allowed("b"), Some(1.0));
}
