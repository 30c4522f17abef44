//! Promise 6 in line: who waits behind a server that does not answer is told when its own time is over.

use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Limiter, OnError, Rule, rate_limited};

use super::{AHEAD, Calling, Scene, evalsha_calls, under_way};
use crate::deadlines::{DEADLINE, SLACK};
use crate::support::{key, limit, on};

/// What the functions give: whether they were answered, by which error not, and when.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[rate_limited(key = "short:{n}", name = "short", limit = "4/10s", on_error = raise)]
async fn short(n: usize) -> Outcome {
    Ok(())
}

#[rate_limited(key = "middle:{n}", name = "middle", limit = "4/10s", on_error = raise)]
async fn middle(n: usize) -> Outcome {
    Ok(())
}

#[rate_limited(key = "long:{n}", name = "long", limit = "4/10s", on_error = raise)]
async fn long(n: usize) -> Outcome {
    Ok(())
}

/// By the limiter's own deadline, which is longer.
#[rate_limited(key = "ahead:{n}", limit = "4/10s", on_error = raise)]
async fn ahead(n: usize) -> Outcome {
    Ok(())
}

const SHORT: Duration = Duration::from_millis(60);
const MIDDLE: Duration = Duration::from_millis(180);
const LONG: Duration = Duration::from_millis(300);

async fn limiter(server: &RedisServer, deadline: Duration) -> Limiter {
    let builder = on(server).deadline(deadline).on_error(OnError::Raise);
    let builder = builder.rule("short", Rule::new().deadline(SHORT)).rule("middle", Rule::new().deadline(MIDDLE));
    builder.rule("long", Rule::new().deadline(LONG)).connect().await.expect("the server is there")
}

/// A call of a rule, with how long it took.
fn timed(limiter: &Limiter, name: &str, n: usize) -> Calling<'static, (Outcome, Duration)> {
    let limiter = limiter.clone();
    let begun = Instant::now();
    match name {
        "short" => Box::pin(async move { (limiter.scope(short(n)).await, begun.elapsed()) }),
        "middle" => Box::pin(async move { (limiter.scope(middle(n)).await, begun.elapsed()) }),
        "ahead" => Box::pin(async move { (limiter.scope(ahead(n)).await, begun.elapsed()) }),
        _ => Box::pin(async move { (limiter.scope(long(n)).await, begun.elapsed()) }),
    }
}

/// The longest come first, so that whoever watches has to look again for those that are shorter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_in_line_is_answered_at_its_own_deadline() {
    let mut scene = Scene::new().await;
    scene.limiter = limiter(&scene.server, Duration::from_secs(5)).await;
    let _line = scene.line_up::<()>(Vec::new()).await;
    let rows = [("long", LONG), ("middle", MIDDLE), ("short", SHORT), ("middle", MIDDLE), ("long", LONG)];
    let calls = (0..40).flat_map(|n| rows.map(|row| (row, n)));
    let waiting: Vec<_> =
        calls.map(|((name, after), n)| (tokio::spawn(timed(&scene.limiter, name, n)), after)).collect();
    for (call, after) in waiting {
        let (outcome, took) = call.await.expect("ends");
        assert!(outcome.is_err());
        assert!((after..after + 2 * SLACK).contains(&took), "{took:?} of {after:?}");
    }
}

#[tokio::test]
async fn who_is_late_or_gone_in_line_is_never_sent_and_the_others_are() {
    let mut scene = Scene::new().await;
    scene.limiter = limiter(&scene.server, Duration::from_secs(5)).await;
    let before = evalsha_calls(&scene.server);
    let rows = (0..100).map(|n| timed(&scene.limiter, "short", n)).collect();
    let line = scene.line_up(rows).await;
    let gone = under_way((0..100).map(|n| timed(&scene.limiter, "long", n)).collect()).await;
    drop(gone);
    let stays = under_way((200..203).map(|n| timed(&scene.limiter, "long", n)).collect()).await;
    tokio::time::sleep(SHORT).await;
    scene.server.resume();
    assert!(line.answers().await.iter().all(|(outcome, _)| outcome.is_err()));
    for call in stays {
        call.await.0.expect("a decision");
    }
    assert_eq!(evalsha_calls(&scene.server), before + AHEAD + 1);
    assert_eq!(scene.server.keys_with(":10000").len(), 3, "of nobody else");
}

/// If it had, the stand-in would have a say and give this instance's half of the limit.
#[tokio::test]
async fn who_is_gone_before_it_was_sent_has_not_failed() {
    let mut server = RedisServer::start();
    let builder = on(&server).instances(2).rule("middle", Rule::new().deadline(MIDDLE)).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    server.pause();
    let mut ahead = Vec::new();
    for _ in 0..AHEAD {
        ahead.extend(under_way(vec![timed(&limiter, "ahead", ahead.len())]).await);
    }
    drop(under_way(vec![timed(&limiter, "middle", 0)]).await);
    tokio::time::sleep(MIDDLE).await;
    server.resume();
    for call in ahead {
        call.await.0.expect("a decision");
    }
    for _ in 0..4 {
        limiter.scope(middle(0)).await.expect("all of the limit");
    }
}

/// Its own time is all that a call in line has; but the server has been silent for a whole deadline, so nobody waits for it.
#[tokio::test]
async fn a_line_ends_when_the_server_is_given_up() {
    let mut server = RedisServer::start();
    let long = Rule::new().deadline(Duration::from_secs(5));
    let builder = on(&server).deadline(DEADLINE).rule("long", long).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("the server is there");
    server.pause();
    let mut calls = Vec::new();
    for size in [1, 1, 300] {
        calls.extend(under_way((0..size).map(|n| timed(&limiter, "long", n)).collect()).await);
    }
    // Behind all of them, and the first that is late.
    let error = limiter.check(&key("late"), &limit("5/10s")).await.expect_err("nobody answers");
    assert_eq!(error.kind(), rate_limited::ErrorKind::Timeout);
    for call in calls {
        let (outcome, took) = call.await;
        assert!(outcome.is_err() && took < Duration::from_secs(1), "after {took:?}");
    }
}

/// The answer to all of them comes between the deadlines of some and of others.
#[tokio::test]
async fn a_group_is_waited_for_by_those_who_have_time_and_is_nothing_to_the_others() {
    let mut server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let rule = |deadline| Rule::new().deadline(deadline).on_error(OnError::Standby);
    let builder = on(&server).url(proxy.url()).rule("short", rule(SHORT)).rule("long", rule(10 * LONG));
    let limiter = builder.connect().await.expect("the server is there");
    proxy.delay(Duration::from_millis(230));
    let mut ahead = under_way(vec![timed(&limiter, "long", 1)]).await;
    ahead.extend(under_way(vec![timed(&limiter, "long", 2)]).await);
    let calls = under_way(["short", "long"].map(|name| timed(&limiter, name, 0)).into()).await;
    let mut took = Vec::new();
    let running: Vec<_> = ahead.into_iter().chain(calls).map(tokio::spawn).collect();
    for call in running {
        let (outcome, after) = call.await.expect("ends");
        outcome.expect("allowed, by whomever");
        took.push(after);
    }
    // The answer to those ahead was due before that to the group.
    assert!(SHORT <= took[2] && took[2] < took[3] && took[3] > Duration::from_millis(100), "{took:?}");
    server.kill();
    // One of four was taken of each: what the store said too late is not taken from the stand-in again.
    for name in ["short", "long"] {
        for _ in 0..3 {
            timed(&limiter, name, 0).await.0.expect("one of four");
        }
        assert!(timed(&limiter, name, 0).await.0.is_err(), "{name}: a fifth of four");
    }
}
