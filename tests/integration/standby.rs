//! Tests of promise 7, with a manual clock: a store outage gives no fresh quota.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Builder, Decision, Denied, Limiter, ManualClock, OnError, Source};

use crate::deadlines::eventually;
use crate::support::{LONG_DEADLINE, key, limit};

mod concurrent;
mod hidden_failures;
mod live;
mod policies;
mod shares;
mod windows;

/// A server that tests kill, and limiters that share its counters and a clock.
struct OutageFixture {
    server: RedisServer,
    prefix: String,
    clock: ManualClock,
}

impl OutageFixture {
    fn new() -> Self {
        Self { server: RedisServer::start(), prefix: unique("standby"), clock: ManualClock::new() }
    }

    fn builder(&self) -> Builder {
        let builder = Limiter::builder().url(self.server.url()).prefix(&self.prefix);
        // No cached denials, so that each limiter sees the refunds of the others at once.
        builder.deadline(LONG_DEADLINE).remember_denials(Duration::ZERO).clock(self.clock.clone())
    }

    async fn limiter(&self) -> Limiter {
        self.builder().connect().await.expect("the server is there")
    }

    fn advance_secs(&self, secs: u64) {
        self.clock.advance(Duration::from_secs(secs));
    }

    /// Restarts the server without data. Returns when the limiters have reconnected.
    async fn restart_empty(&mut self, limiters: &[&Limiter]) {
        self.server.restart();
        for limiter in limiters {
            wait_until_connected(limiter).await;
        }
    }
}

async fn wait_until_connected(limiter: &Limiter) {
    // No permit of this key is in use, so the standby limiter is not decisive.
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
    limiter.check(&key("a"), &limit("5/10s")).await.expect("the standby limiter at least")
}

/// Takes permits until one is denied. Returns the source of each permit, and the denial.
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
async fn permits_taken_before_an_outage_count_during_it() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    for remaining in [4, 3, 2] {
        assert_eq!(check(&limiter).await.remaining(), remaining);
    }
    fixture.advance_secs(1);
    fixture.server.kill();
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!(sources, [Source::Standby; 2]);
    assert_eq!((denied.source(), denied.retry_after()), (Source::Standby, Duration::from_secs(9)));
    // The three permits of the beginning expire exactly then.
    fixture.clock.advance(denied.retry_after() - Duration::from_millis(1));
    assert!(check(&limiter).await.is_denied());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 3]);
}

#[tokio::test]
async fn store_that_restarts_empty_grants_no_permit_twice() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    fixture.advance_secs(4);
    fixture.server.kill();
    assert!(check(&limiter).await.is_denied());
    fixture.restart_empty(&[&limiter]).await;
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!((sources, denied.source()), (vec![], Source::Standby));
    assert_eq!(denied.retry_after(), Duration::from_secs(6));
    let seen = limiter.peek(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!((source(&seen), seen.is_denied()), (Source::Standby, true));
    assert_eq!(fixture.server.keys(), [""; 0], "no counter is restored");
    // The permits of the beginning expire. When both allow a call, its source is the store.
    fixture.advance_secs(6);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    assert_eq!(fixture.server.keys().len(), 1);
}

/// Simulates a failover to a replica that lacks the last permit. The server then counts another call, whose permit is
/// in use for longer than the standby limiter is consulted.
#[tokio::test]
async fn refund_of_a_lost_permit_frees_no_other_permit() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    assert!(check(&limiter).await.is_allowed());
    let count = fixture.server.command(&["KEYS", &format!("{}*", fixture.prefix)]).array().remove(0).bytes();
    let raw = |server: &RedisServer, command: &[&[u8]]| {
        server.client().expect("a connection").call(command).expect("an answer")
    };
    let replicated = raw(&fixture.server, &[b"DUMP", &count]).bytes();
    fixture.advance_secs(1);
    let Decision::Allowed(lost) = check(&limiter).await else { panic!("a permit is free") };
    assert_eq!(lost.source(), Source::Store);
    fixture.restart_empty(&[&limiter]).await;
    raw(&fixture.server, &[b"RESTORE", &count, b"600000", &replicated]);
    fixture.advance_secs(5);
    assert!(check(&limiter).await.is_allowed());
    limiter.refund(&lost).await.expect("refunded where it is counted");
    fixture.advance_secs(6);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4], "one of five permits was taken 6 s ago");
}

#[tokio::test]
async fn restart_between_calls_counts_as_an_outage() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
    fixture.server.restart();
    let wait_until_connected = || async { fixture.server.info("clients")["connected_clients"] == "2" };
    eventually("connected again", wait_until_connected).await;
    assert_eq!(take_all(&limiter).await.0, []);
    assert_eq!(fixture.server.keys(), [""; 0]);
}

