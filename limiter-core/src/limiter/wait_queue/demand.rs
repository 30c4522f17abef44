//! The permits that a waiting call needs, by counter.

use std::sync::Arc;

use crate::request::Request;

/// The permits that a call needs of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterCost {
    /// The hash of the counter. Two counters with one hash only cause needless checks of the store.
    pub(crate) counter: u64,
    pub(crate) cost: u32,
}

/// The permits that a call needs of each of its counters. Most calls need those of one.
#[derive(Clone, Debug)]
pub(crate) enum Demands {
    One(CounterCost),
    Several(Arc<Vec<CounterCost>>),
}

impl Demands {
    pub(crate) fn new(requests: &[Request<'_>]) -> Self {
        let cost = |request: &Request<'_>| CounterCost { counter: request.counter_hash(), cost: request.cost };
        match requests {
            [request] => Self::One(cost(request)),
            requests => Self::Several(Arc::new(in_order(requests).into_iter().map(cost).collect())),
        }
    }

    pub(crate) fn as_slice(&self) -> &[CounterCost] {
        match self {
            Self::One(demand) => std::slice::from_ref(demand),
            Self::Several(demands) => demands,
        }
    }

    /// The costs, in the order that is the same for all calls of a queue.
    pub(crate) fn costs(&self) -> impl Iterator<Item = u64> {
        self.as_slice().iter().map(|demand| u64::from(demand.cost))
    }

    /// The hashes of the counters.
    pub(crate) fn counters(&self) -> impl Iterator<Item = u64> {
        self.as_slice().iter().map(|demand| demand.counter)
    }
}

/// Sorts the requests of a call by their counters and limits. The order is the same for all calls of a queue.
pub(crate) fn in_order<'r, 'k>(requests: &'r [Request<'k>]) -> Vec<&'r Request<'k>> {
    let mut sorted: Vec<_> = requests.iter().collect();
    if sorted.len() > 1 {
        sorted.sort_by_cached_key(|request| (request.counter_hash(), request.limit.max(), request.limit.burst()));
    }
    sorted
}
