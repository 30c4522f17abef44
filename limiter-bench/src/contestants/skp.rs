//! skp-ratelimit with its sliding log: in memory, and in Redis as JSON that it reads and then writes.

use skp_ratelimit::storage::{RedisConfig, RedisStorage};
use skp_ratelimit::{Algorithm, MemoryStorage, Quota, SlidingLog, Storage};

use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const IN_PROCESS: Entry = Entry {
    name: "skp-ratelimit (memory)",
    kind: Kind::Peer,
    place: Place::InProcess,
    commands: Commands::NONE,
    start: in_process,
};

const COMMANDS: &[&str] = &["get", "setex", "set", "del", "ping"];

pub(super) const REDIS: Entry = Entry {
    name: "skp-ratelimit (Redis)",
    kind: Kind::Peer,
    place: Place::Redis,
    commands: Commands { sent: COMMANDS, timed: COMMANDS },
    start: on_redis,
};

fn in_process(setup: Setup) -> Starting {
    starting(async move { Ok(Skp::new(MemoryStorage::new(), &setup)) })
}

fn on_redis(setup: Setup) -> Starting {
    starting(async move {
        let storage = RedisStorage::new(RedisConfig::new(&setup.url)).await.map_err(failed)?;
        Ok(Skp::new(storage, &setup))
    })
}

struct Skp<S> {
    storage: S,
    keys: Vec<String>,
    quota: Quota,
}

impl<S> Skp<S> {
    fn new(storage: S, setup: &Setup) -> Self {
        Self { storage, keys: setup.names(), quota: Quota::new(setup.rate.max.into(), setup.rate.window()) }
    }
}

impl<S: Storage> Contestant for Skp<S> {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let decided = SlidingLog::new().check_and_record(&self.storage, &self.keys[key], &self.quota).await;
        decided.map(|decision| Verdict::from_allowed(decision.is_allowed())).map_err(failed)
    }
}
