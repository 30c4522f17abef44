//! Tests of `instances`: each standby limiter grants its share of every limit.

use std::time::Duration;

use rate_limited::{Decision, Limiter, Source};

use super::{OutageFixture, take_all, wait_until_connected};
use crate::support::{key, limit, unpacked_limit};

async fn instances<const N: usize>(fixture: &OutageFixture) -> [Limiter; N] {
    let count = u32::try_from(N).expect("a few");
    let mut limiters = Vec::new();
    for _ in 0..N {
        limiters.push(fixture.builder().instances(count).connect().await.expect("the server is there"));
    }
    limiters.try_into().expect("as many")
}

#[tokio::test]
async fn one_instance_may_use_the_whole_limit_without_an_outage() {
    let fixture = OutageFixture::new();
    let [first, second] = instances(&fixture).await;
    assert_eq!(take_all(&first).await.0, [Source::Store; 5]);
    assert_eq!(take_all(&second).await.0, []);
}

#[tokio::test]
async fn instances_together_keep_the_limit_through_an_outage() {
    let mut fixture = OutageFixture::new();
    let [first, second] = instances(&fixture).await;
    fixture.server.kill();
    assert_eq!(take_all(&first).await.0, [Source::Standby; 2], "half of five");
    assert_eq!(take_all(&second).await.0, [Source::Standby; 2]);
    fixture.restart_empty(&[]).await;
    for limiter in [&first, &second] {
        wait_until_connected(limiter).await;
        assert_eq!(take_all(limiter).await.0, [], "its share is used up");
    }
    fixture.advance_secs(9);
    assert_eq!(take_all(&first).await.0, []);
    fixture.advance_secs(1);
    assert_eq!(take_all(&first).await.0, [Source::Store; 5]);
    assert_eq!(take_all(&second).await.0, []);
}

#[tokio::test]
async fn cost_above_the_share_is_not_denied_permanently() {
    let mut fixture = OutageFixture::new();
    let [first, _second] = instances(&fixture).await;
    fixture.server.kill();
    for (cost, is_final, allowed) in [(2, false, true), (3, false, false), (5, false, false), (6, true, false)] {
        match first.check_n(&key(&format!("{cost}")), &limit("5/10s"), cost).await.expect("a decision") {
            Decision::Allowed(_) => assert!(allowed, "{cost}"),
            Decision::Denied(denied) => {
                assert_eq!((denied.is_final(), allowed), (is_final, false), "{cost}");
                assert!(is_final || denied.retry_after() == Duration::from_secs(1), "{denied:?}");
            }
        }
    }
}

#[tokio::test]
async fn each_instance_grants_at_least_one_permit() {
    let mut fixture = OutageFixture::new();
    let [first, second, third] = instances(&fixture).await;
    fixture.server.kill();
    for limiter in [&first, &second, &third] {
        for expected in [true, false] {
            let decision = limiter.check(&key("a"), &limit("2/10s")).await.expect("a decision");
            assert_eq!(decision.is_allowed(), expected);
        }
    }
}

/// Failures on one key do not consult the standby limiter for others. Keys may share a failure record by hash, but
/// hardly all four of them.
#[tokio::test]
async fn failures_on_one_key_do_not_affect_other_keys() {
    let fixture = OutageFixture::new();
    let [first, _second] = instances(&fixture).await;
    let five = unpacked_limit("5/10s");
    let take_all = async |name| {
        let mut sources = Vec::new();
        while let Decision::Allowed(allowed) = first.check(&key(name), &five).await.expect("a decision") {
            sources.push(allowed.source());
        }
        sources
    };
    let names = ["b", "c", "d", "e"];
    for name in names {
        assert_eq!(take_all(name).await, [Source::Store; 5]);
    }
    // The mirror is full, and the store has lost all counters.
    fixture.server.command(&["FLUSHALL"]);
    fixture.server.command(&["SET", &format!("{}:{{bad}}10s", fixture.prefix), "foreign"]);
    let mut taken = Vec::new();
    for name in names {
        let bad = first.check(&key("bad"), &five).await.expect("a decision");
        assert_ne!(super::source(&bad), Source::Store);
        taken.push(take_all(name).await);
    }
    assert!(taken.contains(&vec![Source::Store; 5]), "{taken:?}");
}

/// The server is well, so it has what the other instances were granted.
#[tokio::test]
async fn a_late_call_reduces_its_key_to_no_share() {
    let server = limiter_testkit::RedisServer::start();
    let proxy = limiter_testkit::Proxy::start(&server);
    // The rule of the late call alone has a short deadline.
    let rules = rate_limited::RuleSet::new()
        .rule("short", rate_limited::Rule::new().deadline(Duration::from_millis(50)))
        .rule("long", rate_limited::Rule::new());
    let builder = Limiter::builder().url(proxy.url()).prefix(limiter_testkit::unique("standby")).rules(rules);
    let builder = builder.deadline(crate::support::LONG_DEADLINE).on_error(rate_limited::OnError::Standby);
    let limiter = builder.instances(10).connect().await.expect("the server is there");
    let hundred = limit("100/1h");
    let check = async |rule| limiter.named(rule).check(&key("a"), &hundred).await.expect("a decision");
    proxy.hold_replies();
    let late = check("short").await;
    assert_eq!((late.is_allowed(), super::source(&late)), (true, Source::Standby));
    proxy.pass();
    let mut granted = 0;
    while let Decision::Allowed(allowed) = check("long").await {
        assert_eq!(allowed.source(), Source::Store);
        granted += 1;
    }
    // The store has counted the late call, and the standby limiter has granted it.
    assert_eq!(granted, 99);
}
