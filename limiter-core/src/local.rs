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
    pub(crate) denials: Arc<DenialCache>,
}

/// The settings that each [`LocalState`] of a limiter is made by.
#[derive(Debug)]
pub(crate) struct LocalStateOptions {
    pub(crate) standby: StandbyConfig,
    pub(crate) remember_denials: Duration,
    pub(crate) clock: Clock,
    pub(crate) overflows: Arc<Overflows>,
}

impl LocalStateOptions {
    pub(crate) fn new_state(&self) -> LocalState {
        self.state_with(self.new_standby())
    }

    /// For a child of `fork`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without it no worker is started anew"))]
    pub(crate) fn new_state_in_child(&self) -> LocalState {
        self.state_with(self.new_standby().for_child())
    }

    fn new_standby(&self) -> Standby {
        Standby::counting(&self.standby, self.clock.clone(), Arc::clone(&self.overflows))
    }

    fn state_with(&self, standby: Standby) -> LocalState {
        let denials = DenialCache::new(self.remember_denials, self.clock.clone());
        LocalState { standby: Arc::new(standby), denials: Arc::new(denials) }
    }
}