/// Another limiter resets the store's counter, so that only the standby limiter still counts.
#[tokio::test]
async fn standby_is_consulted_for_one_window_after_the_last_failure() {
    let mut fixture = OutageFixture::new();
    let (limiter, other) = (fixture.limiter().await, fixture.limiter().await);
    fixture.server.kill();
    assert!(check(&limiter).await.is_allowed());
    fixture.restart_empty(&[&limiter, &other]).await;
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
    for millis in [0, 9_999] {
        fixture.clock.advance(Duration::from_millis(millis));
        other.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
        assert_eq!(take_all(&limiter).await.0, []);
    }
    fixture.clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        assert_eq!(take_all(&limiter).await.0, [Source::Store; 5], "the standby limiter is not consulted");
        other.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
    }
}

#[tokio::test]
async fn denial_by_the_store_releases_the_standby_reservation() {
    let mut fixture = OutageFixture::new();
    let (limiter, other) = (fixture.limiter().await, fixture.limiter().await);
    fixture.restart_empty(&[&limiter, &other]).await;
    assert_eq!(take_all(&other).await.0, [Source::Store; 5]);
    for _ in 0..10 {
        let (sources, denied) = take_all(&limiter).await;
        assert_eq!((sources, denied.source()), (vec![], Source::Store));
    }
    fixture.server.kill();
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 5]);
}

/// A task that polls long after its call failed takes a permit of the standby limiter then. The window starts there.
#[tokio::test]
async fn late_standby_admission_counts_after_the_outage() {
    // Both calls reach it, and those after the outage do not.
    const SHORT_DEADLINE: Duration = Duration::from_secs(2);
    let mut fixture = OutageFixture::new();
    let limiter = fixture.builder().deadline(SHORT_DEADLINE).connect().await.expect("the server is there");
    fixture.server.pause();
    let (a, b, five) = (key("a"), key("b"), limit("5/10s"));
    let mut late = Box::pin(limiter.check(&a, &five));
    let polled = poll_fn(|context| Poll::Ready(late.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "pending until the deadline");
    assert_eq!(source(&limiter.check(&b, &five).await.expect("a decision")), Source::Standby, "its deadline is later");
    fixture.restart_empty(&[&limiter]).await;
    fixture.advance_secs(6);
    assert_eq!(source(&late.await.expect("a decision")), Source::Standby);
    fixture.advance_secs(4);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
}

#[tokio::test]
async fn reset_applies_to_the_standby_limiter_too() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    assert_eq!(take_all(&limiter).await.0.len(), 5);
    limiter.reset(&key("a"), &limit("5/10s")).await.expect("the server is there");
    fixture.server.kill();
    assert_eq!(take_all(&limiter).await.0, [Source::Standby; 5]);
    assert!(limiter.reset(&key("a"), &limit("5/10s")).await.is_err(), "the store was not reset");
}

/// Calls admitted during the outage count after it, with every policy.
#[tokio::test]
async fn calls_admitted_by_failing_open_count_after_the_outage() {
    let mut fixture = OutageFixture::new();
    let limiter = fixture.builder().on_error(OnError::Open).connect().await.expect("the server is there");
    fixture.server.kill();
    for _ in 0..7 {
        assert_eq!(source(&check(&limiter).await), Source::Policy);
    }
    fixture.restart_empty(&[&limiter]).await;
    let (sources, denied) = take_all(&limiter).await;
    assert_eq!((sources, denied.source()), (vec![], Source::Standby));
    fixture.advance_secs(10);
    assert_eq!(take_all(&limiter).await.0, [Source::Store; 5]);
}

/// The standby limiter had reserved a permit for each of them.
#[tokio::test]
async fn calls_failed_or_denied_by_policy_take_no_permit() {
    for policy in [OnError::Closed, OnError::Raise] {
        let mut fixture = OutageFixture::new();
        let limiter = fixture.builder().on_error(policy).connect().await.expect("the server is there");
        assert!(check(&limiter).await.is_allowed());
        let name = fixture.server.keys().remove(0);
        fixture.restart_empty(&[&limiter]).await;
        fixture.server.command(&["SET", &name, "foreign"]);
        for _ in 0..10 {
            let decision = limiter.check(&key("a"), &limit("5/10s")).await;
            assert!(!decision.is_ok_and(|decision| decision.is_allowed()));
        }
        fixture.server.command(&["DEL", &name]);
        assert_eq!(take_all(&limiter).await.0, [Source::Store; 4]);
    }
}

/// The permit reserved for a call becomes that call's permit. It does not replace one that is about to expire.
#[tokio::test]
async fn consulting_the_standby_limiter_admits_the_full_limit() {
    let fixture = OutageFixture::new();
    let limiter = fixture.limiter().await;
    for _ in 0..10 {
        assert!(limiter.check(&key("a"), &limit("10/10s")).await.expect("decides").is_allowed());
        fixture.advance_secs(1);
    }
    fixture.server.flush_scripts(); // looks like another server
    for second in 10..20 {
        let first = limiter.check(&key("a"), &limit("10/10s")).await.expect("decides");
        assert!(first.is_allowed(), "after {second} s");
        let more = limiter.check(&key("a"), &limit("10/10s")).await.expect("decides");
        assert!(more.is_denied(), "after {second} s");
        fixture.advance_secs(1);
    }
}
