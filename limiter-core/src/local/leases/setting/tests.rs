use std::time::Duration;

use super::take_noted_settings;
use crate::limiter::tests::Warnings;
use crate::private::{
    AnnotatedFunction, HeldSlots, LimiterHandle, RuleRequest, allowed_blocking, decide_blocking, denied_blocking,
};
use crate::run::block_on;
use crate::service::{LimitedRequest, PlanOfCall, TowerRule};
use crate::{Algorithm, Builder, Error, ErrorKind, Key, KeyMatch, Layout, Limit, Limiter, Mode, Rule, RuleSet};

const NAME: &str = "leased";

static UNSET: AnnotatedFunction = AnnotatedFunction::new(&[NAME], &[]);
static OFF: AnnotatedFunction = AnnotatedFunction::new(&[NAME], &[]).leases(&[Some(false)]);
static ON: AnnotatedFunction = AnnotatedFunction::new(&[NAME], &[]).leases(&[Some(true)]);

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn large() -> Limit {
    limit("100000/1h")
}

/// A limiter whose store is shared by processes, and fails.
fn guarded(leases: bool) -> Limiter {
    Builder::default().leases(leases).misconfigured(Error::new(ErrorKind::Unavailable, "no server"))
}

fn with_leases(rule: Rule, leases: Option<bool>) -> Rule {
    match leases {
        Some(leases) => rule.leases(leases),
        None => rule,
    }
}

/// The settings of all levels, from the highest to the lowest.
#[derive(Clone, Copy, Debug)]
struct Case {
    rule: Option<bool>,
    attribute: Option<bool>,
    default: Option<bool>,
    limiter: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        const SETTINGS: [Option<bool>; 3] = [None, Some(false), Some(true)];
        let mut cases = Vec::new();
        for (rule, attribute) in SETTINGS.iter().flat_map(|rule| SETTINGS.map(|attribute| (*rule, attribute))) {
            for default in SETTINGS {
                cases.extend([false, true].map(|limiter| Self { rule, attribute, default, limiter }));
            }
        }
        cases
    }

    fn function(self) -> &'static AnnotatedFunction {
        match self.attribute {
            None => &UNSET,
            Some(false) => &OFF,
            Some(true) => &ON,
        }
    }

    /// Checks that each decision of `run` has the setting of the first level that has one.
    #[track_caller]
    fn check(self, rule: Rule, run: impl FnOnce(&Limiter)) {
        let limiter = guarded(self.limiter);
        let rules = RuleSet::new().defaults(with_leases(Rule::new(), self.default));
        limiter.set_rules(rules.rule(NAME, rule)).expect("valid");
        let expected = self.rule.or(self.attribute).or(self.default).unwrap_or(self.limiter);
        assert_leases(expected, || run(&limiter));
    }
}

/// Checks that each decision of `run` has this setting, and that there is one.
#[track_caller]
fn assert_leases(expected: bool, run: impl FnOnce()) {
    take_noted_settings();
    run();
    let found = take_noted_settings();
    assert!(!found.is_empty() && found.iter().all(|leases| *leases == expected), "{found:?}, not {expected}");
}

/// Makes annotated calls in each way.
fn call(limiter: &Limiter, function: &'static AnnotatedFunction, rules: &[Option<RuleRequest>]) {
    let handle = || LimiterHandle::Other(limiter.clone());
    for wait in [Duration::ZERO, Duration::from_secs(1)] {
        assert!(denied_blocking(function, handle(), rules, wait, &mut HeldSlots::new()).is_none());
        assert!(
            decide_blocking(function, handle(), rules, wait, &mut HeldSlots::new())
                .is_none_or(|result| result.is_err())
        );
        assert!(allowed_blocking(function, handle(), rules, wait, &mut HeldSlots::new()).is_ok());
    }
}

fn requests(limit: Limit) -> [Option<RuleRequest>; 1] {
    [Some(RuleRequest::with_limit(Key::new("a"), Ok(limit), 1))]
}

