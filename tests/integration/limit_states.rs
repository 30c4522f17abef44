//! Tests of `limits()`: each limit of a decision that has asked for all, allowed and denied.

use std::time::Duration;

use limiter_testkit::{Cluster, Random, RedisServer};
use rate_limited::{
    Builder, Decision, Key, Limit, LimitState, Limiter, ManualClock, Mode, OnError, Rule, RuleSet, Source, rate_limited,
};

use crate::algorithms::ALL_ALGORITHMS;
use crate::cluster::{key_per_master, name_in};
use crate::deadlines::{DEADLINE, eventually};
use crate::observers::Reports;
use crate::support::{Subject, builder_for, key, limit};

/// A limit, its permits left and the time until all are back.
type State = (Limit, u32, Duration);

fn states(decision: &Decision) -> Vec<State> {
    decision.limits().map(|state| (state.limit(), state.remaining(), state.reset_after())).collect()
}

fn described(decision: &Decision) -> State {
    (decision.limit(), decision.remaining(), decision.reset_after())
}

/// Returns the state of each request by itself.
async fn peeked(limiter: &Limiter, requests: &[(&Key, &Limit, u32)]) -> Vec<State> {
    let mut states = Vec::new();
    for (key, limit, _) in requests {
        states.push(described(&limiter.peek(key, limit).await.expect("the store answers")));
    }
    states
}

/// Random decisions about one to five requests, of which some are about the same counter.
async fn assert_random_decisions_have_each_limit(subject: &Subject, any_limit: impl Fn(&mut Random) -> Limit) {
    let mut random = Random::new(29);
    let keys = [key("a"), key("b"), key("c")];
    let (mut several, mut denied) = (0, 0);
    for step in 0..300 {
        subject.clock.advance(Duration::from_micros(random.below(150_000)));
        let requests: Vec<_> = (0..random.between(1, 5))
            .map(|_| {
                let key = &keys[usize::try_from(random.below(3)).expect("small")];
                (key, any_limit(&mut random), u32::try_from(random.below(4)).expect("small"))
            })
            .collect();
        let requests: Vec<_> = requests.iter().map(|(key, limit, cost)| (*key, limit, *cost)).collect();
        let before = peeked(&subject.limiter, &requests).await;
        let decision = subject.limiter.check_all(&requests).await.expect("the store answers");
        let expected = peeked(&subject.limiter, &requests).await;
        assert_eq!(states(&decision), expected, "step {step}: {requests:?}");
        if decision.is_denied() {
            denied += usize::from(requests.len() > 1);
            assert_eq!(before, expected, "step {step}: nothing was taken");
        }
        several += usize::from(requests.len() > 1);
    }
    assert!(several > 40 && denied > 20, "{several} of several limits, {denied} of them denied");
}

#[tokio::test]
async fn each_limit_has_the_values_that_a_peek_sees() {
    let any_limit = |random: &mut Random| {
        let algorithm = ALL_ALGORITHMS[usize::try_from(random.below(5)).expect("small")];
        let text = ["9/1s", "7/1s", "30/3s"][usize::try_from(random.below(3)).expect("small")];
        limit(text).with_algorithm(algorithm)
    };
    for has_observers in [false, true] {
        for builder in [Limiter::builder(), builder_for(RedisServer::timeless())] {
            let builder = builder.remember_denials(Duration::ZERO).report_limits(true);
            let builder = if has_observers { Reports::default().observe(builder) } else { builder };
            assert_random_decisions_have_each_limit(&Subject::with_builder(builder).await, any_limit).await;
        }
    }
}

#[tokio::test]
async fn each_limit_on_sorted_sets_has_the_values_that_a_peek_sees() {
    let subject = Subject::zset_with(|builder| builder.report_limits(true).remember_denials(Duration::ZERO)).await;
    let any_limit = |random: &mut Random| {
        let text = ["9/1s", "7/1s", "30/3s"][usize::try_from(random.below(3)).expect("small")];
        subject.limit(text)
    };
    assert_random_decisions_have_each_limit(&subject, any_limit).await;
}

