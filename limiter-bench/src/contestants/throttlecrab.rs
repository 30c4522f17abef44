//! throttlecrab: GCRA in a map for one thread at a time, so here behind a mutex.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{AdaptiveStore, RateLimiter};

use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry =
    Entry { name: "throttlecrab", kind: Kind::Peer, place: Place::InProcess, commands: Commands::NONE, start };

fn start(setup: Setup) -> Starting {
    starting(async move { Throttlecrab::new(&setup) })
}

struct Throttlecrab {
    limiter: Mutex<RateLimiter<AdaptiveStore>>,
    keys: Vec<String>,
    max: i64,
    seconds: i64,
}

impl Throttlecrab {
    fn new(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            limiter: Mutex::new(RateLimiter::new(AdaptiveStore::with_capacity(setup.keys))),
            keys: setup.names(),
            max: setup.rate.max.into(),
            seconds: setup.rate.seconds.try_into().map_err(failed)?,
        })
    }
}

impl Contestant for Throttlecrab {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = limiter.rate_limit(&self.keys[key], self.max, self.max, self.seconds, 1, SystemTime::now());
        decided.map(|(allowed, _)| Verdict::from_allowed(allowed)).map_err(failed)
    }
}