#[test]
fn direct_calls_have_the_setting_of_the_limiter() {
    assert!(!Limiter::memory().inside().default_options().leases, "leases are off by default");
    for leases in [false, true] {
        let (limiter, key, limit) = (guarded(leases), Key::new("a"), large());
        let both = [(&key, &limit, 1), (&key, &limit, 2)];
        assert_leases(leases, || drop(limiter.check_blocking(&key, &limit)));
        assert_leases(leases, || drop(limiter.check_n_blocking(&key, &limit, 2)));
        assert_leases(leases, || drop(limiter.check_all_blocking(&both)));
        assert_leases(leases, || drop(limiter.wait_blocking(&key, &limit, Duration::from_secs(1))));
        assert_leases(leases, || drop(limiter.named(NAME).check_blocking(&key, &limit)));
    }
}

#[test]
fn an_annotated_call_has_the_setting_of_the_first_level_that_has_one() {
    for case in Case::all() {
        let own = requests(large());
        let configured = [RuleRequest::configured(Key::new("a"), 1)];
        let rules = [
            (Rule::new(), &own),
            (Rule::new().limit(large()), &configured),
            (Rule::new().algorithm(Algorithm::SlidingWindow), &own),
            (Rule::new().mode(Mode::Shadow), &own),
        ];
        for (rule, requests) in rules {
            case.check(with_leases(rule, case.rule), |limiter| call(limiter, case.function(), requests));
        }
        let of_key = with_leases(Rule::new(), case.rule);
        let rule = Rule::new().overriding(KeyMatch::key(&Key::new("a")), of_key);
        case.check(rule, |limiter| call(limiter, case.function(), &own));
    }
}

#[test]
fn an_annotated_call_without_settings_by_name_has_that_of_its_attribute() {
    for case in Case::all().into_iter().filter(|case| case.rule.is_none() && case.default.is_none()) {
        let limiter = guarded(case.limiter);
        let expected = case.attribute.unwrap_or(case.limiter);
        assert_leases(expected, || call(&limiter, case.function(), &requests(large())));
    }
}

#[test]
fn direct_calls_under_a_rule_and_layers_have_its_setting() {
    let (key, limit) = (Key::new("a"), large());
    let layer = TowerRule::unregistered(NAME);
    for case in Case::all().into_iter().filter(|case| case.attribute.is_none()) {
        for rule in [Rule::new(), Rule::new().limit(limit), Rule::new().mode(Mode::Shadow)] {
            case.check(with_leases(rule, case.rule), |limiter| {
                let named = limiter.named(NAME);
                assert!(named.check_blocking(&key, &limit).expect("the standby limiter").is_allowed());
                assert!(
                    block_on(limiter.check_rules(&[(NAME, &key, &limit, 1)]))
                        .expect("the standby limiter")
                        .is_allowed()
                );
                let request = LimitedRequest {
                    key: &key,
                    form: 0,
                    cost: 1,
                    postpaid: None,
                    on_error: None,
                    wants_limits: false,
                    plan: PlanOfCall::NONE,
                };
                if let Some(undecided) = layer.try_decide(limiter, &limit, &request).expect_err("a shared store") {
                    assert!(block_on(undecided.decide(limiter, &key)).expect("the standby limiter").is_allowed());
                }
                let decided = block_on(layer.decide(limiter, &[limit], request, Duration::ZERO, &mut HeldSlots::new()));
                assert!(decided.expect("the standby limiter").is_allowed());
            });
        }
    }
}

#[test]
fn the_only_rule_that_is_enforced_has_its_own_setting() {
    static BOTH: AnnotatedFunction = AnnotatedFunction::new(&["first", "second"], &[]).leases(&[Some(true), None]);
    let rule = || Some(RuleRequest::with_limit(Key::new("a"), Ok(large()), 1));
    for (off, expected) in [("first", false), ("second", true)] {
        let limiter = guarded(false);
        limiter.set_rules(RuleSet::new().rule(off, Rule::new().mode(Mode::Off))).expect("valid");
        assert_leases(expected, || call(&limiter, &BOTH, &[rule(), rule()]));
    }
}

