//! The state that each process keeps beside the shared store.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::overflow::Overflows;

pub(crate) mod denial_cache;
pub(crate) mod recent_failures;
#[cfg_attr(not(any(test, feature = "redis")), expect(dead_code, reason = "only the Redis store grants leases"))]
pub(crate) mod leases;
pub(crate) mod standby;

use denial_cache::DenialCache;
use leases::Leases;
#[cfg(any(test, feature = "redis"))]
use recent_failures::Slots;
use standby::{Standby, StandbyConfig};

/// The standby limiter, the denial cache and the leases of this process. Calls read them, and the worker updates them.
///
/// A child of `fork` has a state of its own, as it has a worker of its own.
#[derive(Clone, Debug)]
pub(crate) struct LocalState {
    pub(crate) standby: Arc<Standby>,
    pub(crate) denials: Arc<DenialCache>,
    pub(crate) leases: Arc<Leases>,
}

#[cfg(any(test, feature = "redis"))]
impl LocalState {
    /// Ends the leases of these slots, and then records that their server failed and may have lost their counters.
    ///
    /// The standby limiter is consulted from the record on. By then no permit of a lease is used any more, and its mirror
    /// counts those that were.
    pub(crate) fn server_failed(&self, slots: &Slots) {
        for ended in self.leases.end_slots(slots) {
            self.standby.settle_lease(&ended);
        }
        self.standby.server_failed(slots);
    }
}

/// The options of each [`LocalState`] of a limiter.
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

    /// Returns the state of a child of `fork`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only the Redis store restarts its worker"))]
    pub(crate) fn new_state_in_child(&self) -> LocalState {
        self.overflows.keys().restart();
        self.state_with(self.new_standby().for_child())
    }

    /// Creates a standby limiter that has recorded nothing.
    fn new_standby(&self) -> Standby {
        Standby::with_overflows(&self.standby, self.clock.clone(), Arc::clone(&self.overflows))
    }

    /// Creates a state of this standby limiter, with an empty denial cache and no leases.
    fn state_with(&self, standby: Standby) -> LocalState {
        let denials = DenialCache::new(self.remember_denials, self.clock.clone());
        let leases = Leases::new(self.clock.clone());
        LocalState { standby: Arc::new(standby), denials: Arc::new(denials), leases: Arc::new(leases) }
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests;
