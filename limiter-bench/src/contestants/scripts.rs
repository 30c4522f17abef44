//! The published designs that are one script call, and a script that does nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::Script;
use redis::aio::MultiplexedConnection;

use super::{BARE_SCRIPT, ZSET as ZSET_NAME};
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ZSET: Entry = design(ZSET_NAME, |setup| start(setup, include_str!("designs/zset.lua")));
pub(super) const LAZY_ZSET: Entry =
    design("ZSET log, trimmed lazily", |setup| start(setup, include_str!("designs/zset_lazy.lua")));
pub(super) const HASH: Entry = design("HASH of counts", |setup| start(setup, include_str!("designs/hash.lua")));
pub(super) const LIST: Entry = design("LIST log", |setup| start(setup, include_str!("designs/list.lua")));
pub(super) const BARE: Entry =
    Entry { kind: Kind::Floor, ..design(BARE_SCRIPT, |setup| start(setup, include_str!("designs/bare.lua"))) };

const fn design(name: &'static str, start: fn(Setup) -> Starting) -> Entry {
    Entry { name, kind: Kind::Design, place: Place::Redis, commands: Commands::SCRIPT, start }
}

fn start(setup: Setup, source: &'static str) -> Starting {
    starting(async move { Scripted::connect(&setup, source).await })
}

struct Scripted {
    connection: MultiplexedConnection,
    script: Script,
    keys: Vec<String>,
    window_us: u128,
    max: u32,
    calls: AtomicU64,
}

impl Scripted {
    async fn connect(setup: &Setup, source: &'static str) -> Result<Self, Failure> {
        let mut connection = connection(setup).await?;
        let script = Script::new(source);
        script.load_async(&mut connection).await.map_err(failed)?;
        let (window_us, max) = (setup.rate.window().as_micros(), setup.rate.max);
        Ok(Self {
            connection,
            script,
            keys: setup.names(),
            window_us,
            max,
            calls: AtomicU64::new(next_instance() << 40),
        })
    }
}

impl Contestant for Scripted {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed); // distinguishes calls with equal stamps
        let mut invocation = self.script.key(&self.keys[key]);
        invocation.arg(self.window_us).arg(self.max).arg(call);
        let allowed: u8 = invocation.invoke_async(&mut self.connection.clone()).await.map_err(failed)?;
        Ok(Verdict::from_allowed(allowed == 1))
    }
}

/// Opens one connection for all tasks, as `rate-limited` does.
pub(super) async fn connection(setup: &Setup) -> Result<MultiplexedConnection, Failure> {
    let client = redis::Client::open(setup.url.as_str()).map_err(failed)?;
    client.get_multiplexed_async_connection().await.map_err(failed)
}

/// Returns a number that no other instance in this process has, so that no two use the same name for a call.
pub(super) fn next_instance() -> u64 {
    static INSTANCES: AtomicU64 = AtomicU64::new(0);
    INSTANCES.fetch_add(1, Ordering::Relaxed)
}
