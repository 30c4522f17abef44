//! The state that one process keeps beside the shared store.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::overflow::Overflows;

pub(crate) mod denial_cache;
pub(crate) mod recent_failures;
pub(crate) mod standby;

use denial_cache::DenialCache;
use standby::{Standby, StandbyConfig};

/// What this process knows by itself; so does whoever talks to the store, who keeps it up to date. A child of `fork` has its
/// own, as it has its own worker.
#[derive(Clone, Debug)]
pub(crate) struct LocalState {
    pub(crate) standby: Arc<Standby>,
    pub(crate) denied: Arc<DenialCache>,
}

/// The settings that each [`LocalState`] of a limiter is made by.
#[derive(Debug)]
pub(crate) struct LocalStateOptions {
    pub(crate) role: StandbyConfig,
    pub(crate) remember_denials: Duration,
    pub(crate) clock: Clock,
    pub(crate) overflows: Arc<Overflows>,
}

impl LocalStateOptions {
    pub(crate) fn local(&self) -> LocalState {
        self.local_with(self.standby())
    }

    /// For a child of `fork`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no worker is started anew"))]
    pub(crate) fn local_of_child(&self) -> LocalState {
        self.local_with(self.standby().for_child())
    }

    fn standby(&self) -> Standby {
        Standby::counting(&self.role, self.clock.clone(), Arc::clone(&self.overflows))
    }

    fn local_with(&self, standby: Standby) -> LocalState {
        let denied = DenialCache::new(self.remember_denials, self.clock.clone());
        LocalState { standby: Arc::new(standby), denied: Arc::new(denied) }
    }
}
