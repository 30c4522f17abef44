//! Limiters under test, and helpers to call them.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use limiter_testkit::{Address, RedisServer, unique};
use rate_limited::{Builder, Key, Layout, Limit, Limiter, ManualClock};

use crate::deadlines::eventually;

/// A limiter under test with a manual clock and the layout of its store.
pub(crate) struct Subject {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    layout: Layout,
    packed: Option<u32>,
}

impl Subject {
    /// Creates a limiter in memory.
    pub(crate) async fn memory() -> Self {
        Self::with_builder(Limiter::builder()).await
    }

    /// Creates a limiter on a shared Redis, under its own prefix. The server's clock stands still, so that keys do not
    /// expire before their time on the manual clock.
    pub(crate) async fn redis() -> Self {
        Self::with_builder(builder_for(RedisServer::timeless())).await
    }

    /// Creates a limiter with the layout of the Spring system, without cached denials. Keys have no prefix in this
    /// layout, so each limiter has its own database.
    pub(crate) async fn zset() -> Self {
        Self::zset_with(|builder| builder).await
    }

    /// Creates such a limiter with further options.
    pub(crate) async fn zset_with(configure: impl FnOnce(Builder) -> Builder) -> Self {
        static DATABASES: AtomicU32 = AtomicU32::new(1);
        let server = RedisServer::timeless();
        let url = format!("redis+unix://{}?db={}", server.socket().display(), DATABASES.fetch_add(1, Relaxed));
        let builder = builder_for(server).url(&url).remember_denials(Duration::ZERO);
        let subject = Self::with_builder(configure(builder)).await;
        Self { layout: Layout::Zset, ..subject }
    }

    /// Creates a limiter whose counts share hashes on a shared Redis.
    pub(crate) async fn packed() -> Self {
        Self { packed: Some(16_384), ..Self::redis().await }
    }

    pub(crate) async fn with_builder(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let limiter = builder.clock(clock.clone()).connect().await.expect("the store is there");
        Self { limiter, clock, layout: Layout::Compact, packed: None }
    }

    /// Returns the limit in this store's layout.
    pub(crate) fn limit(&self, text: &str) -> Limit {
        let limit = limit(text).with_layout(self.layout).expect("a sliding window");
        self.packed.map_or(limit, |buckets| limit.packed_into(buckets))
    }

    /// Returns the clock's time in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).expect("a time of this age")
    }

    pub(crate) fn advance_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

/// Defines two tests for each function: on the embedded store, and on Redis.
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

/// Defines two tests for each function with a limiter by the system's clock: in memory, and on Redis.
macro_rules! with_every_limiter {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $test() { super::$test(rate_limited::Limiter::memory()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $test() {
                let builder = crate::support::builder_for(limiter_testkit::RedisServer::shared());
                super::$test(builder.connect().await.expect("a server")).await;
            })+
        }
    };
}
pub(crate) use with_every_limiter;

/// Defines a test for each function with the layout of the Spring system.
macro_rules! on_zset {
    ($($test:ident),+ $(,)?) => {
        mod zset {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::zset().await).await; })+
        }
    };
}
pub(crate) use on_zset;

/// Defines a test for each function with counts that share hashes.
macro_rules! on_packed {
    ($($test:ident),+ $(,)?) => {
        mod packed {
            $(#[tokio::test] async fn $test() { super::$test(crate::support::Subject::packed().await).await; })+
        }
    };
}
pub(crate) use on_packed;

/// Returns a builder for a limiter on a server, with a unique prefix and a long deadline.
pub(crate) fn builder_for(server: &RedisServer) -> Builder {
    // A slow machine may take longer than the first heartbeat, which tests that count script calls do not expect.
    Limiter::builder().url(server.url()).prefix(unique("test")).deadline(LONG_DEADLINE).presence(false)
}

/// A deadline that calls to a working server do not reach, even on a machine under load.
pub(crate) const LONG_DEADLINE: Duration = Duration::from_secs(30);

/// Polls each future once, in order, and asserts that all are pending.
pub(crate) async fn poll_once<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F> {
    poll_fn(|context| {
        let pending = futures.iter_mut().all(|future| Pin::new(future).poll(context).is_pending());
        assert!(pending, "a future is ready");
        Poll::Ready(())
    })
    .await;
    futures
}

/// Makes calls until a reply was quick: a limiter on a busy machine may take its server for a far one otherwise.
pub(crate) async fn wait_until_quick(limiter: &Limiter) {
    const QUICK: Duration = Duration::from_millis(5);
    eventually("quick", || async {
        let started = Instant::now();
        limiter.peek(&key("quick"), &unpacked_limit("1/1h")).await.is_ok() && started.elapsed() < QUICK
    })
    .await;
}

/// Waits until the limiter's I/O thread has received all earlier calls.
///
/// The thread receives calls in order, and a peek does not wait in the queue. So once the server has run a peek, the
/// earlier calls have been received. `calls` is the number of script calls that the server runs before the peek.
pub(crate) async fn wait_until_received(limiter: &Limiter, server: &RedisServer, calls: u64) {
    let (key, limit) = (key("received"), unpacked_limit("1/1h"));
    let peek = poll_once(vec![Box::pin(limiter.peek(&key, &limit))]).await;
    eventually("received", async || server.script_calls() > calls).await;
    drop(peek);
}

/// Returns the address of a server with a TCP port.
pub(crate) fn tcp_address(server: &RedisServer) -> SocketAddr {
    match server.address() {
        Address::Tcp(address) => address,
        Address::Unix(path) => panic!("{path:?} is no TCP address"),
    }
}

pub(crate) fn limit(text: &str) -> Limit {
    let limit = unpacked_limit(text);
    match packed_buckets() {
        Some(buckets) => limit.packed_into(buckets),
        None => limit,
    }
}

/// Returns a limit whose counts have keys of their own whatever the environment demands: for tests that read or write these
/// keys, whose users may use no hash, whose rules have a block, or that count with an annotated function.
pub(crate) fn unpacked_limit(text: &str) -> Limit {
    text.parse().expect("a limit")
}

/// Returns the longest time to live of a key, if a count's own key would live so many milliseconds: a hash lives longer.
pub(crate) fn longest_ttl(millis: i64) -> i64 {
    packed_buckets().map_or(millis, |_| millis + millis / 4 + 1_500)
}

/// The number of hashes that all counts share where they can, if the environment demands that: any test of the promises runs
/// with packed counts too.
pub(crate) fn packed_buckets() -> Option<u32> {
    static BUCKETS: LazyLock<Option<u32>> = LazyLock::new(|| {
        std::env::var("RATE_LIMITED_TEST_PACKED").ok().map(|number| number.parse().expect("a number"))
    });
    *BUCKETS
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name)
}
