//! One quota for services of the Spring system and for ours: its own data, a sorted set of stamps.

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Decision, Denied, ErrorKind, Key, Layout, Limit, Limiter, ManualClock, OnError};

use crate::support::{self, on};
use spring::Spring;

mod costs;
mod entries;
mod measured;
mod names;
mod original;
mod refunds;
mod spring;
mod together;

pub(crate) fn limit(text: &str) -> Limit {
    support::limit(text).with_layout(Layout::Zset).expect("a sliding window")
}

/// One of our services and one of theirs, by one clock, about one name.
struct Fleet {
    limiter: Limiter,
    clock: ManualClock,
    spring: Spring,
    name: String,
    key: Key,
}

impl Fleet {
    async fn new() -> Self {
        let (server, clock, name) = (RedisServer::shared(), ManualClock::new(), unique("fleet"));
        let limiter = on(server)
            .remember_denials(Duration::ZERO)
            .on_error(OnError::Raise)
            .clock(clock.clone())
            .connect()
            .await
            .expect("connects");
        Self { limiter, clock, spring: Spring::on(server), key: Key::new(&name), name }
    }

    fn set(&self) -> String {
        format!("CurrentLimiter:{}", self.name)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("a time of this age")
    }

    fn command(&self, command: &str, arguments: &[&str]) -> limiter_testkit::Reply {
        let set = self.set();
        let mut call = vec![command, &set];
        call.extend(arguments);
        RedisServer::shared().command(&call)
    }

    fn card(&self) -> i64 {
        self.command("ZCARD", &[]).integer()
    }

    fn ttl(&self) -> i64 {
        self.command("PTTL", &[]).integer()
    }

    /// As a host would whose clock is ahead of this one.
    fn add(&self, score: &str, member: &str) {
        self.command("ZADD", &[score, member]);
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    async fn take(&self, limited: &str, cost: u32) -> Decision {
        self.limiter.check_n(&self.key, &limit(limited), cost).await.expect("the store answers")
    }

    fn theirs(&mut self, window_ms: u64, max: u32) -> bool {
        let now = self.now_ms();
        self.spring.allows(&self.name, now, window_ms, max)
    }
}

fn denied(decision: Decision) -> Denied {
    decision.into_result().expect_err("a denial")
}

/// What is under the name and is no sorted set stays, and is an error by name.
#[tokio::test]
async fn what_is_no_sorted_set_stays_as_it_is() {
    let server = RedisServer::start();
    server.command(&["SET", "CurrentLimiter:getId", "foreign"]);
    let fresh = async || on(&server).on_error(OnError::Raise).connect().await.expect("connects");
    let (key, limit) = (Key::new("getId"), limit("5/10s"));
    let other = Key::new("other");
    let refused = [
        fresh().await.check(&key, &limit).await.map(drop),
        fresh().await.peek(&key, &limit).await.map(drop),
        fresh().await.reset(&key, &limit).await,
        fresh().await.check_all(&[(&other, &limit, 1), (&key, &limit, 1)]).await.map(drop),
    ];
    for result in refused {
        assert_eq!(result.expect_err("no set").kind(), ErrorKind::Protocol);
    }
    assert_eq!(server.command(&["GET", "CurrentLimiter:getId"]).text(), "foreign");
    assert_eq!(server.keys(), ["CurrentLimiter:getId"], "nothing was taken of the other");
}

#[tokio::test]
async fn a_denial_and_a_look_write_nothing() {
    let server = RedisServer::start();
    let limiter = on(&server).connect().await.expect("connects");
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
async fn a_reset_deletes_the_set() {
    let mut fleet = Fleet::new().await;
    assert!(fleet.theirs(10_000, 1));
    assert!(fleet.take("1/10s", 1).await.is_denied());
    fleet.limiter.reset(&fleet.key, &limit("1/10s")).await.expect("the store answers");
    assert_eq!(fleet.command("EXISTS", &[]).integer(), 0);
    assert!(fleet.take("1/10s", 1).await.is_allowed());
}

/// Entries are added before anything is trimmed, so that a server without memory for them changes nothing.
#[tokio::test]
async fn a_server_without_memory_keeps_what_it_has() {
    let server = RedisServer::start();
    let limiter = on(&server).on_error(OnError::Raise).connect().await.expect("connects");
    let (key, limit) = (Key::new("getId"), limit("5/20ms"));
    assert!(limiter.check(&key, &limit).await.expect("answers").is_allowed());
    server.command(&["PERSIST", "CurrentLimiter:getId"]);
    tokio::time::sleep(Duration::from_millis(30)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = limiter.check(&key, &limit).await.expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(server.command(&["ZCARD", "CurrentLimiter:getId"]).integer(), 1);
}
