//! Tests of the plans of customers: their limits apply by the name that a call brings, and what was used stays.

use std::time::{Duration, Instant};

use limiter_testkit::{RedisServer, unique};
use rate_limited::{
    Builder, Change, Denied, ErrorKind, Key, Limiter, OnError, Rule, RuleSet, SharedRules, rate_limited,
};

use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};
use crate::support::{LONG_DEADLINE, Subject, key, limit, on_every_store};

on_every_store! {
    an_upgrade_in_the_middle_of_a_period_keeps_what_was_used,
    the_usage_of_a_page_is_that_of_each_limit_of_the_plan,
}

/// A set of rules with the plans `free` and `pro` for the rule `customers`.
fn plans(free: &str, pro: &str, api: Rule) -> RuleSet {
    let plans = RuleSet::new().plan("free", rule(free)).plan("pro", rule(pro));
    plans.rule("customers", api.plans(["free", "pro"]))
}

fn rule(text: &str) -> Rule {
    Rule::new().limit(limit(text))
}

async fn an_upgrade_in_the_middle_of_a_period_keeps_what_was_used(subject: Subject) {
    let (limiter, key, own) = (&subject.limiter, key("customer"), limit("1/month"));
    limiter.set_rules(plans("1000/month", "10000/month", Rule::new())).expect("valid");
    let api = limiter.named("customers");
    let free = api.plan("free").check_n(&key, &own, 900).await.expect("the store answers");
    assert_eq!(free.remaining(), 100);
    subject.advance_millis(1000);
    let usage = api.plan("pro").usage(&key).await.expect("the store answers");
    assert_eq!((usage[0].used(), usage[0].remaining(), usage[0].limit()), (900, 9_100, limit("10000/month")));
    assert_eq!(api.plan("pro").check(&key, &own).await.expect("the store answers").remaining(), 9_099);
    // And back: nothing is left of the smaller plan in this period.
    assert!(api.plan("pro").check_n(&key, &own, 1_000).await.expect("the store answers").is_allowed());
    let denied = api.plan("free").check(&key, &own).await.expect("the store answers").into_result();
    assert_eq!(denied.expect_err("1 901 are used").limit(), limit("1000/month"));
    let usage = api.plan("free").usage(&key).await.expect("the store answers");
    assert_eq!((usage[0].used(), usage[0].remaining(), usage[0].overdrawn()), (1_901, 0, 901));
}

async fn the_usage_of_a_page_is_that_of_each_limit_of_the_plan(subject: Subject) {
    let (limiter, key, own) = (&subject.limiter, key("page"), limit("1/s"));
    let pro = rule("50/10s").limit(limit("1000/h")).limit(limit("2 concurrent"));
    let set = RuleSet::new().plan("pro", pro).rule("customers", Rule::new().plans(["pro"]));
    limiter.set_rules(set).expect("valid");
    let api = limiter.named("customers").plan("pro");
    let entry = api.enter(&key, &own).await.expect("the store answers");
    let read = || async {
        let usage = api.usage(&key).await.expect("the store answers");
        usage.iter().map(|usage| (usage.limit().to_string(), usage.used(), usage.remaining())).collect::<Vec<_>>()
    };
    let expected = |slots| {
        [("50/10s", 1, 49), ("1000/h", 1, 999), ("2 concurrent", slots, 2 - slots)]
            .map(|(limit, used, left)| (limit.to_owned(), used, left))
    };
    eventually("one slot in use", async || read().await == expected(1)).await;
    assert_eq!(api.usage(&key).await.expect("the store answers")[0].reset_after(), Duration::from_secs(10));
    drop(entry);
    // A process gives slots back after a while.
    let is_free = async || {
        subject.advance_millis(100);
        read().await.last() == expected(0).last()
    };
    eventually("no slot in use", is_free).await;
    // Off, nothing is counted.
    let off = RuleSet::new().plan("pro", Rule::new().mode(rate_limited::Mode::Off));
    limiter.set_rules(off.rule("customers", rule("1/s").plans(["pro"]))).expect("valid");
    assert!(api.usage(&key).await.expect("no store is called").is_empty());
}

struct Customer {
    id: u64,
    plan: Option<String>,
}

impl Customer {
    fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }
}

#[rate_limited("api:{customer.id}", name = "customers", plan = customer.plan())]
async fn configured(customer: &Customer) -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = "api:{customer.id}", name = "customers", limit = "3/h", plan = customer.plan())]
async fn with_limit(customer: Customer) -> Result<Customer, Denied> {
    Ok(customer)
}

