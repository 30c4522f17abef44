//! trypema on Redis: one script over five keys.

use std::sync::Arc;

use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimiterBuilder};

use super::trypema_local::{bucket_size, rate_limit, verdict, window_size};
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry =
    Entry { name: "trypema (Redis)", kind: Kind::Peer, place: Place::Redis, commands: Commands::SCRIPT, start };

fn start(setup: Setup) -> Starting {
    starting(async move { TrypemaRedis::connect(&setup).await })
}

struct TrypemaRedis {
    provider: Arc<RedisRateLimiterProvider>,
    keys: Vec<RedisKey>,
    rate: RateLimit,
}

impl TrypemaRedis {
    async fn connect(setup: &Setup) -> Result<Self, Failure> {
        let provider = RedisRateLimiterProvider::builder(connection(setup).await?)
            .window_size(window_size(setup.rate)?)
            .bucket_size(bucket_size()?)
            .disable_cleanup()
            .build()
            .map_err(failed)?;
        Ok(Self { provider, keys: keys(setup)?, rate: rate_limit(setup.rate)? })
    }
}

impl Contestant for TrypemaRedis {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        self.provider.absolute().inc(&self.keys[key], &self.rate, 1).await.map(verdict).map_err(failed)
    }
}

pub(super) async fn connection(setup: &Setup) -> Result<redis::aio::ConnectionManager, Failure> {
    let client = redis::Client::open(setup.url.as_str()).map_err(failed)?;
    client.get_connection_manager().await.map_err(failed)
}

pub(super) fn keys(setup: &Setup) -> Result<Vec<RedisKey>, Failure> {
    setup.names().into_iter().map(|name| RedisKey::try_from(name).map_err(failed)).collect()
}