#[rate_limited(key = "user:{id}", name = "by-user", limits = ["2/1s", "100/1m"], permit = allowed, fallback = |denied| {
    texts(&denied.into())
})]
#[rate_limited(key = "all", name = "of-all", limit = "1000/1m", fallback = |denied| texts(&denied.into()))]
async fn get(id: u32) -> Vec<String> {
    let _ = id;
    texts(&allowed.into())
}

fn texts(decision: &Decision) -> Vec<String> {
    let text = |state: LimitState<'_>| format!("{} {} {}", state.name(), state.limit(), state.remaining());
    decision.limits().map(text).collect()
}

fn every_store() -> [Builder; 2] {
    [Limiter::builder(), builder_for(RedisServer::shared())]
}

#[tokio::test]
async fn without_report_limits_there_is_the_one_that_the_decision_describes() {
    for builder in every_store() {
        // Observers, shadow mode and metrics ask for reports too, which are not the caller's.
        for builder in [builder.on_allowed(|_| {}).rule("shadow", Rule::new().mode(Mode::Shadow))] {
            let limiter = builder.expose_keys().connect().await.expect("a store");
            let (a, b, nine, two) = (key("a"), key("b"), limit("9/h"), limit("2/m"));
            let rules = [("wide", &a, &nine, 1), ("narrow", &b, &two, 1), ("shadow", &a, &nine, 1)];
            for is_allowed in [true, true, false] {
                let decision = limiter.check_rules(&rules).await.expect("a store");
                assert_eq!(decision.is_allowed(), is_allowed);
                let all: Vec<_> = decision.limits().map(|state| (state.name().to_owned(), state.limit())).collect();
                assert_eq!(all, [("narrow".to_owned(), two)]);
                assert_eq!(decision.limits().next().expect("one").key(), Some("b"));
                assert_eq!(states(&decision), [described(&decision)]);
            }
        }
    }
}

#[tokio::test]
async fn observers_get_the_reports_that_they_got_and_callers_each_limit() {
    for builder in every_store() {
        let reports = Reports::default();
        let limiter = reports.observe(builder.report_limits(true)).connect().await.expect("a store");
        let (a, b, nine, two) = (key("a"), key("b"), limit("9/h"), limit("2/m"));
        let rules = [("wide", &a, &nine, 1), ("narrow", &b, &two, 1)];
        let report = |name: &str, remaining| (name.to_owned(), remaining);
        for remaining in [[8, 1], [7, 0]] {
            let decision = limiter.check_rules(&rules).await.expect("a store");
            let keys: Vec<_> = decision.limits().map(|state| state.key().expect("exposed").to_owned()).collect();
            assert_eq!(keys, ["a", "b"]);
            assert_eq!(
                texts(&decision),
                [format!("wide 9/h {}", remaining[0]), format!("narrow 2/min {}", remaining[1])]
            );
            assert_eq!(reports.take_names(), [report("wide", remaining[0]), report("narrow", remaining[1])]);
        }
        let denied = limiter.check_rules(&rules).await.expect("a store");
        assert_eq!(
            (denied.is_denied(), texts(&denied)),
            (true, vec!["wide 9/h 7".to_owned(), "narrow 2/min 0".to_owned()])
        );
        assert_eq!(reports.take_names(), [report("narrow", 0)], "a denial is reported once");
    }
}

