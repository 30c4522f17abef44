//! Blocks: the first denial of a rule blocks its key for a time.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Allowed, Block, Decision, Denied, Key, Limiter, ManualClock, Mode, Rule, RuleSet, rate_limited};

use crate::support::{LONG_DEADLINE, Subject, builder_for, key, on_every_store, unpacked_limit as limit};

on_every_store! {
    the_first_denial_blocks_the_key_until_the_end,
    attempts_extend_no_block_and_the_count_goes_on,
    a_block_holds_for_each_limit_and_cost_of_the_rule,
    blocks_grow_and_begin_anew_after_a_quiet_time,
    a_reset_ends_a_block_and_a_refund_does_not,
    a_peek_sees_a_block_and_begins_none,
    a_final_denial_begins_no_block,
    a_decision_that_is_final_for_one_limit_begins_no_block,
    a_charge_begins_no_block,
    an_extended_block_ends_after_the_last_attempt,
    a_rule_without_a_block_ignores_those_of_others,
    a_rule_of_a_decision_about_several_blocks_its_own_key,
    a_rule_beside_a_packed_one_blocks_its_own_key,
    calls_of_several_rules_are_blocked_together,
    a_shadow_rule_reports_its_blocks,
}

mod servers;

const SECOND: Duration = Duration::from_secs(1);

fn login(limits: &[&str], block: &str) -> Rule {
    let rule = limits.iter().fold(Rule::new(), |rule, text| rule.limit(limit(text)));
    rule.block(block.parse().expect(block))
}

fn with_rules(limiter: &Limiter, rules: &[(&str, Rule)]) {
    let set = rules.iter().fold(RuleSet::new(), |set, (name, rule)| set.rule(*name, rule.clone()));
    limiter.set_rules(set).expect("valid rules");
}

async fn check_n(subject: &Subject, rule: &str, key: &Key, cost: u32) -> Decision {
    let any = limit("1/h");
    subject.limiter.named(rule).check_n(key, &any, cost).await.expect("the store answers")
}

/// Makes one decision about a key under each of two rules.
async fn check_both(subject: &Subject, rules: [(&str, &Key); 2]) -> Decision {
    let any = limit("1/h");
    let calls = rules.map(|(rule, key)| (rule, key, &any, 1));
    subject.limiter.check_rules(&calls).await.expect("the store answers")
}

async fn check(subject: &Subject, key: &Key) -> Decision {
    check_n(subject, "login", key, 1).await
}

async fn denied(subject: &Subject, key: &Key) -> Denied {
    check(subject, key).await.into_result().expect_err("a denial")
}

async fn allowed(subject: &Subject, key: &Key) -> Allowed {
    check(subject, key).await.into_result().expect("a permit")
}

async fn the_first_denial_blocks_the_key_until_the_end(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["2/10s"], "20s"))]);
    let (attacked, other) = (key("a"), key("b"));
    for _ in 0..2 {
        assert!(!check(&subject, &attacked).await.is_denied());
    }
    let first = denied(&subject, &attacked).await;
    assert!(first.is_blocked() && !first.is_final());
    assert_eq!(first.retry_after(), 20 * SECOND, "the end of the block, not of the window");
    subject.advance_millis(15_000);
    let later = denied(&subject, &attacked).await;
    assert!(later.is_blocked(), "the window is over, and the block is not");
    assert_eq!((later.retry_after(), later.remaining()), (5 * SECOND, 0));
    allowed(&subject, &other).await;
    subject.advance_millis(4_999);
    assert_eq!(denied(&subject, &attacked).await.retry_after(), Duration::from_millis(1));
    subject.advance_millis(1);
    allowed(&subject, &attacked).await;
}

async fn attempts_extend_no_block_and_the_count_goes_on(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["2/min"], "10s"))]);
    let key = key("a");
    allowed(&subject, &key).await;
    subject.advance_millis(30_000);
    allowed(&subject, &key).await;
    for _ in 0..10 {
        assert!(denied(&subject, &key).await.is_blocked());
        subject.advance_millis(1_000);
    }
    // The block is over, and both calls still count: the window of a minute is longer.
    let again = denied(&subject, &key).await;
    assert!(again.is_blocked());
    assert_eq!(again.retry_after(), 10 * SECOND, "another block begins");
    subject.advance_millis(20_000);
    allowed(&subject, &key).await;
}

