//! Tests of `Layout::Zset`, with which this limiter and services of the Spring system share sorted sets of stamps.
//!
//! In these tests "ours" is a call of this limiter, and "theirs" is a call of a Spring service.

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Decision, Denied, ErrorKind, Key, Layout, Limit, Limiter, ManualClock, OnError};

use crate::support::{self, builder_for};
use spring::Spring;

mod costs;
mod entries;
mod measured;
mod names;
mod spring_defects;
mod refunds;
mod spring;
mod both_systems;

pub(crate) fn limit(text: &str) -> Limit {
    support::limit(text).with_layout(Layout::Zset).expect("a sliding window")
}

/// A limiter and a Spring service with one clock and one shared key. The server's own clock is stopped.
struct SharedKey {
    server: &'static RedisServer,
    limiter: Limiter,
    clock: ManualClock,
    spring: Spring,
    name: String,
    key: Key,
}

impl SharedKey {
    async fn new() -> Self {
        let (server, clock, name) = (RedisServer::timeless(), ManualClock::new(), unique("shared-key"));
        let limiter = builder_for(server)
            .remember_denials(Duration::ZERO)
            .on_error(OnError::Raise)
            .clock(clock.clone())
            .connect()
            .await
            .expect("connects");
        Self { server, limiter, clock, spring: Spring::connect(server), key: Key::new(&name), name }
    }

    fn set_name(&self) -> String {
        format!("CurrentLimiter:{}", self.name)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("a time of this age")
    }

    fn command(&self, command: &str, arguments: &[&str]) -> limiter_testkit::Reply {
        let set_name = self.set_name();
        let mut call = vec![command, &set_name];
        call.extend(arguments);
        self.server.command(&call)
    }

    fn entry_count(&self) -> i64 {
        self.command("ZCARD", &[]).integer()
    }

    fn ttl(&self) -> i64 {
        self.command("PTTL", &[]).integer()
    }

    /// Asserts that the set's TTL is longer than `over`, and not longer than `most`. Both are in milliseconds.
    fn assert_ttl(&self, over: i64, most: i64) {
        let ttl = self.ttl();
        assert!(ttl > over && ttl <= most + self.server.stopped_clock_error_millis(), "{ttl} ms");
    }

    /// Adds an entry, like a host whose clock differs.
    fn add_entry(&self, score: &str, member: &str) {
        self.command("ZADD", &[score, member]);
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    async fn take(&self, limited: &str, cost: u32) -> Decision {
        self.limiter.check_n(&self.key, &limit(limited), cost).await.expect("the store answers")
    }

    fn spring_allows(&mut self, window_ms: u64, max: u32) -> bool {
        let now = self.now_ms();
        self.spring.allows(&self.name, now, window_ms, max)
    }
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

/// A value of another type under the key makes calls fail, and stays unchanged.
#[tokio::test]
async fn value_of_another_type_is_rejected_and_left_unchanged() {
    let server = RedisServer::start();
    server.command(&["SET", "CurrentLimiter:getId", "foreign"]);
    let new_limiter = async || builder_for(&server).on_error(OnError::Raise).connect().await.expect("connects");
    let (key, limit) = (Key::new("getId"), limit("5/10s"));
    let other = Key::new("other");
    let results = [
        new_limiter().await.check(&key, &limit).await.map(drop),
        new_limiter().await.peek(&key, &limit).await.map(drop),
        new_limiter().await.reset(&key, &limit).await,
        new_limiter().await.check_all(&[(&other, &limit, 1), (&key, &limit, 1)]).await.map(drop),
    ];
    for result in results {
        assert_eq!(result.expect_err("no set").kind(), ErrorKind::Protocol);
    }
    assert_eq!(server.command(&["GET", "CurrentLimiter:getId"]).text(), "foreign");
    assert_eq!(server.keys(), ["CurrentLimiter:getId"], "no permit of the other key was taken");
}

#[tokio::test]
async fn denial_and_peek_write_nothing() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).connect().await.expect("connects");
    let (key, limit) = (Key::new("getId"), limit("2/366d"));
    let changes = || server.info("persistence")["rdb_changes_since_last_save"].clone();
    assert!(limiter.check_n(&key, &limit, 2).await.expect("answers").is_allowed());
    let before = changes();
    for cost in [0, 1, 2, 3, 20_000, u32::MAX] {
        assert_eq!(limiter.check_n(&key, &limit, cost).await.expect("answers").is_allowed(), cost == 0);
        assert!(limiter.peek(&key, &limit).await.expect("answers").is_denied());
    }
    assert_eq!(changes(), before);
}

#[tokio::test]
async fn reset_deletes_the_set() {
    let mut shared = SharedKey::new().await;
    assert!(shared.spring_allows(10_000, 1));
    assert!(shared.take("1/10s", 1).await.is_denied());
    shared.limiter.reset(&shared.key, &limit("1/10s")).await.expect("the store answers");
    assert_eq!(shared.command("EXISTS", &[]).integer(), 0);
    assert!(shared.take("1/10s", 1).await.is_allowed());
}

/// Entries are added before others are trimmed, so that a server without memory for them changes nothing.
#[tokio::test]
async fn server_without_memory_keeps_its_entries() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("connects");
    let (key, limit) = (Key::new("getId"), limit("5/20ms"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    server.command(&["PERSIST", "CurrentLimiter:getId"]);
    tokio::time::sleep(Duration::from_millis(30)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = limiter.check(&key, &limit).await.expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(server.command(&["ZCARD", "CurrentLimiter:getId"]).integer(), 1);
}
