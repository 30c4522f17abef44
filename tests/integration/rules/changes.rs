//! Changes of the rules while calls run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rate_limited::{Algorithm, Denied, ErrorKind, Limiter, ManualClock, Mode, Origin, Rule, RuleSet, rate_limited};

use crate::support::unpacked_limit as limit;

#[rate_limited(key = "changing", limit = "1/h")]
fn changing() -> Result<(), Denied> {
    Ok(())
}

/// In each round the limit grows by a number of permits. Four threads take permits all the time, and look after the
/// change whether exactly as many as the new limit allows were taken.
#[test]
fn a_change_holds_for_every_call_that_begins_afterwards() {
    let limiter = Limiter::builder().clock(ManualClock::new()).build().expect("valid");
    let (taken, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                limiter.scope_sync(|| {
                    while !stop.load(Ordering::Relaxed) {
                        taken.fetch_add(u64::from(changing().is_ok()), Ordering::Relaxed);
                    }
                });
            });
        }
        for round in 1..=20_u32 {
            let max = round * 500;
            let rule = Rule::new().limit(limit(&format!("{max}/h")));
            limiter.set_rules(RuleSet::new().rule("changing", rule)).expect("valid");
            // This call begins after the change: it is allowed while the new limit has permits, and denied only when
            // all of them are taken.
            let mut own = 0;
            limiter.scope_sync(|| {
                loop {
                    match changing() {
                        Ok(()) => own += 1,
                        Err(denied) => {
                            assert_eq!(denied.limit().max(), max);
                            break;
                        }
                    }
                }
            });
            taken.fetch_add(own, Ordering::Relaxed);
            // A call that has taken its permit counts it soon.
            while taken.load(Ordering::Relaxed) < u64::from(max) {
                thread::yield_now();
            }
            assert_eq!(taken.load(Ordering::Relaxed), u64::from(max), "in round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_lowered_limit_holds_at_once_and_keeps_the_history() {
    let limiter = Limiter::memory();
    let set = |text: &str| {
        limiter.set_rules(RuleSet::new().rule("changing", Rule::new().limit(limit(text)))).expect("valid");
    };
    set("5/h");
    limiter.scope_sync(|| assert!((0..3).all(|_| changing().is_ok())));
    set("3/h");
    limiter.scope_sync(|| assert_eq!(changing().expect_err("three were taken").limit(), limit("3/h")));
    set("4/h");
    limiter.scope_sync(|| assert!(changing().is_ok() && changing().is_err()));
    limiter.set_rules(RuleSet::new()).expect("valid");
    limiter.scope_sync(|| assert_eq!(changing().expect_err("the attribute's").limit(), limit("1/h")));
}

/// Each setting comes from the highest level that has it.
#[test]
fn levels_override_each_other_setting_by_setting() {
    let builder = RuleSet::new()
        .defaults(Rule::new().mode(Mode::Shadow))
        .rule("changing", Rule::new().limit(limit("3/h")).mode(Mode::Enforce));
    let limiter = Limiter::builder().rules(builder).build().expect("valid");
    let in_force = |limiter: &Limiter| {
        let rules = limiter.rules();
        let rule = rules.iter().find(|rule| rule.name() == "changing").expect("a rule").clone();
        (rule.limits().to_vec(), rule.mode(), rule.origin())
    };
    assert_eq!(in_force(&limiter), (vec![limit("3/h")], Mode::Enforce, Origin::Builder));
    limiter.set_rules(RuleSet::new().rule("changing", Rule::new().mode(Mode::Off))).expect("valid");
    assert_eq!(in_force(&limiter), (vec![limit("3/h")], Mode::Off, Origin::Builder));
    limiter.set_rules(RuleSet::new().rule("changing", Rule::new().limit(limit("9/h")))).expect("valid");
    assert_eq!(in_force(&limiter), (vec![limit("9/h")], Mode::Enforce, Origin::Runtime));
    // Defaults of a higher level come after the rules of a lower one.
    limiter.set_rules(RuleSet::new().defaults(Rule::new().mode(Mode::Deny))).expect("valid");
    assert_eq!(in_force(&limiter), (vec![limit("3/h")], Mode::Enforce, Origin::Builder));
    let denied = limiter.named("other").check_blocking(&rate_limited::Key::new("a"), &limit("1/h"));
    assert!(denied.expect("memory").is_denied());
}

#[test]
fn rules_that_cannot_be_used_change_nothing() {
    let limiter = Limiter::memory();
    limiter.set_rules(RuleSet::new().rule("changing", Rule::new().limit(limit("2/h")))).expect("valid");
    let invalid = [
        (RuleSet::new().rule("", Rule::new()), "`rule` must have a name, got an empty text"),
        (RuleSet::new().rule("a", Rule::new()).rule("a", Rule::new()), "`rule` must be set once for a name, got `a`"),
        (
            RuleSet::new().rule("a", Rule::new().burst(0)),
            "`burst` of the rule `a` must be at least 1, got 0: leave it out",
        ),
        (
            RuleSet::new().rule("a", Rule::new().algorithm(Algorithm::FixedWindow).burst(3)),
            "`burst` of the rule `a` must be left out for `fixed_window`, got 3",
        ),
        (
            RuleSet::new().defaults(Rule::new().limit(limit("1/s"))),
            "`defaults` must have only `mode`, `on_error`, `deadline` and `leases`, got `limit`",
        ),
    ];
    for (rules, message) in invalid {
        let error = limiter.set_rules(rules).expect_err(message);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(message), "{error}");
    }
    limiter.scope_sync(|| assert!(changing().is_ok() && changing().is_ok() && changing().is_err()));
}
