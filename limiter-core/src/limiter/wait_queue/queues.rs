//! The queues that have waiters, with what their waiters share, and an index of their counters.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::limiter::wait_queue::QueueId;
use crate::limiter::wait_queue::changes::{Changes, CounterIndex};
use crate::limiter::wait_queue::demand::Demands;

/// The mean time after which the first waiter of a queue checks a shared store again.
const EXTRA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The queues that have waiters.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: BTreeMap<QueueId, QueueEntry>,
    by_counter: CounterIndex,
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
    /// The earliest instant of the first waiter's next check because permits came back, after one that was denied.
    next_change_check: Moment,
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
            demands.counters().for_each(|counter| by_counter.add(counter, id));
            let (costs, extra_check_at) = (Costs::none(demands), next_extra_check(*has_extra_checks, now));
            QueueEntry { demands: demands.clone(), waiters: 0, costs, extra_check_at, next_change_check: Moment::PAST }
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
            queue.demands.counters().for_each(|counter| self.by_counter.remove(counter, id));
            self.queues.remove(&id);
        }
    }

    /// The costs of all waiters of a queue; `None` without a waiter.
    pub(crate) fn costs(&self, id: QueueId) -> Option<Costs> {
        self.queues.get(&id).map(|queue| queue.costs.clone())
    }

    /// The instant of the next check of a queue's first waiter, if permits came back since the version of its counters was
    /// this one.
    pub(crate) fn change_check_at(&self, id: QueueId, version: u64) -> Option<Moment> {
        let queue = self.queues.get(&id)?;
        let has_changed = self.changes.version(queue.demands.counters()) != version;
        has_changed.then_some(queue.next_change_check)
    }

    /// The instant at which the first waiter of a queue checks the store again.
    pub(crate) fn extra_check_at(&self, id: QueueId) -> Moment {
        self.queues.get(&id).map_or(Moment::NEVER, |queue| queue.extra_check_at)
    }

    /// Records that the first waiter of a queue checks the store now. Returns the version of its counters, which was
    /// another one at its last check if permits came back since.
    pub(crate) fn begin_check(&mut self, id: QueueId, last_version: u64, now: Moment) -> u64 {
        let Some(queue) = self.queues.get_mut(&id) else { return 0 };
        queue.extra_check_at = next_extra_check(self.has_extra_checks, now);
        let version = self.changes.version(queue.demands.counters());
        if version != last_version {
            queue.next_change_check = now.after(self.by_counter.interval(queue.demands.counters()));
        }
        version
    }

    /// Records that the first waiter of a queue leaves at its check. The next one need not wait for the end of its interval.
    pub(crate) fn end_interval(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.next_change_check = Moment::PAST;
        }
    }

    pub(crate) fn ids(&self) -> Vec<QueueId> {
        self.queues.keys().copied().collect()
    }

    /// The queues of each counter.
    pub(crate) fn by_counter(&mut self) -> &mut CounterIndex {
        &mut self.by_counter
    }

    /// The instant at which queues of a counter that has changed are due.
    pub(crate) fn next_wake(&self) -> Option<Moment> {
        self.by_counter.next_wake()
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
