//! Tests of the reports of a decision about several rules: one for each rule that allows the call, with its own values.

use std::time::Duration;

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Decision, Key, Limit, Limiter, Mode, OnError, Rule, RuleSet, Source, rate_limited};

use super::{Report, Reports};
use crate::algorithms::ALL_ALGORITHMS;
use crate::support::{Subject, builder_for, key, unpacked_limit as limit};

/// Asserts that the reports are those of an allowed decision: in the order of its requests, each with the values that a
/// peek sees now. The decision is the report with the least permits left.
pub(super) async fn assert_reports_equal_peeks(
    limiter: &Limiter,
    requests: &[(&Key, &Limit, u32)],
    reports: &[Report],
    decision: &Decision,
) {
    let mut expected = Vec::new();
    for (key, limit, _) in requests {
        let peeked = limiter.peek(key, limit).await.expect("the store answers");
        expected.push(Report { is_allowed: true, ..Report::from(&peeked) });
    }
    assert_eq!(reports, expected, "{requests:?}");
    let tightest = reports.iter().min_by_key(|report| report.remaining).expect("a report");
    assert_eq!(Report::from(decision), *tightest);
}

/// Random decisions about one to five requests, of which some are about the same counter.
async fn assert_random_decisions_are_reported(
    subject: &Subject,
    reports: &Reports,
    any_limit: impl Fn(&mut Random) -> Limit,
) {
    let mut random = Random::new(13);
    let keys = [key("a"), key("b"), key("c")];
    let (mut several, mut denied) = (0, 0);
    for step in 0..400 {
        subject.clock.advance(Duration::from_micros(random.below(150_000)));
        let requests: Vec<_> = (0..random.between(1, 5))
            .map(|_| {
                let key = &keys[usize::try_from(random.below(3)).expect("small")];
                (key, any_limit(&mut random), u32::try_from(random.below(4)).expect("small"))
            })
            .collect();
        let requests: Vec<_> = requests.iter().map(|(key, limit, cost)| (*key, limit, *cost)).collect();
        let decision = subject.limiter.check_all(&requests).await.expect("the store answers");
        let seen = reports.take();
        if decision.is_denied() {
            denied += 1;
            assert_eq!(seen, [Report::from(&decision)], "step {step}: a denial is reported once");
            continue;
        }
        several += usize::from(requests.len() > 1);
        assert_reports_equal_peeks(&subject.limiter, &requests, &seen, &decision).await;
    }
    assert!(several > 40 && denied > 20, "{several} of several rules, {denied} denied");
}

#[tokio::test]
async fn each_rule_is_reported_with_the_values_that_a_peek_sees() {
    let any_limit = |random: &mut Random| {
        let algorithm = ALL_ALGORITHMS[usize::try_from(random.below(5)).expect("small")];
        let text = ["9/1s", "7/1s", "30/3s"][usize::try_from(random.below(3)).expect("small")];
        limit(text).with_algorithm(algorithm)
    };
    for builder in [Limiter::builder(), builder_for(RedisServer::timeless())] {
        let reports = Reports::default();
        // Denials of one request are cached, and reported as such.
        let subject = Subject::with_builder(reports.observe(builder.remember_denials(Duration::ZERO))).await;
        assert_random_decisions_are_reported(&subject, &reports, any_limit).await;
    }
}

#[tokio::test]
async fn each_rule_on_sorted_sets_is_reported_with_the_values_that_a_peek_sees() {
    let reports = Reports::default();
    let subject = Subject::zset_with(|builder| reports.observe(builder)).await;
    let any_limit = |random: &mut Random| {
        let text = ["9/1s", "7/1s", "30/3s"][usize::try_from(random.below(3)).expect("small")];
        subject.limit(text)
    };
    assert_random_decisions_are_reported(&subject, &reports, any_limit).await;
}

#[rate_limited(key = "user:{id}", name = "by-user", limits = ["5/1s", "100/1m"], cost = 2, fallback = false)]
#[rate_limited(key = "all", name = "of-all", limit = "1000/1m", fallback = false)]
async fn get(id: u32) -> bool {
    id > 0
}

#[rate_limited(key = "patient", name = "patient", limits = ["2/100ms", "9/1m"], wait = "10s", fallback = false)]
async fn patient() -> bool {
    true
}

#[tokio::test]
async fn each_rule_of_an_annotated_call_is_reported_with_its_name() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let reports = Reports::default();
        let limiter = reports.observe(builder).connect().await.expect("a store");
        assert!(limiter.scope(get(42)).await);
        let seen: Vec<_> =
            reports.take().into_iter().map(|seen| (seen.name, seen.key, seen.limit, seen.remaining)).collect();
        let report =
            |name: &str, key: &str, text, remaining| (name.to_owned(), Some(key.to_owned()), limit(text), remaining);
        let expected = [
            report("by-user", "user:@42", "5/1s", 3),
            report("by-user", "user:@42", "100/1m", 98),
            report("of-all", "all", "1000/1m", 999),
        ];
        assert_eq!(seen, expected);
        limiter.scope(async { get(42).await && !get(42).await }).await;
        let names: Vec<_> = reports.take_names().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["by-user", "by-user", "of-all", "by-user"], "the denial is one report");
    }
}

#[tokio::test]
async fn each_rule_of_a_call_that_waited_is_reported_once() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let reports = Reports::default();
        let limiter = reports.observe(builder).connect().await.expect("a store");
        limiter
            .scope(async {
                for remaining in [8, 7, 6] {
                    assert!(patient().await);
                    let seen = reports.take_names();
                    assert_eq!(seen.len(), 2, "{seen:?}");
                    assert_eq!(seen[1], ("patient".to_owned(), remaining));
                }
            })
            .await;
    }
}

