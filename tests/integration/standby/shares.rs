//! Several instances of a program, of which each stand-in gives away a part of every limit.

use std::time::Duration;

use rate_limited::{Decision, Limiter, Source};

use super::{Scene, connected, take_all};
use crate::support::{key, limit};

async fn instances<const N: usize>(scene: &Scene) -> [Limiter; N] {
    let count = u32::try_from(N).expect("a few");
    let mut limiters = Vec::new();
    for _ in 0..N {
        limiters.push(scene.builder().instances(count).connect().await.expect("the server is there"));
    }
    limiters.try_into().expect("as many")
}

#[tokio::test]
async fn one_instance_may_have_it_all_while_the_store_is_well() {
    let scene = Scene::new();
    let [first, second] = instances(&scene).await;
    assert_eq!(take_all(&first).await.0, [Source::Store; 5]);
    assert_eq!(take_all(&second).await.0, []);
}

#[tokio::test]
async fn together_they_stay_within_the_limit_through_an_outage_and_back() {
    let mut scene = Scene::new();
    let [first, second] = instances(&scene).await;
    scene.server.kill();
    assert_eq!(take_all(&first).await.0, [Source::Standby; 2], "half of five");
    assert_eq!(take_all(&second).await.0, [Source::Standby; 2]);
    scene.restart_empty(&[]).await;
    for limiter in [&first, &second] {
        connected(limiter).await;
        assert_eq!(take_all(limiter).await.0, [], "their parts are used up");
    }
    scene.advance_secs(9);
    assert_eq!(take_all(&first).await.0, []);
    scene.advance_secs(1);
    assert_eq!(take_all(&first).await.0, [Source::Store; 5]);
    assert_eq!(take_all(&second).await.0, []);
}

#[tokio::test]
async fn what_is_too_much_for_a_part_is_not_denied_for_good() {
    let mut scene = Scene::new();
    let [first, _second] = instances(&scene).await;
    scene.server.kill();
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
async fn each_gives_one_where_there_is_none_for_each() {
    let mut scene = Scene::new();
    let [first, second, third] = instances(&scene).await;
    scene.server.kill();
    for limiter in [&first, &second, &third] {
        for expected in [true, false] {
            let decision = limiter.check(&key("a"), &limit("2/10s")).await.expect("a decision");
            assert_eq!(decision.is_allowed(), expected);
        }
    }
}

/// A key that nobody can use makes no stand-in a party to the others. (Keys may share a mark of failures, but hardly four
/// of them.)
#[tokio::test]
async fn one_bad_key_is_nothing_to_the_others() {
    let scene = Scene::new();
    let [first, _second] = instances(&scene).await;
    let five = limit("5/10s");
    scene.server.command(&["SET", &format!("{}:{{bad}}:sw:10000", scene.prefix), "foreign"]);
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