async fn a_block_holds_for_each_limit_and_cost_of_the_rule(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["3/s", "100/h"], "1min"))]);
    let key = key("a");
    assert!(check_n(&subject, "login", &key, 3).await.is_allowed());
    let first = check_n(&subject, "login", &key, 2).await.into_result().expect_err("a denial");
    assert!(first.is_blocked(), "it lacks two permits");
    subject.advance_millis(30_000);
    for cost in [0, 1, 3] {
        let denied = check_n(&subject, "login", &key, cost).await.into_result().expect_err("a blocked key");
        assert!(denied.is_blocked(), "{cost}");
        assert_eq!(denied.retry_after(), 30 * SECOND);
    }
}

async fn blocks_grow_and_begin_anew_after_a_quiet_time(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "10s x2 up to 30s"))]);
    let key = key("a");
    for seconds in [10, 20, 30, 30] {
        allowed(&subject, &key).await;
        assert_eq!(denied(&subject, &key).await.retry_after(), seconds * SECOND);
        subject.clock.advance(seconds * SECOND);
    }
    subject.advance_millis(29_000);
    allowed(&subject, &key).await;
    assert_eq!(denied(&subject, &key).await.retry_after(), 30 * SECOND, "not quiet for long enough");
    subject.clock.advance(60 * SECOND);
    allowed(&subject, &key).await;
    assert_eq!(denied(&subject, &key).await.retry_after(), 10 * SECOND);
}

async fn a_reset_ends_a_block_and_a_refund_does_not(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min"))]);
    let key = key("a");
    let permit = allowed(&subject, &key).await;
    assert!(denied(&subject, &key).await.is_blocked());
    subject.limiter.refund(&permit).await.expect("the store answers");
    assert!(denied(&subject, &key).await.is_blocked());
    subject.limiter.named("login").reset(&key, &limit("1/s")).await.expect("the store answers");
    allowed(&subject, &key).await;
}

async fn a_peek_sees_a_block_and_begins_none(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min"))]);
    let (key, any) = (key("a"), limit("1/h"));
    allowed(&subject, &key).await;
    let peek = async || subject.limiter.named("login").peek(&key, &any).await.expect("the store answers");
    let before = peek().await.into_result().expect_err("a denial");
    assert!(!before.is_blocked() && before.retry_after() <= SECOND + Duration::from_millis(1));
    subject.advance_millis(1_001);
    assert!(peek().await.is_allowed(), "the peek has begun no block");
    allowed(&subject, &key).await;
    denied(&subject, &key).await;
    let blocked = peek().await.into_result().expect_err("a denial");
    assert!(blocked.is_blocked());
    assert_eq!(blocked.retry_after(), 60 * SECOND);
}

async fn a_final_denial_begins_no_block(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["2/s"], "1min"))]);
    let key = key("a");
    let denied = check_n(&subject, "login", &key, 3).await.into_result().expect_err("too much");
    assert!(denied.is_final() && !denied.is_blocked());
    allowed(&subject, &key).await;
}

async fn a_decision_that_is_final_for_one_limit_begins_no_block(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["10/s", "12/d"], "1min"))]);
    let key = key("a");
    assert!(check_n(&subject, "login", &key, 5).await.is_allowed());
    let denied = check_n(&subject, "login", &key, 11).await.into_result().expect_err("never fits in a second");
    assert!(denied.is_final() && !denied.is_blocked());
    allowed(&subject, &key).await;
}

async fn a_charge_begins_no_block(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["2/s"], "1min"))]);
    let (key, any) = (key("a"), limit("1/h"));
    let charged = subject.limiter.named("login").charge(&key, &any, 5).await.expect("the store answers");
    assert_eq!(charged.overdrawn(), 3);
    subject.advance_millis(1_001);
    allowed(&subject, &key).await;
}

