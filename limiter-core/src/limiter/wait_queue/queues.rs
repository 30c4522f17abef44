//! The queues that have waiters, with what their waiters share, and an index of their counters.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::limiter::wait_queue::changes::Changes;
use crate::limiter::wait_queue::demand::Demands;
use crate::limiter::wait_queue::id::QueueId;

/// The mean time after which the first waiter of a queue checks a shared store again.
const EXTRA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The queues that have waiters.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<QueueId, QueueEntry>,
    /// Each counter with the queues whose calls need permits of it.
    by_counter: BTreeSet<(u64, QueueId)>,
    changes: Arc<Changes>,
    /// Other processes may give permits back, which this one does not see.
    has_extra_checks: bool,
}

#[derive(Debug)]
struct QueueEntry {
    demands: Demands,
    waiters: usize,
    costs: Costs,
    /// The instant at which the first waiter checks the store again.
    extra_check_at: Moment,
}

/// The costs of all waiters of a queue, for each of its counters.
#[derive(Clone, Debug)]
pub(crate) enum Costs {
    One(u64),
    Several(Vec<u64>),
}

impl Costs {
    fn none(demands: &Demands) -> Self {
        match demands {
            Demands::One(_) => Self::One(0),
            Demands::Several(demands) => Self::Several(vec![0; demands.len()]),
        }
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        match self {
            Self::One(cost) => slice::from_ref(cost),
            Self::Several(costs) => costs,
        }
    }

    /// Changes each cost by that of a call.
    pub(crate) fn change(&mut self, demands: &Demands, change: impl Fn(u64, u64) -> u64) {
        let costs = match self {
            Self::One(cost) => slice::from_mut(cost),
            Self::Several(costs) => costs,
        };
        costs.iter_mut().zip(demands.costs()).for_each(|(sum, cost)| *sum = change(*sum, cost));
    }
}

impl Queues {
    pub(crate) fn new(changes: Arc<Changes>, has_extra_checks: bool) -> Self {
        Self { changes, has_extra_checks, ..Self::default() }
    }

    /// Adds a waiter to its queue.
    pub(crate) fn add(&mut self, id: QueueId, demands: &Demands, now: Moment) {
        let Self { queues, by_counter, has_extra_checks, .. } = self;
        let queue = queues.entry(id).or_insert_with(|| {
            by_counter.extend(demands.counters().map(|counter| (counter, id)));
            let (costs, extra_check_at) = (Costs::none(demands), next_extra_check(*has_extra_checks, now));
            QueueEntry { demands: demands.clone(), waiters: 0, costs, extra_check_at }
        });
        queue.waiters += 1;
        queue.costs.change(demands, u64::saturating_add);
    }

    /// Removes a waiter from its queue.
    pub(crate) fn remove(&mut self, id: QueueId, demands: &Demands) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.waiters -= 1;
        queue.costs.change(demands, u64::saturating_sub);
        if queue.waiters == 0 {
            for counter in queue.demands.counters() {
                self.by_counter.remove(&(counter, id));
            }
            self.queues.remove(&id);
        }
    }

    /// The costs of all waiters of a queue; `None` without a waiter.
    pub(crate) fn costs(&self, id: QueueId) -> Option<Costs> {
        self.queues.get(&id).map(|queue| queue.costs.clone())
    }

    /// Returns whether permits of a queue's counters came back since their version was this one.
    pub(crate) fn have_changed(&self, id: QueueId, version: u64) -> bool {
        self.queues.get(&id).is_some_and(|queue| self.changes.version(queue.demands.counters()) != version)
    }

    /// The instant at which the first waiter of a queue checks the store again.
    pub(crate) fn extra_check_at(&self, id: QueueId) -> Moment {
        self.queues.get(&id).map_or(Moment::NEVER, |queue| queue.extra_check_at)
    }

    /// Records that the first waiter of a queue checks the store now. Returns the version of its counters.
    pub(crate) fn begin_check(&mut self, id: QueueId, now: Moment) -> u64 {
        let Some(queue) = self.queues.get_mut(&id) else { return 0 };
        queue.extra_check_at = next_extra_check(self.has_extra_checks, now);
        self.changes.version(queue.demands.counters())
    }

    pub(crate) fn ids(&self) -> Vec<QueueId> {
        self.queues.keys().copied().collect()
    }

    /// The queues whose calls need permits of a counter.
    pub(crate) fn of_counter(&self, counter: u64) -> impl Iterator<Item = QueueId> {
        let (first, last) = ((counter, QueueId::FIRST), (counter, QueueId::LAST));
        self.by_counter.range(first..=last).map(|(_, id)| *id)
    }
}

/// Returns the instant of the next extra check: after 0.8 to 1.2 of the interval, so that processes do not check at once.
fn next_extra_check(has_extra_checks: bool, now: Moment) -> Moment {
    if !has_extra_checks {
        return Moment::NEVER;
    }
    let part = RandomState::new().hash_one(()) % 401;
    now.after(EXTRA_CHECK_INTERVAL / 1000 * (800 + u32::try_from(part).unwrap_or(0)))
}