#[tokio::test]
async fn rules_in_shadow_mode_are_left_out() {
    for builder in every_store() {
        let limiter = builder.report_limits(true).connect().await.expect("a store");
        let shadow = Rule::new().mode(Mode::Shadow);
        limiter.set_rules(RuleSet::new().rule("shadow", shadow)).expect("valid");
        let (a, nine, two, one) = (key("a"), limit("9/h"), limit("2/m"), limit("1/h"));
        let rules = [("wide", &a, &nine, 1), ("shadow", &a, &one, 1), ("narrow", &a, &two, 1)];
        for left in [[8, 1], [7, 0], [7, 0]] {
            let decision = limiter.check_rules(&rules).await.expect("a store");
            assert_eq!(texts(&decision), [format!("wide 9/h {}", left[0]), format!("narrow 2/min {}", left[1])]);
        }
        let alone = limiter.check_rules(&[("shadow", &a, &one, 1), ("shadow", &a, &nine, 1)]).await.expect("a store");
        assert_eq!(alone.limits().count(), 1, "{alone:?}");
    }
}

#[tokio::test]
async fn an_annotated_call_has_each_limit_of_all_its_rules() {
    for builder in every_store() {
        let limiter = builder.report_limits(true).connect().await.expect("a store");
        let with = |second, minute, all| {
            [format!("by-user 2/s {second}"), format!("by-user 100/min {minute}"), format!("of-all 1000/min {all}")]
        };
        limiter
            .scope(async {
                assert_eq!(get(7).await, with(1, 99, 999));
                assert_eq!(get(7).await, with(0, 98, 998));
                assert_eq!(get(7).await, with(0, 98, 998), "a denial takes nothing");
            })
            .await;
    }
}

#[tokio::test]
async fn a_peek_has_each_limit_before_the_call() {
    for builder in every_store() {
        let limiter = builder.report_limits(true).connect().await.expect("a store");
        let two = Rule::new().limit(limit("2/h")).limit(limit("9/d"));
        limiter.set_rules(RuleSet::new().rule("api", two)).expect("valid");
        let (named, a, any) = (limiter.named("api"), key("a"), limit("1/s"));
        for left in [[2, 9], [1, 8], [0, 7], [0, 7]] {
            let seen = named.peek(&a, &any).await.expect("a store");
            assert_eq!(texts(&seen), [format!("api 2/h {}", left[0]), format!("api 9/d {}", left[1])]);
            assert_eq!(seen.is_denied(), named.check(&a, &any).await.expect("a store").is_denied());
        }
    }
}

#[tokio::test]
async fn a_call_whose_wait_is_over_has_each_limit() {
    for builder in every_store() {
        let limiter = builder.report_limits(true).connect().await.expect("a store");
        let named = limiter.named("patient");
        limiter
            .set_rules(RuleSet::new().rule("patient", Rule::new().limit(limit("1/h")).limit(limit("9/d"))))
            .expect("valid");
        let (a, any) = (key("a"), limit("1/s"));
        let left = |decision: Decision| decision.limits().map(|state| state.remaining()).collect::<Vec<_>>();
        assert_eq!(left(named.wait(&a, &any, Duration::from_secs(9)).await.expect("a store")), [0, 8]);
        assert_eq!(left(named.wait(&a, &any, Duration::from_millis(1)).await.expect("a store")), [0, 8]);
    }
}

/// The keys of a decision are in several slots and nodes, in one slot, or in one that moves.
#[tokio::test]
async fn a_cluster_has_each_limit_of_several_slots() {
    let cluster = Cluster::builder().masters_only().start();
    let builder = crate::cluster::builder_for(&cluster).report_limits(true).clock(ManualClock::new());
    let limiter = builder.connect().await.expect("connects");
    let (nine, seven) = (limit("9/1h"), limit("7/1m"));
    let check = async |requests: &[(&Key, &Limit, u32)], is_allowed: bool| {
        let decision = limiter.check_all(requests).await.expect("a decision");
        assert_eq!(decision.is_allowed(), is_allowed);
        assert_eq!(states(&decision), peeked(&limiter, requests).await);
    };
    let keys = key_per_master(&cluster);
    let several = [(&keys[2], &nine, 1), (&keys[0], &seven, 2), (&keys[1], &nine, 1), (&keys[0], &nine, 3)];
    check(&several, true).await;
    check(&[(&keys[0], &nine, 1), (&keys[1], &seven, 8), (&keys[2], &nine, 10)], false).await;
    check(&several, true).await;
    let slot = 4711;
    let (same, from) = (key(&name_in(slot)), cluster.master_of(slot));
    check(&[(&same, &seven, 1), (&keys[1], &nine, 1), (&same, &nine, 2)], true).await;
    let to = cluster.masters().into_iter().find(|master| *master != from).expect("another");
    let migration = cluster.begin_migration(slot, to);
    assert_eq!(migration.move_keys(1), 1);
    check(&[(&same, &seven, 1), (&same, &nine, 1)], true).await;
    check(&[(&same, &seven, 1), (&same, &nine, 9)], false).await;
    migration.move_keys(10);
    migration.finish();
    check(&[(&same, &seven, 1), (&same, &nine, 1)], true).await;
}

