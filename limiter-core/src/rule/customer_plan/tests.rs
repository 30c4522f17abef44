use crate::{Decision, Key, KeyMatch, Limit, Limiter, Mode, Rule, RuleSet};

fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

fn rule(text: &str) -> Rule {
    Rule::new().limit(limit(text))
}

/// A set of rules with the plans `free`, of 10 a day, and `pro`, of 100 a day, for the rule `api`.
fn set(api: Rule) -> RuleSet {
    let plans = RuleSet::new().plan("free", rule("10/d")).plan("pro", rule("100/d"));
    plans.rule("api", api.plans(["free", "pro"]))
}

fn limiter(set: RuleSet) -> Limiter {
    let limiter = Limiter::memory();
    limiter.set_rules(set).expect("valid");
    limiter
}

/// The limit of a call with this plan. The caller has a limit of 1 a day.
fn max_of(limiter: &Limiter, key: &Key, plan: &str) -> u32 {
    match limiter.named("api").plan(plan).peek_blocking(key, &limit("1/d")).expect("memory") {
        Decision::Allowed(allowed) => allowed.limit().max(),
        Decision::Denied(denied) => denied.limit().max(),
    }
}

#[test]
fn a_plan_comes_after_overrides_and_before_the_rule() {
    let key = |user: &str| Key::new("api:").part(user);
    let api = rule("50/d")
        .overriding(KeyMatch::key(&key("special")), rule("7/d"))
        .overriding(KeyMatch::key(&key("blocked")), Rule::new().mode(Mode::Deny));
    let limiter = limiter(set(api));
    let maxima = ["free", "pro", "", "other"].map(|plan| max_of(&limiter, &key("42"), plan));
    assert_eq!(maxima, [10, 100, 50, 50]);
    assert_eq!(["free", "pro", ""].map(|plan| max_of(&limiter, &key("special"), plan)), [7, 7, 7]);
    // A setting that the override lacks is that of the plan.
    let blocked = limiter.named("api").plan("pro").peek_blocking(&key("blocked"), &limit("1/d")).expect("memory");
    assert_eq!(blocked.into_result().expect_err("denied").limit().max(), 100);
}

#[test]
fn an_upgrade_keeps_what_was_used() {
    let (limiter, key, own) = (limiter(set(Rule::new())), Key::new("a"), limit("1/d"));
    let api = limiter.named("api");
    assert!(api.plan("free").check_n_blocking(&key, &own, 9).expect("memory").is_allowed());
    assert_eq!(api.plan("pro").check_blocking(&key, &own).expect("memory").remaining(), 90);
    assert!(api.plan("free").check_blocking(&key, &own).expect("memory").is_denied());
}