#[tokio::test]
async fn each_rule_of_named_calls_is_reported_with_its_name_and_cost() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let reports = Reports::default();
        let limiter = reports.observe(builder).connect().await.expect("a store");
        let (one, other, hour) = (key("one"), key("other"), limit("10/h"));
        let rules = [("wide", &one, &limit("99/h"), 7), ("narrow", &other, &hour, 3)];
        assert!(limiter.check_rules(&rules).await.expect("a store").is_allowed());
        assert_eq!(reports.take_names(), [("wide".to_owned(), 92), ("narrow".to_owned(), 7)]);
        // Configured limits are rules of the call too.
        limiter
            .set_rules(RuleSet::new().rule("set", Rule::new().limit(limit("20/h")).limit(limit("5/m"))))
            .expect("valid");
        let both = [(&one, &hour, 1), (&other, &hour, 2)];
        assert!(limiter.named("set").check_all(&both).await.expect("a store").is_allowed());
        let set = |remaining| ("set".to_owned(), remaining);
        assert_eq!(reports.take_names(), [set(12), set(4), set(15), set(3)]);
        let rules = [("wide", &one, &hour, 1), ("narrow", &other, &hour, 6), ("last", &one, &hour, 9)];
        assert!(limiter.check_rules(&rules).await.expect("a store").is_denied());
        assert_eq!(reports.take_names(), [("narrow".to_owned(), 5)], "the first rule that denies");
    }
}

#[tokio::test]
async fn a_report_of_one_of_several_rules_is_no_receipt() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let reports = Reports::default();
        let limiter = reports.observe(builder).connect().await.expect("a store");
        let (a, b, hour) = (key("a"), key("b"), limit("9/h"));
        let decision = limiter.check_all(&[(&a, &hour, 2), (&b, &hour, 3)]).await.expect("a store");
        let remaining = async || {
            let [a, b] = [limiter.peek(&a, &hour).await, limiter.peek(&b, &hour).await];
            [a, b].map(|peeked| peeked.expect("a store").remaining())
        };
        let seen = reports.take_decisions();
        assert_eq!(seen.len(), 2);
        for report in seen {
            limiter.refund(&report.into_result().expect("allowed")).await.expect("there is nothing to refund");
        }
        assert_eq!(remaining().await, [7, 6]);
        limiter.refund(&decision.into_result().expect("allowed")).await.expect("a store");
        assert_eq!(remaining().await, [9, 9], "the caller has the receipt");
    }
}

#[tokio::test]
async fn each_limit_of_a_rule_in_shadow_mode_is_reported() {
    for builder in [Limiter::builder(), builder_for(RedisServer::shared())] {
        let (reports, shadowed) = (Reports::default(), Reports::default());
        let denials = shadowed.clone();
        let limiter = reports
            .observe(builder)
            .on_shadowed(move |denied| denials.push(Decision::Denied(denied.clone())))
            .connect()
            .await
            .expect("a store");
        let shadow = Rule::new().mode(Mode::Shadow);
        limiter
            .set_rules(RuleSet::new().rule("by-user", shadow.limit(limit("9/h")).limit(limit("3/m"))))
            .expect("valid");
        limiter.scope(async { assert!(get(7).await && get(7).await) }).await;
        let report = |name: &str, remaining| (name.to_owned(), remaining);
        let first = [report("of-all", 999), report("by-user", 7), report("by-user", 1)];
        assert_eq!(reports.take_names(), [&first[..], &[report("of-all", 998)]].concat());
        assert_eq!(shadowed.take_names(), [report("by-user", 1)]);
    }
}

#[tokio::test]
async fn each_rule_that_a_policy_allows_is_reported() {
    for (policy, source, remaining) in
        [(OnError::Open, Source::Policy, [0, 0]), (OnError::Standby, Source::Standby, [8, 6])]
    {
        let reports = Reports::default();
        let builder = Limiter::builder().url("redis+unix:///nowhere/redis.sock").on_error(policy);
        let limiter = reports.observe(builder).build().expect("a URL");
        let (a, b, nine, seven) = (key("a"), key("b"), limit("9/h"), limit("7/h"));
        let both = [(&a, &nine, 1), (&b, &seven, 1)];
        let decision = limiter.check_all(&both).await.expect("a policy");
        assert!(decision.is_allowed());
        let seen = reports.take();
        let values: Vec<_> = seen.iter().map(|seen| (seen.key.clone(), seen.limit, seen.source)).collect();
        assert_eq!(values, [(Some("a".into()), nine, source), (Some("b".into()), seven, source)]);
        assert_eq!([seen[0].remaining, seen[1].remaining], remaining, "{policy:?}");
        let resets = seen.iter().filter(|seen| seen.reset_after > Duration::from_secs(3_500)).count();
        assert_eq!(resets, if policy == OnError::Open { 0 } else { 2 });
    }
}

#[tokio::test]
async fn each_rule_of_a_slow_store_is_reported() {
    let reports = Reports::default();
    let limiter = reports.observe(Limiter::builder()).slow(Duration::from_millis(1)).build().expect("a limiter");
    let (a, b, nine, seven) = (key("a"), key("b"), limit("9/h"), limit("7/h"));
    assert!(limiter.check_all(&[(&a, &nine, 2), (&b, &seven, 3)]).await.expect("in time").is_allowed());
    assert_eq!(reports.take_names().into_iter().map(|(_, remaining)| remaining).collect::<Vec<_>>(), [7, 4]);
}
