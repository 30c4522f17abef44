//! Tests of `instances`: each standby limiter grants its share of every limit.

use std::time::Duration;

use rate_limited::{Decision, Limiter, Source};

use super::{OutageFixture, take_all, wait_until_connected};
use crate::support::{key, limit};

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
    let five = limit("5/10s");
    fixture.server.command(&["SET", &format!("{}:{{bad}}:sw:10000", fixture.prefix), "foreign"]);
    let mut taken = Vec::new();
    for name in ["b", "c", "d", "e"] {
        let bad = first.check(&key("bad"), &five).await.expect("a decision");
        assert_ne!(super::source(&bad), Source::Store);
        let mut sources = Vec::new();
        while let Decision::Allowed(allowed) = first.check(&key(name), &five).await.expect("a decision") {
            sources.push(allowed.source());
        }
        taken.push(sources);
    }
    assert!(taken.contains(&vec![Source::Store; 5]), "{taken:?}");
}
