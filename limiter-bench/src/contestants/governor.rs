//! governor: GCRA with one atomic a key. GCRA allows up to twice the limit in one window.

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::GOVERNOR;
use crate::contestant::{Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, starting};

pub(super) const ENTRY: Entry =
    Entry { name: GOVERNOR, kind: Kind::Peer, place: Place::InProcess, commands: Commands::NONE, start };

fn start(setup: Setup) -> Starting {
    starting(async move { Governor::new(&setup) })
}

struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
    keys: Vec<String>,
}

impl Governor {
    fn new(setup: &Setup) -> Result<Self, Failure> {
        let burst = NonZeroU32::new(setup.rate.max).ok_or("a limit of 0")?;
        let quota = Quota::with_period(setup.rate.window() / setup.rate.max).ok_or("a limit that is too fast")?;
        Ok(Self { limiter: RateLimiter::keyed(quota.allow_burst(burst)), keys: setup.names() })
    }
}

impl Contestant for Governor {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        Ok(Verdict::from_allowed(self.limiter.check_key(&self.keys[key]).is_ok()))
    }
}