async fn an_extended_block_ends_after_the_last_attempt(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "10s extended"))]);
    let key = key("a");
    allowed(&subject, &key).await;
    denied(&subject, &key).await;
    for _ in 0..20 {
        subject.advance_millis(2_000);
        assert_eq!(denied(&subject, &key).await.retry_after(), 10 * SECOND);
    }
    subject.advance_millis(500);
    let soon = denied(&subject, &key).await;
    assert_eq!(soon.retry_after(), Duration::from_millis(9_500), "less than a second after the last extension");
    subject.advance_millis(9_500);
    allowed(&subject, &key).await;
}

async fn a_rule_without_a_block_ignores_those_of_others(subject: Subject) {
    let plain = Rule::new().limit(limit("1/s"));
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min")), ("plain", plain)]);
    let key = key("a");
    allowed(&subject, &key).await;
    denied(&subject, &key).await;
    subject.advance_millis(1_001);
    assert!(denied(&subject, &key).await.is_blocked());
    assert!(check_n(&subject, "plain", &key, 1).await.is_allowed());
    with_rules(&subject.limiter, &[("login", Rule::new().limit(limit("1/min")))]);
    allowed(&subject, &key).await;
}

async fn a_rule_of_a_decision_about_several_blocks_its_own_key(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["5/s"], "1min")), ("other", Rule::new().limit(limit("1/s")))]);
    let (user, service) = (key("user"), key("service"));
    let both = async || check_both(&subject, [("login", &user), ("other", &service)]).await;
    assert!(both().await.is_allowed());
    let by_other = both().await.into_result().expect_err("a denial");
    assert!(!by_other.is_blocked(), "the rule without a block has denied");
    subject.advance_millis(1_001);
    assert!(both().await.is_allowed());
    for _ in 0..4 {
        assert!(check_n(&subject, "login", &user, 1).await.is_allowed());
    }
    // Both deny, and the block of the one is the time of the decision.
    let by_both = both().await.into_result().expect_err("a denial");
    assert!(by_both.is_blocked());
    assert_eq!(by_both.retry_after(), 60 * SECOND);
    subject.advance_millis(10_000);
    let blocked = both().await.into_result().expect_err("a denial");
    assert_eq!((blocked.is_blocked(), blocked.name(), blocked.retry_after()), (true, "login", 50 * SECOND));
    assert!(check_n(&subject, "other", &service, 1).await.is_allowed(), "nothing was taken");
}

async fn a_rule_beside_a_packed_one_blocks_its_own_key(subject: Subject) {
    let other = Rule::new().limit(limit("9/h")).packed(16_384);
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min")), ("other", other)]);
    let (user, service) = (key("user"), key("service"));
    let both = async || check_both(&subject, [("login", &user), ("other", &service)]).await;
    assert!(both().await.is_allowed());
    let by_login = both().await.into_result().expect_err("a denial");
    assert!(by_login.is_blocked());
    assert_eq!(by_login.retry_after(), 60 * SECOND);
    subject.advance_millis(10_000);
    let blocked = both().await.into_result().expect_err("a denial");
    assert_eq!((blocked.is_blocked(), blocked.name(), blocked.retry_after()), (true, "login", 50 * SECOND));
    let other = check_n(&subject, "other", &service, 1).await.into_result().expect("a permit");
    assert_eq!(other.remaining(), 7, "denials took nothing");
}

async fn calls_of_several_rules_are_blocked_together(subject: Subject) {
    let rules = [("one", login(&["1/s"], "10s")), ("two", login(&["1/s"], "20s"))];
    with_rules(&subject.limiter, &rules);
    let key = key("a");
    let both = async || check_both(&subject, [("one", &key), ("two", &key)]).await;
    assert!(both().await.is_allowed());
    let denied = both().await.into_result().expect_err("a denial");
    assert_eq!((denied.name(), denied.retry_after()), ("two", 20 * SECOND), "the block that ends last");
    subject.advance_millis(15_000);
    let denied = both().await.into_result().expect_err("a denial");
    assert_eq!((denied.name(), denied.retry_after()), ("two", 5 * SECOND));
}

