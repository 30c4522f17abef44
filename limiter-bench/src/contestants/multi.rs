//! The sorted set without a script: a transaction counts and adds, and a ZREM removes a member above the limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;

use super::scripts::{connection, next_instance};
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry = Entry {
    name: "ZSET by MULTI",
    kind: Kind::Design,
    place: Place::Redis,
    commands: Commands {
        sent: &["multi", "zremrangebyscore", "zcard", "zadd", "pexpire", "exec", "zrem"],
        timed: &["multi", "exec", "zrem"],
    },
    start,
};

fn start(setup: Setup) -> Starting {
    starting(async move {
        Ok(Multi {
            connection: connection(&setup).await?,
            keys: setup.names(),
            window_us: u64::try_from(setup.rate.window().as_micros()).map_err(failed)?,
            max: setup.rate.max,
            calls: AtomicU64::new(next_instance() << 40),
        })
    })
}

struct Multi {
    connection: MultiplexedConnection,
    keys: Vec<String>,
    window_us: u64,
    max: u32,
    calls: AtomicU64,
}

impl Contestant for Multi {
    /// Uses this process's clock: without a script, no other is available in one round trip.
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let key = &self.keys[key];
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_err(failed)?.as_micros();
        let now_us = u64::try_from(now_us).map_err(failed)?;
        let member = format!("{now_us}-{}", self.calls.fetch_add(1, Ordering::Relaxed));
        let mut connection = self.connection.clone();
        let (used,): (u64,) = redis::pipe()
            .atomic()
            .cmd("ZREMRANGEBYSCORE")
            .arg(key)
            .arg("-inf")
            .arg(now_us - self.window_us)
            .ignore()
            .cmd("ZCARD")
            .arg(key)
            .cmd("ZADD")
            .arg(key)
            .arg(now_us)
            .arg(&member)
            .ignore()
            .cmd("PEXPIRE")
            .arg(key)
            .arg(self.window_us.div_ceil(1000))
            .ignore()
            .query_async(&mut connection)
            .await
            .map_err(failed)?;
        if used < u64::from(self.max) {
            return Ok(Verdict::Allowed);
        }
        let removed: Result<u64, _> = redis::cmd("ZREM").arg(key).arg(&member).query_async(&mut connection).await;
        removed.map(|_| Verdict::Denied).map_err(failed)
    }
}
