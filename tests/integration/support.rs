//! Limiters to test.

use std::time::Duration;

use limiter_testkit::{RedisServer, unique};
use rate_limited::{Builder, Key, Limit, Limiter, ManualClock};

/// A limiter whose clock the test moves, and the store it is on.
pub(crate) struct Subject {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
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

    async fn with(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let limiter = builder.clock(clock.clone()).connect().await.expect("the store is there");
        Self { limiter, clock }
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

/// A limiter on a server, under a prefix of its own, with time enough for a slow machine.
pub(crate) fn on(server: &RedisServer) -> Builder {
    Limiter::builder().url(&server.url()).prefix(&unique("test")).deadline(Duration::from_secs(5))
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name)
}