async fn a_shadow_rule_reports_its_blocks(subject: Subject) {
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min").mode(Mode::Shadow))]);
    let key = key("a");
    assert!(allowed(&subject, &key).await.shadowed().is_none());
    for _ in 0..2 {
        let permit = allowed(&subject, &key).await;
        assert!(permit.shadowed().expect("a denial in shadow mode").is_blocked());
        subject.advance_millis(2_000);
    }
    with_rules(&subject.limiter, &[("login", login(&["1/s"], "1min"))]);
    assert!(denied(&subject, &key).await.is_blocked(), "the rule goes on with the block");
}

#[tokio::test]
async fn a_blocked_decision_has_each_limit_of_the_call() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let limiter = builder.report_limits(true).connect().await.expect("a store");
        with_rules(&limiter, &[("login", login(&["3/min", "100/h"], "1min"))]);
        let (key, any) = (key("a"), limit("1/h"));
        let named = limiter.named("login");
        assert!(named.check_n(&key, &any, 3).await.expect("the store answers").is_allowed());
        for _ in 0..2 {
            let decision = named.check(&key, &any).await.expect("the store answers");
            let left: Vec<_> = decision.limits().map(|state| state.remaining()).collect();
            assert_eq!(left, [0, 97]);
            assert!(decision.into_result().expect_err("a denial").is_blocked());
        }
    }
}

#[tokio::test]
async fn beside_a_block_no_call_waits_and_a_lease_is_an_error() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let limiter = builder.connect().await.expect("a store");
        let (key, any) = (key("a"), limit("1/h"));
        let wait = async || limiter.named("login").wait(&key, &any, LONG_DEADLINE).await.expect("the store answers");
        assert!(wait().await.is_allowed());
        // The setting may come while the program runs.
        with_rules(&limiter, &[("login", login(&["1/h"], "1min"))]);
        assert!(wait().await.into_result().expect_err("denied at once").is_blocked());
    }
    let both = Limiter::builder().rule("login", login(&["100000/s"], "1min").leases(true)).build();
    assert!(both.expect_err("an error").to_string().contains("`block` of the rule"));
}

#[test]
fn blocks_are_values_with_texts() {
    let block = Block::new(Duration::from_secs(60)).expect("a block");
    assert_eq!(block.to_string(), "1m");
    assert_eq!(block.extended(true).to_string(), "1m extended");
    assert_eq!(format!("{:?}", "1min x2 up to 1d".parse::<Block>().expect("a block")), "Block(\"1m x2 up to 1d\")");
}

#[rate_limited(key = "login:{user}", limit = "2/min", block = "10min", limiter = limiter, fallback = |denied| denied.is_blocked())]
async fn log_in(user: &str, limiter: &Limiter) -> bool {
    false
}

#[tokio::test]
async fn the_attribute_blocks_and_a_configured_block_comes_first() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build().expect("builds");
    assert!(!log_in("eve", &limiter).await && !log_in("eve", &limiter).await);
    assert!(log_in("eve", &limiter).await);
    clock.advance(599 * SECOND);
    assert!(log_in("eve", &limiter).await);
    clock.advance(SECOND);
    assert!(!log_in("eve", &limiter).await && !log_in("eve", &limiter).await);
    let configured = Rule::new().block("1min".parse().expect("a block"));
    with_rules(&limiter, &[("login:{user}", configured)]);
    assert!(log_in("eve", &limiter).await);
    clock.advance(60 * SECOND);
    assert!(!log_in("eve", &limiter).await);
    limiter.named("login:{user}").reset(&Key::new("login:").part("eve"), &limit("2/min")).await.expect("in memory");
}

#[rate_limited(key = "queue:{user}", limit = "1/min", wait = "30s", limiter = limiter, fallback = |denied| denied.is_blocked())]
async fn queue(user: &str, limiter: &Limiter) -> bool {
    false
}

#[tokio::test]
async fn a_configured_block_of_a_function_that_waits_denies_at_once() {
    let limiter = Limiter::memory();
    with_rules(&limiter, &[("queue:{user}", Rule::new().block("1min".parse().expect("a block")))]);
    assert!(!queue("eve", &limiter).await);
    assert!(queue("eve", &limiter).await, "it is denied and blocked, without a wait");
}