#[test]
fn a_call_without_any_limit_has_that_of_the_smallest_plan() {
    let in_order = |text: [&str; 3]| {
        let plans = ["a", "b", "c"].into_iter().zip(text);
        let set = plans.fold(RuleSet::new(), |set, (name, text)| set.plan(name, rule(text)));
        let limiter = limiter(set.rule("api", Rule::new().plans(["a", "b", "c"])));
        let usage = limiter.named("api").plan("d").usage_blocking(&Key::new("a")).expect("memory");
        usage.iter().map(|usage| usage.limit().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(in_order(["100/d", "10/d", "50/d"]), ["10/d"]);
    assert_eq!(in_order(["100/d", "10/s", "50 concurrent"]), ["100/d"], "the slowest");
    assert_eq!(in_order(["7 concurrent", "3 concurrent", "5 concurrent"]), ["3 concurrent"]);
    // A plan that is off limits nothing, and one without limits has those of the rule.
    let set = RuleSet::new().plan("all", rule("1/d").mode(Mode::Off)).plan("free", rule("10/d"));
    let set = set.plan("slow", Rule::new().leases(false)).rule("api", Rule::new().plans(["all", "free", "slow"]));
    let limiter = limiter(set);
    for plan in ["", "slow", "other"] {
        let usage = limiter.named("api").plan(plan).usage_blocking(&Key::new("a")).expect("memory");
        assert_eq!(usage.iter().map(|usage| usage.limit().max()).collect::<Vec<_>>(), [10], "{plan}");
    }
    assert!(limiter.named("api").plan("all").usage_blocking(&Key::new("a")).expect("off").is_empty());
}

#[test]
fn a_level_adds_to_the_plans_of_those_below() {
    let (limiter, key) = (Limiter::builder().rules(set(Rule::new())), Key::new("a"));
    let limiter = limiter.build().expect("valid");
    assert_eq!(max_of(&limiter, &key, "pro"), 100);
    // A table alone changes the plan.
    limiter.set_rules(RuleSet::new().plan("pro", rule("500/d"))).expect("valid");
    assert_eq!(["free", "pro"].map(|plan| max_of(&limiter, &key, plan)), [10, 500]);
    // The limits of a higher level come before the plans below it.
    limiter.set_rules(RuleSet::new().rule("api", rule("3/d"))).expect("valid");
    assert_eq!(["free", "pro"].map(|plan| max_of(&limiter, &key, plan)), [3, 3]);
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert_eq!(max_of(&limiter, &key, "pro"), 100);
}

#[test]
fn a_rule_without_plans_ignores_those_of_calls() {
    let (limiter, key) = (limiter(RuleSet::new().plan("pro", rule("100/d")).rule("api", rule("5/d"))), Key::new("a"));
    assert_eq!(max_of(&limiter, &key, "pro"), 5);
    assert_eq!(max_of(&Limiter::memory(), &key, "pro"), 1);
}

#[test]
fn mistakes_in_plans_are_errors_of_the_set() {
    let plans = |names: &[&str]| Rule::new().plans(names.iter().copied());
    let pro = || RuleSet::new().plan("pro", rule("100/d"));
    let cases = [
        (pro().plan("free", Rule::new()), "the plan `free` must have a limit or another setting, got none"),
        (pro().plan("pro", rule("1/d")), "`plan` must be set once for a name, got `pro` twice"),
        (
            pro().plan("", rule("1/d")),
            "the name of a plan must have 1 to 100 bytes and no control characters, got an empty text",
        ),
        (pro().rule("api", plans(&["prp"])), "got `prp`, which has no table: write `pro`"),
        (RuleSet::new().rule("api", plans(&["pro"])), "got `pro`, which has no table: write its table `[plans.pro]`"),
        (pro().rule("api", plans(&[])), "`plans` of the rule `api` must name at least one plan, got an empty list"),
        (
            pro().rule("api", plans(&["pro", "pro"])),
            "`plans` of the rule `api` must name each plan once, got `pro` twice",
        ),
        (pro().plan("a", plans(&["pro"])), "`plans` must be left out of the plan `a`, got it: set it for a rule"),
        (
            pro().plan("a", Rule::new().overriding(KeyMatch::key(&Key::new("a")), rule("1/d"))),
            "`overriding` must be left out of the plan `a`, got it",
        ),
        (
            pro().rule("api", Rule::new().overriding(KeyMatch::key(&Key::new("a")), plans(&["pro"]))),
            "`plans` must be left out of the overrides of the rule `api`, got it",
        ),
        (pro().defaults(plans(&["pro"])), "got `plans`: set it for a rule"),
        (pro().plan("a", rule("1/d").burst(0)), "`burst` of the plan `a` must be at least 1, got 0"),
    ];
    for (set, expected) in cases {
        let error = Limiter::memory().set_rules(set).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[cfg(feature = "rules")]
#[test]
fn mistakes_of_a_text_have_their_places() {
    let pro = "[plans.pro]\nlimit = \"100/d\"\n[rules.api]\n";
    let cases = [
        (
            format!("{pro}plans = [\"pro\", \"fre\"]"),
            "line 4, column 17: `plans` must name plans of the same set of rules, got `fre`",
        ),
        (
            format!("{pro}plans = [\"pro\", \"pro\"]"),
            "line 4, column 17: `plans` must name each plan once, got `pro` twice",
        ),
        (format!("{pro}plans = []"), "line 4, column 9: `plans` must name at least one plan, got an empty list"),
        (format!("{pro}plans = \"pro\""), "line 4, column 9: `plans` must be a list of the names of plans, got"),
        (format!("{pro}plans = [7]"), "line 4, column 9: `plans` must be a list of the names of plans, got"),
        (
            "[plans.free]\n[rules.api]\nplans = [\"free\"]".to_owned(),
            "line 1, column 8: the plan `free` must have a limit",
        ),
        (
            "[plans.free]\nkey = \"a\"".to_owned(),
            "line 2, column 1: `key` must be a setting of a plan, got an unknown name",
        ),
        ("[plans.free]\nlimit = \"x\"".to_owned(), "line 2, column 9: "),
        ("[plan.free]\nlimit = \"1/d\"".to_owned(), "line 1, column 2: `plan` must be one of `strict`"),
        ("[defaults]\nplans = [\"free\"]".to_owned(), "line 2, column 1: `plans` must be a setting of the defaults"),
        (format!("{pro}plans = [\"pr\"]"), "which has no table: write `pro`"),
    ];
    for (text, expected) in cases {
        let error = text.parse::<RuleSet>().expect_err(expected).to_string();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[cfg(feature = "rules")]
#[test]
fn the_text_of_plans_is_written_and_read() {
    let text = "[plans.\"free plan\"]\nlimit = \"10/d\"\n\n[plans.pro]\nlimit = \"100/d\"\nmode = \"shadow\"\n\n\
                [rules.api]\nplans = [\"free plan\", \"pro\"]\n";
    let set: RuleSet = text.parse().expect("valid");
    assert_eq!(set.to_string(), text);
    let limiter = limiter(set);
    assert_eq!(limiter.rules()[0].plans(), ["free plan", "pro"]);
}

#[test]
fn a_contradiction_of_a_plan_and_its_rule_is_an_error() {
    let api = Rule::new().layout(crate::Layout::Zset);
    let set = RuleSet::new().plan("pro", rule("5/s").limit(limit("100/d"))).rule("api", api.plans(["pro"]));
    let error = Limiter::memory().set_rules(set).expect_err("two limits of a sorted set").to_string();
    assert!(error.contains("the plan `pro` of the rule `api`"), "{error}");
    #[cfg(all(feature = "rules", feature = "redis"))]
    {
        let text = "[plans.pro]\nlimits = [\"5/s\", \"100/d\"]\n[rules.api]\nlayout = \"zset\"\nplans = [\"pro\"]";
        let error = crate::rule::check_shared_text(text).expect_err("shared rules are checked too").to_string();
        assert!(error.starts_with("line 1, column 8: `limit` of the plan `pro` of the rule `api`"), "{error}");
    }
}

#[test]
fn plans_of_several_windows_are_found() {
    let problems = |set: RuleSet| {
        let limiter = limiter(set);
        limiter.inside().rules.problems_of_plans()
    };
    assert_eq!(problems(set(rule("1/d"))), [""; 0]);
    let set = RuleSet::new().plan("free", rule("10/d")).plan("pro", rule("10/h")).plan("old", rule("1/s"));
    let found = problems(set.rule("api", Rule::new().plans(["free", "pro"])));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("the plan `old` has no effect, because no rule names it"), "{found:?}");
    let expected = "a change between the plans `free` (10/d) and `pro` (10/h) of the rule `api` starts new counts";
    assert!(found[1].starts_with(expected), "{found:?}");
}

#[test]
fn calls_at_once_have_the_number_of_their_plan() {
    let set = RuleSet::new().plan("free", rule("1 concurrent")).plan("pro", rule("3 concurrent"));
    let limiter = limiter(set.rule("api", Rule::new().plans(["free", "pro"])));
    let (key, own) = (Key::new("a"), limit("1 concurrent"));
    let enter = |plan| limiter.named("api").plan(plan).enter_blocking(&key, &own).expect("memory");
    let first = enter("free");
    assert!(matches!(first, crate::Entry::Entered(_)));
    assert!(matches!(enter("free"), crate::Entry::Denied(_)));
    let more = [enter("pro"), enter("pro")];
    assert!(more.iter().all(|entry| matches!(entry, crate::Entry::Entered(_))));
    assert!(matches!(enter("pro"), crate::Entry::Denied(_)));
    let usage = limiter.named("api").plan("free").usage_blocking(&key).expect("memory");
    let numbers = |usage: &crate::LimitUsage| (usage.used(), usage.remaining(), usage.overdrawn());
    assert_eq!(usage.iter().map(numbers).collect::<Vec<_>>(), [(3, 0, 2)]);
}

#[test]
fn the_usage_of_a_smaller_plan_shows_what_counts_beyond_it() {
    let (limiter, key, own) = (limiter(set(Rule::new())), Key::new("a"), limit("1/d"));
    let api = limiter.named("api");
    assert!(api.plan("pro").check_n_blocking(&key, &own, 60).expect("memory").is_allowed());
    let numbers = |plan| {
        let usage = api.plan(plan).usage_blocking(&key).expect("memory");
        usage.iter().map(|usage| (usage.used(), usage.remaining(), usage.overdrawn())).collect::<Vec<_>>()
    };
    assert_eq!(numbers("pro"), [(60, 40, 0)]);
    assert_eq!(numbers("free"), [(60, 0, 50)]);
    assert_eq!(
        api.plan("free").usage_blocking(&key).expect("memory")[0].to_string(),
        "10/d: 60 used, 50 beyond the limit"
    );
    let error = limiter.named("another").usage_blocking(&key).expect_err("no limit").to_string();
    assert!(error.contains("the rule `another` must have a limit in a set of rules"), "{error}");
    let usage = limiter.named("another").usage_or_blocking(&key, &own).expect("memory");
    assert_eq!((usage[0].used(), usage[0].limit()), (60, own));
}
