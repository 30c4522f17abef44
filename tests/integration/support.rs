//! Limiters to test.

use std::net::SocketAddr;
use std::time::Duration;

use limiter_testkit::{Address, RedisServer, unique};
use rate_limited::{Builder, Key, Layout, Limit, Limiter, ManualClock};

/// A limiter whose clock the test moves, and the store it is on.
pub(crate) struct Subject {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    layout: Layout,
    /// Where names have no prefix, and tests would meet.
    _own: Option<RedisServer>,
}

impl Subject {
    /// In memory.
    pub(crate) async fn memory() -> Self {
        Self::with(Limiter::builder()).await
    }

    /// On the shared Redis, under a prefix of its own.
    pub(crate) async fn redis() -> Self {
        Self::with(on(RedisServer::shared())).await
    }

    /// The same, with every denial asked for.
    pub(crate) async fn asking() -> Self {
        Self::with(on(RedisServer::shared()).remember_denials(Duration::ZERO)).await
    }

    /// On a Redis of its own, in the layout of the Spring system, whose services it sees at once.
    pub(crate) async fn zset() -> Self {
        let server = RedisServer::start();
        let subject = Self::with(on(&server).remember_denials(Duration::ZERO)).await;
        Self { layout: Layout::Zset, _own: Some(server), ..subject }
    }

    async fn with(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let limiter = builder.clock(clock.clone()).connect().await.expect("the store is there");
        Self { limiter, clock, layout: Layout::Compact, _own: None }
    }

    /// The limit in this store's layout.
    pub(crate) fn limit(&self, text: &str) -> Limit {
        limit(text).with_layout(self.layout).expect("a sliding window")
    }

    /// The clock's time in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).expect("a time of this age")
    }

    pub(crate) fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

/// Makes two tests of each function: on the embedded store, and on Redis.
macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::memory().await).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::redis().await).await; })+
        }
    };
}
pub(crate) use on_every_store;

/// Makes a test of each function on the layout of the Spring system.
macro_rules! on_zset {
    ($($test:ident),+ $(,)?) => {
        mod zset {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::zset().await).await; })+
        }
    };
}
pub(crate) use on_zset;

/// A limiter on a server, under a prefix of its own, with time enough for a slow machine.
pub(crate) fn on(server: &RedisServer) -> Builder {
    Limiter::builder().url(&server.url()).prefix(&unique("test")).deadline(Duration::from_secs(5))
}

/// Where a server with a TCP port listens.
pub(crate) fn place(server: &RedisServer) -> SocketAddr {
    match server.address() {
        Address::Tcp(address) => address,
        Address::Unix(path) => panic!("{path:?} is no TCP address"),
    }
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name)
}
