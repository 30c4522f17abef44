//! Promise 7: a store outage is not a fresh quota. By a clock that stands still, but for the last test.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Builder, Decision, Denied, Limiter, ManualClock, OnError, Source};

use crate::deadlines::{DEADLINE, eventually};
use crate::support::{AMPLE, key, limit};

mod concurrent;
mod unnoticed;
mod policies;
mod shares;
mod windows;

/// A server to kill, and limiters that share a quota on it and a clock.
struct Scene {
    server: RedisServer,
    prefix: String,
    clock: ManualClock,
}

impl Scene {
    fn new() -> Self {
        Self { server: RedisServer::start(), prefix: unique("standby"), clock: ManualClock::new() }
    }

    fn builder(&self) -> Builder {
        let builder = Limiter::builder().url(&self.server.url()).prefix(&self.prefix);
        // What one limiter here gives back, the others are to see at once.
        builder.deadline(AMPLE).remember_denials(Duration::ZERO).clock(self.clock.clone())
    }

    async fn limiter(&self) -> Limiter {
        self.builder().connect().await.expect("the server is there")
    }

    fn advance_secs(&self, secs: u64) {
        self.clock.advance(Duration::from_secs(secs));
    }

    /// The server loses all it knew. Returns when the limiters are connected to it again.
    async fn restart_empty(&mut self, limiters: &[&Limiter]) {
        self.server.restart();
        for limiter in limiters {
            connected(limiter).await;
        }
    }
}

async fn connected(limiter: &Limiter) {
    // Nobody has taken anything of this key, so it is the store's to say.
    let by_store = || async {
        let seen = limiter.peek(&key("probe"), &limit("1/10s")).await;
        seen.is_ok_and(|seen| source(&seen) == Source::Store)
    };
    eventually("connected", by_store).await;
}

fn source(decision: &Decision) -> Source {
    match decision {
        Decision::Allowed(allowed) => allowed.source(),
        Decision::Denied(denied) => denied.source(),
    }
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check(&key("a"), &limit("5/10s")).await.expect("the stand-in at least")
}

/// Takes permits until there are none: who gave how many, and the denial.
async fn take_all(limiter: &Limiter) -> (Vec<Source>, Denied) {
    let mut sources = Vec::new();
    loop {
        match check(limiter).await {
            Decision::Allowed(allowed) => sources.push(allowed.source()),
            Decision::Denied(denied) => return (sources, denied),
        }
    }
}

#[tokio::test]
async fn what_was_taken_before_the_outage_counts_during_it() {
    let mut scene = Scene::new();
    let limiter = scene.limiter().await;
    for remaining in [4, 3, 2] {
        assert_eq!(check(&limiter).await.remaining(), remaining);
    }
    scene.advance_secs(1);
    scene.server.kill();
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!(sources, [Source::Standby; 2]);
    assert_eq!((denied.source(), denied.retry_after()), (Source::Standby, Duration::from_secs(9)));
    // And that is true: the three of the beginning come back then, and not a millisecond earlier.
    scene.clock.advance(denied.retry_after() - Duration::from_millis(1));
    assert!(check(&limiter).await.is_denied());
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 3]);
}

#[tokio::test]
async fn a_store_that_comes_back_empty_hands_out_nothing_twice() {
    let mut scene = Scene::new();
    let limiter = scene.limiter().await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    scene.advance_secs(4);
    scene.server.kill();
    assert!(check(&limiter).await.is_denied());
    scene.restart_empty(&[&limiter]).await;
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!((sources, denied.source()), (vec![], Source::Standby));
    assert_eq!(denied.retry_after(), Duration::from_secs(6));
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Standby, true));
    assert_eq!(scene.server.keys(), [""; 0], "nothing is written back");
    // The permits of the beginning come back; what both agree to is the store's.
    scene.advance_secs(6);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    assert_eq!(scene.server.keys().len(), 1);
}

/// As after a failover to a replica that lacks the last permit: the server has another call's in its place, which counts until
/// after the standby limiter was last consulted.
#[tokio::test]
async fn a_refund_of_a_permit_that_the_server_lost_frees_no_other() {
    let mut scene = Scene::new();
    let limiter = scene.limiter().await;
    assert!(check(&limiter).await.is_allowed());
    let count = scene.server.command(&["KEYS", &format!("{}*", scene.prefix)]).array().remove(0).bytes();
    let raw = |server: &RedisServer, command: &[&[u8]]| {
        server.client().expect("a connection").call(command).expect("an answer")
    };
    let replicated = raw(&scene.server, &[b"GET", &count]).bytes();
    scene.advance_secs(1);
    let Decision::Allowed(lost) = check(&limiter).await else { panic!("there is room") };
    assert_eq!(lost.source(), Source::Store);
    scene.restart_empty(&[&limiter]).await;
    raw(&scene.server, &[b"SET", &count, &replicated, b"PX", b"600000"]);
    scene.advance_secs(5);
    assert!(check(&limiter).await.is_allowed());
    limiter.refund(&lost).await.expect("given back as far as it is known");
    scene.advance_secs(6);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4], "one of five was taken 6 s ago");
}

