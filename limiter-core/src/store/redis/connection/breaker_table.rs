//! The breakers of all servers, by slot. Callers read them on their own threads.

use std::sync::{Arc, PoisonError};

use super::breaker::Breaker;
use crate::Error;
use crate::store::redis::slot;
use crate::sync::RwLock;
use crate::sync::process::{self, forked, read_at_home};

#[derive(Debug)]
pub(crate) struct BreakerTable {
    breakers: Breakers,
    /// The process whose worker writes the table.
    home: u32,
}

#[derive(Debug)]
enum Breakers {
    Single(Arc<Breaker>),
    /// One for each slot of a cluster.
    BySlot {
        breakers: RwLock<Box<[Arc<Breaker>]>>,
        /// The breaker of slots without a known owner.
        unowned: Arc<Breaker>,
    },
}

impl BreakerTable {
    /// A table for one server.
    pub(crate) fn single() -> Self {
        Self::new(Breakers::Single(Arc::default()))
    }

    /// A table for a cluster.
    pub(crate) fn by_slot() -> Self {
        let unowned: Arc<Breaker> = Arc::default();
        let breakers = RwLock::new(vec![Arc::clone(&unowned); slot::COUNT.into()].into());
        Self::new(Breakers::BySlot { breakers, unowned })
    }

    /// A table that this process writes.
    fn new(breakers: Breakers) -> Self {
        Self { breakers, home: process::id() }
    }

    /// The breaker of the one server, or of slots without a known owner.
    pub(crate) fn default_breaker(&self) -> Arc<Breaker> {
        match &self.breakers {
            Breakers::Single(breaker) | Breakers::BySlot { unowned: breaker, .. } => Arc::clone(breaker),
        }
    }

    /// The error of a call on keys in these slots, if a breaker is open.
    pub(crate) fn open_error(&self, slots: &[u16]) -> Option<Error> {
        match &self.breakers {
            Breakers::Single(breaker) => breaker.open_error(self.home),
            Breakers::BySlot { breakers, .. } => {
                let Some(breakers) = read_at_home(breakers, self.home) else { return Some(forked()) };
                slots.iter().find_map(|slot| breakers[usize::from(*slot)].open_error(self.home))
            }
        }
    }

    /// Assigns breakers to slots.
    pub(crate) fn assign(&self, assigned: impl Iterator<Item = (u16, Arc<Breaker>)>) {
        if let Breakers::BySlot { breakers, .. } = &self.breakers {
            let mut breakers = breakers.write().unwrap_or_else(PoisonError::into_inner);
            for (slot, breaker) in assigned {
                breakers[usize::from(slot)] = breaker;
            }
        }
    }
}