#[tokio::test]
async fn the_standby_limiter_has_each_limit() {
    let (mut server, clock) = (RedisServer::start(), ManualClock::new());
    let builder = builder_for(&server).clock(clock).on_error(OnError::Standby).deadline(DEADLINE).report_limits(true);
    let limiter = builder.connect().await.expect("connects");
    let (a, b, nine, seven) = (key("a"), key("b"), limit("9/1h"), limit("7/1m"));
    let check = async |costs: [u32; 2]| {
        let both = [(&a, &nine, costs[0]), (&b, &seven, costs[1])];
        let decision = limiter.check_all(&both).await.expect("a decision");
        let left: Vec<_> = decision.limits().map(|state| state.remaining()).collect();
        (decision.is_allowed(), decision.source(), left)
    };
    assert_eq!(check([2, 1]).await, (true, Source::Store, vec![7, 6]));
    server.kill();
    assert_eq!(check([2, 1]).await, (true, Source::Standby, vec![5, 5]));
    assert_eq!(check([6, 1]).await, (false, Source::Standby, vec![5, 5]));
    // The server is empty now, so the standby limiter is consulted.
    server.restart();
    eventually("connected", async || {
        limiter.peek(&key("c"), &nine).await.is_ok_and(|seen| seen.source() == Source::Store)
    })
    .await;
    assert_eq!(check([6, 1]).await, (false, Source::Standby, vec![5, 5]));
}

#[tokio::test]
async fn a_policy_without_a_count_has_the_limit_that_it_describes() {
    for policy in [OnError::Open, OnError::Closed] {
        let builder = Limiter::builder().url("redis+unix:///nowhere/redis.sock").on_error(policy).report_limits(true);
        let limiter = builder.build().expect("a URL");
        let (a, b, nine, seven) = (key("a"), key("b"), limit("9/h"), limit("7/h"));
        let decision = limiter.check_all(&[(&a, &nine, 1), (&b, &seven, 1)]).await.expect("a policy");
        assert_eq!((decision.source(), states(&decision)), (Source::Policy, vec![(nine, 0, Duration::ZERO)]));
    }
}

#[tokio::test]
async fn a_lone_denial_from_the_cache_is_its_one_limit() {
    let limiter = builder_for(RedisServer::shared()).report_limits(true).connect().await.expect("a store");
    let (a, one) = (key("a"), limit("1/h"));
    for source in [Source::Store, Source::Store, Source::DeniedUntil] {
        let decision = limiter.check(&a, &one).await.expect("a store");
        assert_eq!((decision.source(), states(&decision)), (source, vec![described(&decision)]));
    }
}

#[tokio::test]
async fn no_debug_form_of_a_limit_contains_its_key() {
    let limiter = Limiter::builder().expose_keys().report_limits(true).build().expect("builds");
    let (secret, one) = (key("secret"), limit("1/h"));
    let decision = limiter.check_all(&[(&secret, &one, 1), (&key("b"), &one, 1)]).await.expect("decides");
    let first = decision.limits().next().expect("a limit");
    assert_eq!(first.key(), Some("secret"));
    assert!(!format!("{first:?} {decision:?}").contains("secret"));
}