#[rate_limited(key = "fixed", limit = "1/h", name = "customers", plan = "pro")]
fn of_one_plan() -> Result<(), Denied> {
    Ok(())
}

fn customer(id: u64, plan: &str) -> Customer {
    Customer { id, plan: Some(plan.to_owned()).filter(|plan| !plan.is_empty()) }
}

#[tokio::test]
async fn a_function_has_the_plan_of_its_call() {
    let limiter = Limiter::memory();
    limiter.set_rules(plans("2/h", "5/h", Rule::new())).expect("valid");
    let allowed = async |id, plan: &str| {
        let mut count = 0;
        while configured(&customer(id, plan)).await.is_ok() {
            count += 1;
        }
        count
    };
    limiter
        .scope(async {
            assert_eq!(allowed(1, "free").await, 2);
            assert_eq!(allowed(1, "pro").await, 3, "two were used before");
            assert_eq!(allowed(2, "pro").await, 5);
            // Never unlimited: the smallest plan's limit.
            assert_eq!(allowed(3, "").await, 2);
            assert_eq!(allowed(4, "gold").await, 2);
            assert_eq!((0..7).filter(|_| of_one_plan().is_ok()).count(), 5);
            let mut with_own = 0;
            let mut customer = Ok(customer(5, "gold"));
            while let Ok(present) = customer {
                customer = with_limit(present).await;
                with_own += u32::from(customer.is_ok());
            }
            assert_eq!(with_own, 3, "the attribute's own limit");
        })
        .await;
}

/// Two rules of a call may have plans of their own.
#[rate_limited(key = "day:{id}", name = "customers", limit = "1/h", plan = plan)]
#[rate_limited(key = "all", limit = "100/h", plan = String::from("free"), wait = "1ms")]
async fn two_rules(id: u64, plan: &str) -> Result<(), Denied> {
    Ok(())
}

#[tokio::test]
async fn each_rule_of_a_call_has_its_plan() {
    let limiter = Limiter::memory();
    limiter.set_rules(plans("2/h", "5/h", Rule::new())).expect("valid");
    limiter
        .scope(async {
            for (id, plan, expected) in [(1, "pro", 5), (2, "free", 2), (3, "", 1)] {
                let mut allowed = 0;
                while two_rules(id, plan).await.is_ok() {
                    allowed += 1;
                }
                assert_eq!(allowed, expected, "{plan}");
            }
        })
        .await;
}

/// The month of a plan is that of the attribute, in the zone of the customer.
#[rate_limited(key = "zone:{id}", name = "customers", limit = "1/month", zone = zone, anchor = 5, plan = plan)]
fn in_zone(id: u64, zone: &str, plan: &str) -> Result<(), Denied> {
    Ok(())
}

#[test]
fn a_plan_counts_the_months_of_the_customers_zone() {
    let limiter = Limiter::memory();
    let set = RuleSet::new().plan("free", rule("2/month")).plan("berlin", rule("3/month:7@Europe/Berlin"));
    limiter
        .set_rules(
            set.plan("days", rule("2/day@UTC"))
                .plan("own", rule("2/day"))
                .rule("customers", Rule::new().plans(["free", "berlin", "days", "own"])),
        )
        .expect("valid");
    let denied_by = |id, plan| {
        limiter.scope_sync(|| {
            let denied = (0..9).find_map(|_| in_zone(id, "Asia/Tokyo", plan).err());
            denied.expect("nine are too many").limit().to_string()
        })
    };
    let expected =
        ["1/month:5@Asia/Tokyo", "2/month:5@Asia/Tokyo", "3/month:7@Europe/Berlin", "2/day@UTC", "2/day@Asia/Tokyo"];
    assert_eq!(["", "free", "berlin", "days", "own"].map(|plan| denied_by(1, plan)), expected);
    // The zone of a page is that of the limit that it brings.
    let (key, own) = (Key::new("zone:").part(1), limit("1/month:5@Asia/Tokyo"));
    let usage = limiter.named("customers").plan("free").usage_or_blocking(&key, &own).expect("memory");
    assert_eq!((usage[0].limit().to_string(), usage[0].used()), ("2/month:5@Asia/Tokyo".to_owned(), 3));
}