const UNLEASED: &str = "rule `leased` takes no leases: they need a single limit with `sliding_window` in the compact \
                        layout, `max` of at least 10000 and a window of at least 640ms";

/// Returns the number of warnings about leases in annotated and direct calls under the rule.
fn warnings(limiter: &Limiter, function: &'static AnnotatedFunction, limit: Limit) -> usize {
    let lines = Warnings::during(|| {
        call(limiter, function, &requests(limit));
        drop(limiter.named(NAME).check_blocking(&Key::new("a"), &limit));
    });
    lines.iter().filter(|line| line.contains("leases")).inspect(|line| assert!(line.contains(UNLEASED))).count()
}

#[test]
fn a_rule_that_demands_leases_and_cannot_have_them_is_one_warning() {
    let zset = large().with_layout(Layout::Zset).expect("a sliding window");
    let small = [limit("9999/1h"), limit("100000/639ms"), large().with_algorithm(Algorithm::FixedWindow), zset];
    for small in small {
        let limiter = guarded(false);
        assert_eq!((warnings(&limiter, &ON, small), warnings(&limiter, &ON, small)), (1, 0), "{small:?}");
        limiter.set_rules(RuleSet::new().rule(NAME, Rule::new().leases(true))).expect("valid");
        assert_eq!(warnings(&limiter, &ON, small), 0, "once for each rule");
        let limiter = guarded(false);
        limiter.set_rules(RuleSet::new().rule(NAME, Rule::new().leases(true))).expect("valid");
        assert_eq!((warnings(&limiter, &UNSET, small), warnings(&limiter, &OFF, small)), (1, 0), "{small:?}");
    }
    let limiter = guarded(false);
    limiter.set_rules(RuleSet::new().rule(NAME, Rule::new().limit(limit("5/10s")).leases(true))).expect("valid");
    assert_eq!(warnings(&limiter, &UNSET, large()), 1, "the configured limit counts");
    let limiter = guarded(false);
    let several = RuleRequest::with_limits(Key::new("a"), [Ok(large()), Ok(limit("20000/1min"))], 1);
    let lines = Warnings::during(|| call(&limiter, &ON, &[Some(several)]));
    assert_eq!(lines.iter().filter(|line| line.contains(UNLEASED)).count(), 1, "it has several limits");
}

#[test]
fn a_rule_that_demands_no_leases_or_can_have_them_is_no_warning() {
    let small = limit("9000/1h");
    assert_eq!(warnings(&guarded(false), &ON, large()), 0, "they are possible");
    assert_eq!(warnings(&guarded(true), &UNSET, small), 0, "the limiter has them on");
    let rules = |rule| RuleSet::new().rule(NAME, rule);
    let without_demand = [
        (&OFF, RuleSet::new()),
        (&UNSET, RuleSet::new().defaults(Rule::new().leases(true))),
        (&ON, rules(Rule::new().leases(false))),
        (&ON, rules(Rule::new().mode(Mode::Off))),
        (&ON, rules(Rule::new().limit(large()))),
    ];
    for (function, set) in without_demand {
        let limiter = guarded(false);
        limiter.set_rules(set).expect("valid");
        assert_eq!(warnings(&limiter, function, small), 0);
    }
    let memory = Limiter::memory();
    let lines = Warnings::during(|| {
        for _ in 0..2 {
            let (handle, mut held) = (LimiterHandle::Other(memory.clone()), HeldSlots::new());
            assert!(denied_blocking(&ON, handle, &requests(small), Duration::ZERO, &mut held).is_none());
            memory.set_rules(rules(Rule::new().leases(true).burst(7))).expect("valid");
        }
    });
    assert!(!lines.iter().any(|line| line.contains("leases")), "a store in memory needs none: {lines:?}");
}
