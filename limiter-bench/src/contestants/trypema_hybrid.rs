//! trypema's hybrid: counts in process and updates Redis every 10 ms.

use std::sync::Arc;

use trypema::hybrid::{HybridRateLimiterProvider, SyncInterval};
use trypema::redis::RedisKey;
use trypema::{RateLimit, RateLimiterBuilder};

use super::trypema_local::{bucket_size, rate_limit, verdict, window_size};
use super::trypema_redis::{connection, keys};
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry =
    Entry { name: "trypema (hybrid)", kind: Kind::Peer, place: Place::Redis, commands: Commands::SCRIPT, start };

fn start(setup: Setup) -> Starting {
    starting(async move { TrypemaHybrid::connect(&setup).await })
}

struct TrypemaHybrid {
    provider: Arc<HybridRateLimiterProvider>,
    keys: Vec<RedisKey>,
    rate: RateLimit,
}

impl TrypemaHybrid {
    async fn connect(setup: &Setup) -> Result<Self, Failure> {
        let provider = HybridRateLimiterProvider::builder(connection(setup).await?)
            .window_size(window_size(setup.rate)?)
            .bucket_size(bucket_size()?)
            .sync_interval(SyncInterval::milliseconds(10).map_err(failed)?)
            .disable_cleanup()
            .build()
            .map_err(failed)?;
        Ok(Self { provider, keys: keys(setup)?, rate: rate_limit(setup.rate)? })
    }
}

impl Contestant for TrypemaHybrid {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let (limiter, key) = (self.provider.absolute(), &self.keys[key]);
        let decided = match limiter.try_inc(key.as_key_ref(), 1).map_err(failed)? {
            Some(decision) => decision,
            None => limiter.inc(key, &self.rate, 1).await.map_err(failed)?,
        };
        Ok(verdict(decided))
    }
}