/// A plan inside of a key counts anew for each plan, and is what overrides match.
#[test]
fn a_plan_that_is_a_part_of_the_key_counts_anew_at_an_upgrade() {
    #[rate_limited(key = "part:{id}:{plan}", limit = "2/h")]
    fn call(id: u64, plan: &str) -> Result<(), Denied> {
        Ok(())
    }
    let limiter = Limiter::memory();
    let pro = rate_limited::KeyMatch::parts([("plan", "pro")]);
    let rule = Rule::new().overriding(pro, rule("3/h"));
    limiter.set_rules(RuleSet::new().rule("part:{id}:{plan}", rule)).expect("valid");
    let allowed = |plan| limiter.scope_sync(|| (0..9).filter(|_| call(1, plan).is_ok()).count());
    assert_eq!([allowed("free"), allowed("pro")], [2, 3]);
}

/// A call that waits goes on under the limits of its plan when the rules change.
#[tokio::test]
async fn a_call_that_waits_follows_its_plan() {
    let limiter = Limiter::memory();
    limiter.set_rules(plans("1/h", "1/h", Rule::new())).expect("valid");
    let (key, own) = (Key::new("waits"), limit("1/h"));
    let api = limiter.named("customers").plan("pro");
    assert!(api.check(&key, &own).await.expect("memory").is_allowed());
    let wait = api.wait(&key, &own, Duration::from_secs(7200));
    let change = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        limiter.set_rules(plans("1/h", "5/h", Rule::new())).expect("valid");
    };
    let (decision, ()) = tokio::join!(wait, change);
    assert_eq!(decision.expect("memory").into_result().expect("allowed").limit(), limit("5/h"));
}

#[tokio::test]
async fn shared_rules_change_a_plan_within_a_second() {
    let server = RedisServer::start();
    let builder = || -> Builder {
        Limiter::builder().url(server.url()).prefix("plans").deadline(LONG_DEADLINE).on_error(OnError::Raise)
    };
    let rules = SharedRules::new(&builder().connect().await.expect("connects"));
    let change = |based_on| Change { based_on, who: "ann@host".to_owned(), why: unique("a test") };
    let text = |pro: u32| {
        format!(
            "[plans.free]\nlimit = \"10/h\"\n[plans.pro]\nlimit = \"{pro}/h\"\n[rules.customers]\nplans = [\"free\", \"pro\"]\n"
        )
    };
    rules.publish(&text(100), change(0)).await.expect("published");
    let limiter = builder().shared_rules().connect().await.expect("connects");
    let (key, own) = (key("shared"), limit("1/h"));
    let pro = limiter.named("customers").plan("pro");
    assert_eq!(pro.check_n(&key, &own, 60).await.expect("the store answers").remaining(), 40);
    let published_at = Instant::now();
    rules.publish(&text(500), change(1)).await.expect("published");
    eventually("the new plan", async || pro.peek(&key, &own).await.expect("the store answers").remaining() == 440)
        .await;
    assert!(published_at.elapsed() < Duration::from_secs(1) + crate::deadlines::MAX_LATENESS);
    let dangling = "[rules.customers]\nplans = [\"fre\"]\n[plans.free]\nlimit = \"1/h\"\n";
    let error = rules.publish(dangling, change(2)).await.expect_err("no such plan");
    assert_eq!(error.kind(), ErrorKind::Config);
    let expected = "line 2, column 10: `plans` must name plans of the same set of rules, got `fre`, which has no table: write `free`";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_does_not_suit_plans_is_logged_once() {
    child_process::run("plans::log_of_plans", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_plans() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let limiter = Limiter::memory();
    let set = plans("2/h", "5/min", Rule::new()).plan("old", rule("1/h"));
    limiter.set_rules(set).expect("valid");
    let logged = |text: &str| lines().iter().filter(|line| line.contains("WARN") && line.contains(text)).count();
    let windows = "a change between the plans `free` (2/h) and `pro` (5/min) of the rule `customers` starts new counts";
    eventually("the windows", async || logged(windows) == 1).await;
    eventually("the idle plan", async || logged("the plan `old` has no effect, because no rule names it") == 1).await;
    let (key, own) = (Key::new("a"), limit("9/h"));
    let check = async |plan: &str| {
        let decision = limiter.named("customers").plan(plan).check(&key, &own).await;
        assert!(decision.is_ok(), "memory");
    };
    for plan in ["", "free", "pro"] {
        check(plan).await;
    }
    let unknown = "a call has a plan that its rule does not name";
    for plan in ["gold", "gold", "silver"] {
        check(plan).await;
        eventually("the unknown plan", async || logged(unknown) == 1).await;
    }
    let line = lines().into_iter().find(|line| line.contains(unknown)).expect("it is there");
    assert!(line.contains("gold") && line.contains("customers"), "{line}");
}
