//! What callers look at on their own thread before they ask: the breaker of whoever would be asked.

use std::sync::{Arc, PoisonError};

use crate::Error;
use crate::request::Request;
use crate::store::naming::Naming;
use crate::store::redis::connection::breaker::Breaker;
use crate::store::slot;
use crate::sync::RwLock;
use crate::sync::process::{self, forked, read_at_home};

#[derive(Debug)]
pub(crate) struct BreakerTable {
    breakers: Breakers,
    /// The process whose worker keeps them.
    home: u32,
}

#[derive(Debug)]
enum Breakers {
    /// To one server.
    One(Arc<Breaker>),
    /// To the nodes of a cluster: one for each slot, and the one of slots that nobody is known to serve.
    Slots(RwLock<Box<[Arc<Breaker>]>>, Arc<Breaker>),
}

impl BreakerTable {
    pub(crate) fn one() -> Self {
        Self::of(Breakers::One(Arc::default()))
    }

    pub(crate) fn slots() -> Self {
        let unknown: Arc<Breaker> = Arc::default();
        Self::of(Breakers::Slots(RwLock::new(vec![Arc::clone(&unknown); slot::COUNT.into()].into()), unknown))
    }

    fn of(breakers: Breakers) -> Self {
        Self { breakers, home: process::id() }
    }

    /// The breaker of the one server, or of slots that nobody is known to serve.
    pub(crate) fn first(&self) -> Arc<Breaker> {
        match &self.breakers {
            Breakers::One(breaker) | Breakers::Slots(_, breaker) => Arc::clone(breaker),
        }
    }

    /// Why the requests need not be asked, if so.
    pub(crate) fn refusal(&self, requests: &[Request<'_>], naming: &Naming) -> Option<Error> {
        match &self.breakers {
            Breakers::One(breaker) => breaker.refusal(self.home),
            Breakers::Slots(slots, _) => {
                let Some(slots) = read_at_home(slots, self.home) else { return Some(forked()) };
                requests.iter().find_map(|request| slots[usize::from(naming.slot(request))].refusal(self.home))
            }
        }
    }

    /// Says whose breaker is whose.
    pub(crate) fn set(&self, breakers: impl Iterator<Item = (u16, Arc<Breaker>)>) {
        if let Breakers::Slots(slots, _) = &self.breakers {
            let mut slots = slots.write().unwrap_or_else(PoisonError::into_inner);
            for (slot, breaker) in breakers {
                slots[usize::from(slot)] = breaker;
            }
        }
    }
}
