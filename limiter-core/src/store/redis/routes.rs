//! What callers look at on their own thread before they ask: the breaker of whoever would be asked.

use std::sync::{Arc, PoisonError, RwLock};

use super::breaker::Breaker;
use crate::Error;
use crate::store::naming::Naming;
use crate::store::{Question, slot};

#[derive(Debug)]
pub(super) enum Routes {
    /// To one server.
    One(Arc<Breaker>),
    /// To the nodes of a cluster: one for each slot, and the one of slots that nobody is known to serve.
    Slots(RwLock<Box<[Arc<Breaker>]>>, Arc<Breaker>),
}

impl Routes {
    pub(super) fn one() -> Self {
        Self::One(Arc::default())
    }

    pub(super) fn slots() -> Self {
        let unknown: Arc<Breaker> = Arc::default();
        Self::Slots(RwLock::new(vec![Arc::clone(&unknown); slot::COUNT.into()].into()), unknown)
    }

    /// The breaker of the one server, or of slots that nobody is known to serve.
    pub(super) fn first(&self) -> Arc<Breaker> {
        match self {
            Self::One(breaker) | Self::Slots(_, breaker) => Arc::clone(breaker),
        }
    }

    /// Why the questions need not be asked, if so.
    pub(super) fn refusal(&self, questions: &[Question<'_>], naming: &Naming) -> Option<Error> {
        match self {
            Self::One(breaker) => breaker.refusal(),
            Self::Slots(slots, _) => {
                let slots = slots.read().unwrap_or_else(PoisonError::into_inner);
                questions.iter().find_map(|question| slots[usize::from(naming.slot(question))].refusal())
            }
        }
    }

    /// Says whose breaker is whose.
    pub(super) fn set(&self, breakers: impl Iterator<Item = (u16, Arc<Breaker>)>) {
        if let Self::Slots(slots, _) = self {
            let mut slots = slots.write().unwrap_or_else(PoisonError::into_inner);
            for (slot, breaker) in breakers {
                slots[usize::from(slot)] = breaker;
            }
        }
    }
}