#[tokio::test]
async fn a_restart_that_no_call_noticed_is_an_outage_too() {
    let mut scene = Scene::new();
    let limiter = scene.limiter().await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    scene.server.restart();
    let connected = || async { scene.server.info("clients")["connected_clients"] == "2" };
    eventually("connected again", connected).await;
    assert_eq!(take_all(&limiter).await.0, []);
    assert_eq!(scene.server.keys(), [""; 0]);
}

/// The stand-in counts on its own here: another limiter has made the store forget.
#[tokio::test]
async fn the_stand_in_has_a_say_for_one_window_after_the_last_failure() {
    let mut scene = Scene::new();
    let (limiter, other) = (scene.limiter().await, scene.limiter().await);
    scene.server.kill();
    assert!(check(&limiter).await.is_allowed());
    scene.restart_empty(&[&limiter, &other]).await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
    for millis in [0, 9_999] {
        scene.clock.advance(Duration::from_millis(millis));
        other.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
        assert_eq!(take_all(&limiter).await.0, []);
    }
    scene.clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        assert_eq!(take_all(&limiter).await.0, [Source::Store; 5], "the store is asked alone");
        other.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
    }
}

#[tokio::test]
async fn a_denial_by_the_store_gives_back_what_the_stand_in_held() {
    let mut scene = Scene::new();
    let (limiter, other) = (scene.limiter().await, scene.limiter().await);
    scene.restart_empty(&[&limiter, &other]).await;
    assert_eq!(take_all(&other).await.0, [Source::Store; 5]);
    for _ in 0..10 {
        let (sources, denied) = take_all(&limiter).await;
        assert_eq!((sources, denied.source()), (vec![], Source::Store));
    }
    scene.server.kill();
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 5]);
}

/// A task that is woken long after its call failed takes what the store has not heard of: the window counts from then.
#[tokio::test]
async fn a_call_that_the_stand_in_admits_late_is_not_forgotten() {
    let mut scene = Scene::new();
    let limiter = scene.builder().deadline(3 * DEADLINE).connect().await.expect("the server is there");
    scene.server.pause();
    let (a, b, five) = (key("a"), key("b"), limit("5/10s"));
    let mut late = Box::pin(limiter.check(&a, &five));
    let polled = poll_fn(|context| Poll::Ready(late.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "until the deadline");
    assert_eq!(source(&limiter.check(&b, &five).await.expect("a decision")), Source::Standby, "its deadline is later");
    scene.restart_empty(&[&limiter]).await;
    scene.advance_secs(6);
    assert_eq!(source(&late.await.expect("a decision")), Source::Standby);
    scene.advance_secs(4);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
}

#[tokio::test]
async fn what_the_stand_in_forgets_with_a_reset_is_free() {
    let mut scene = Scene::new();
    let limiter = scene.limiter().await;
    assert_eq!(take_all(&limiter).await.0.len(), 5);
    limiter.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
    scene.server.kill();
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 5]);
    assert!(limiter.reset(&key("a"), &limit("5/10s")).await.is_err(), "the store has not forgotten");
}

/// Whoever ran during the outage counts after it, by which policy ever.
#[tokio::test]
async fn what_an_open_policy_let_through_is_not_forgotten() {
    let mut scene = Scene::new();
    let limiter = scene.builder().on_error(OnError::Open).connect().await.expect("the server is there");
    scene.server.kill();
    for _ in 0..7 {
        assert_eq!(source(&check(&limiter).await), Source::Policy);
    }
    scene.restart_empty(&[&limiter]).await;
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!((sources, denied.source()), (vec![], Source::Standby));
    scene.advance_secs(10);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
}

/// The stand-in had held a permit for each of them.
#[tokio::test]
async fn calls_that_did_not_get_to_run_take_nothing() {
    for policy in [OnError::Closed, OnError::Raise] {
        let mut scene = Scene::new();
        let limiter = scene.builder().on_error(policy).connect().await.expect("the server is there");
        assert!(check(&limiter).await.is_allowed());
        let name = scene.server.keys().remove(0);
        scene.restart_empty(&[&limiter]).await;
        scene.server.command(&["SET", &name, "foreign"]);
        for _ in 0..10 {
            let decision = limiter.check(&key("a"), &limit("5/10s")).await;
            assert!(!decision.is_ok_and(|decision| decision.is_allowed()));
        }
        scene.server.command(&["DEL", &name]);
        assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
    }
}

/// What is held for a call until the store agrees is then its own, not another's that would have come back next.
#[tokio::test]
async fn while_both_must_agree_as_much_is_admitted_as_ever() {
    let scene = Scene::new();
    let limiter = scene.limiter().await;
    for _ in 0..10 {
        assert!(limiter.check(&key("a"), &limit("10/10s")).await.expect("decides").is_allowed());
        scene.advance_secs(1);
    }
    scene.server.flush_scripts(); // which looks like another server
    for second in 10..20 {
        let first = limiter.check(&key("a"), &limit("10/10s")).await.expect("decides");
        assert!(first.is_allowed(), "after {second} s");
        let more = limiter.check(&key("a"), &limit("10/10s")).await.expect("decides");
        assert!(more.is_denied(), "after {second} s");
        scene.advance_secs(1);
    }
}
