//! `rate-limited`, used through its public API.

use std::time::Duration;

use rate_limited::{Decision, Key, Limit, Limiter, OnError};

use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const IN_PROCESS: Entry = Entry {
    name: "rate-limited (memory)",
    kind: Kind::Ours,
    place: Place::InProcess,
    commands: Commands::NONE,
    start: in_process,
};

pub(super) const REDIS: Entry = Entry {
    name: "rate-limited (Redis)",
    kind: Kind::Ours,
    place: Place::Redis,
    commands: Commands::SCRIPT,
    start: on_redis,
};

/// For filling keys, where the time of a call does not count.
pub(super) const PATIENT: Entry = Entry { start: with_long_deadline, ..REDIS };

#[cfg(feature = "leases")]
pub(super) const LEASES: Entry = Entry {
    name: "rate-limited (leases)",
    kind: Kind::Ours,
    place: Place::Redis,
    commands: Commands::SCRIPT,
    start: with_leases,
};

fn in_process(setup: Setup) -> Starting {
    starting(async move { Ours::new(Limiter::memory(), &setup) })
}

/// Uses [`OnError::Raise`], so that a late reply is a failure here. Otherwise the standby limiter would decide unseen.
fn on_redis(setup: Setup) -> Starting {
    starting(async move {
        let limiter = Limiter::builder().url(&setup.url).on_error(OnError::Raise).connect().await.map_err(failed)?;
        Ours::new(limiter, &setup)
    })
}

fn with_long_deadline(setup: Setup) -> Starting {
    starting(async move {
        let builder = Limiter::builder().url(&setup.url).on_error(OnError::Raise).deadline(Duration::from_secs(20));
        Ours::new(builder.connect().await.map_err(failed)?, &setup)
    })
}

#[cfg(feature = "leases")]
fn with_leases(setup: Setup) -> Starting {
    starting(async move {
        let builder = Limiter::builder().url(&setup.url).on_error(OnError::Raise).leases(true);
        Ours::new(builder.connect().await.map_err(failed)?, &setup)
    })
}

struct Ours {
    limiter: Limiter,
    keys: Vec<Key>,
    limit: Limit,
}

impl Ours {
    fn new(limiter: Limiter, setup: &Setup) -> Result<Self, Failure> {
        let limit = Limit::new(setup.rate.max, setup.rate.window()).map_err(failed)?;
        Ok(Self { limiter, keys: setup.names().into_iter().map(Key::new).collect(), limit })
    }
}

impl Contestant for Ours {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        match self.limiter.check(&self.keys[key], &self.limit).await {
            Ok(Decision::Allowed(_)) => Ok(Verdict::Allowed),
            Ok(Decision::Denied(_)) => Ok(Verdict::Denied),
            Err(error) => Err(failed(error)),
        }
    }
}
