//! Limiters to test.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use limiter_testkit::{Address, RedisServer, unique};
use rate_limited::{Builder, Key, Layout, Limit, Limiter, ManualClock};

use crate::deadlines::eventually;

/// A limiter whose clock the test moves, and the store it is on.
pub(crate) struct Subject {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    layout: Layout,
}

impl Subject {
    /// In memory.
    pub(crate) async fn memory() -> Self {
        Self::with(Limiter::builder()).await
    }

    /// On a shared Redis, under a prefix of its own. Its keys do not expire: by the real clock they might before
    /// the test's clock says so.
    pub(crate) async fn redis() -> Self {
        Self::with(on(RedisServer::timeless())).await
    }

    /// In a database of its own, in the layout of the Spring system, whose services it sees at once. Names have no
    /// prefix there, and tests would meet.
    pub(crate) async fn zset() -> Self {
        static DATABASES: AtomicU32 = AtomicU32::new(1);
        let server = RedisServer::timeless();
        let url = format!("redis+unix://{}?db={}", server.socket().display(), DATABASES.fetch_add(1, Relaxed));
        let subject = Self::with(on(server).url(&url).remember_denials(Duration::ZERO)).await;
        Self { layout: Layout::Zset, ..subject }
    }

    async fn with(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let limiter = builder.clock(clock.clone()).connect().await.expect("the store is there");
        Self { limiter, clock, layout: Layout::Compact }
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
    Limiter::builder().url(&server.url()).prefix(&unique("test")).deadline(AMPLE)
}

/// A deadline that no call reaches on a machine under load, where the server answers.
pub(crate) const AMPLE: Duration = Duration::from_secs(30);

/// The number of script calls that a server has run.
pub(crate) fn script_calls(server: &RedisServer) -> u64 {
    let stats = server.info("commandstats");
    let calls = stats.get("cmdstat_evalsha").and_then(|stat| stat.split(['=', ',']).nth(1));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// Polls futures once, in their order: each is under way then, and none of them is ready.
pub(crate) async fn begun<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F> {
    poll_fn(|context| {
        let pending = futures.iter_mut().all(|future| Pin::new(future).poll(context).is_pending());
        assert!(pending, "not answered yet");
        Poll::Ready(())
    })
    .await;
    futures
}

/// Waits until the limiter's thread has taken in all calls that were made before.
///
/// It takes them in order, and a look does not wait in line: once the server has run the look, they are all in.
/// `calls` is the number of script calls that the server has run by then, without that look.
pub(crate) async fn taken_in(limiter: &Limiter, server: &RedisServer, calls: u64) {
    let (key, limit) = (key("taken in"), limit("1/1h"));
    let looks = begun(vec![Box::pin(limiter.peek(&key, &limit))]).await;
    eventually("taken in", async || script_calls(server) > calls).await;
    drop(looks);
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
