//! trypema in process: a sliding window in buckets of 10 ms.

use std::sync::Arc;

use trypema::local::LocalRateLimiterProvider;
use trypema::{BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Rate, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry =
    Entry { name: "trypema (local)", kind: Kind::Peer, place: Place::InProcess, commands: Commands::NONE, start };

fn start(setup: Setup) -> Starting {
    starting(async move { TrypemaLocal::new(&setup) })
}

struct TrypemaLocal {
    provider: Arc<LocalRateLimiterProvider>,
    keys: Vec<String>,
    rate: RateLimit,
}

impl TrypemaLocal {
    fn new(setup: &Setup) -> Result<Self, Failure> {
        let provider = LocalRateLimiterProvider::builder()
            .window_size(window_size(setup.rate)?)
            .bucket_size(bucket_size()?)
            .disable_cleanup() // otherwise each sample would leak a thread
            .build()
            .map_err(failed)?;
        Ok(Self { provider, keys: setup.names(), rate: rate_limit(setup.rate)? })
    }
}

impl Contestant for TrypemaLocal {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        Ok(verdict(self.provider.absolute().inc(&self.keys[key], &self.rate, 1)))
    }
}

pub(super) fn window_size(rate: Rate) -> Result<WindowSize, Failure> {
    WindowSize::seconds(rate.seconds).map_err(failed)
}

pub(super) fn bucket_size() -> Result<BucketSize, Failure> {
    BucketSize::milliseconds(10).map_err(failed)
}

/// Converts a limit: trypema's limits are rates a second.
pub(super) fn rate_limit(rate: Rate) -> Result<RateLimit, Failure> {
    RateLimit::per_second(f64::from(rate.max) / rate.window().as_secs_f64()).map_err(failed)
}

pub(super) fn verdict(decision: RateLimitDecision) -> Verdict {
    Verdict::from_allowed(matches!(decision, RateLimitDecision::Allowed))
}
