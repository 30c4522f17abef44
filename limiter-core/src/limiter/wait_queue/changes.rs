//! The changes that gave permits of counters back: their numbers, and the queues that they wake.

use std::array;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Moment;
use crate::limiter::wait_queue::QueueId;
use crate::sync::{AtomicU64, Ordering};

/// The number of counts. Counters with one count only cause needless checks of the store.
const COUNTS: usize = if cfg!(all(test, limiter_loom)) { 1 } else { 1024 };

/// The number of queues of a counter that each change acts on at once. More of them are acted on at intervals.
const FEW_QUEUES: usize = 64;

/// The part of the interval between two denied checks after changes for each further queue of the counter. So the queues of
/// one counter make about a thousand such checks a second, however often permits come back.
const INTERVAL_PER_QUEUE: Duration = Duration::from_millis(1);

/// The longest interval between two denied checks after changes. More than a thousand queues make one each in that time.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// The number of refunds and resets of each counter. Counters share a fixed number of counts.
///
/// A call reads the version of its counters before its check. If the version is another one when the denial has
/// arrived, the check may have missed permits that came back, so the call checks again.
#[derive(Debug)]
pub(crate) struct Changes([AtomicU64; COUNTS]);

impl Default for Changes {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Changes {
    /// Counts a change of a counter.
    pub(crate) fn count(&self, counter: u64) {
        self.count_of(counter).fetch_add(1, Ordering::AcqRel);
    }

    /// The number of changes of these counters so far.
    pub(crate) fn version(&self, counters: impl Iterator<Item = u64>) -> u64 {
        let number = |counter| self.count_of(counter).load(Ordering::Acquire);
        counters.map(number).fold(0, u64::wrapping_add)
    }

    fn count_of(&self, counter: u64) -> &AtomicU64 {
        &self.0[usize::try_from(counter % COUNTS as u64).unwrap_or(0)]
    }
}

/// The queues of each counter: those whose calls need permits of it.
#[derive(Debug, Default)]
pub(crate) struct CounterIndex {
    queues: BTreeSet<(u64, QueueId)>,
    /// The counters that have more than one queue.
    crowds: BTreeMap<u64, Crowd>,
    /// The instants at which the queues of changed counters are acted on.
    wakes: BTreeSet<(Moment, u64)>,
}

/// The queues of one counter.
#[derive(Debug)]
struct Crowd {
    queues: usize,
    /// The earliest instant at which they are acted on again, if they are many.
    next_wake: Moment,
}

impl CounterIndex {
    pub(crate) fn add(&mut self, counter: u64, queue: QueueId) {
        let has_others = self.of(counter).next().is_some();
        if self.queues.insert((counter, queue)) && has_others {
            self.crowds.entry(counter).or_insert(Crowd { queues: 1, next_wake: Moment::PAST }).queues += 1;
        }
    }

    pub(crate) fn remove(&mut self, counter: u64, queue: QueueId) {
        if self.queues.remove(&(counter, queue))
            && let Some(crowd) = self.crowds.get_mut(&counter)
        {
            crowd.queues -= 1;
            if crowd.queues == 1 {
                self.crowds.remove(&counter);
            }
        }
    }

    /// Records that permits of a counter came back. Returns the queues to act on now.
    pub(crate) fn changed(&mut self, counter: u64, now: Moment) -> Vec<QueueId> {
        match self.crowds.get(&counter).filter(|crowd| crowd.queues > FEW_QUEUES) {
            None => self.of(counter).collect(),
            Some(crowd) => {
                self.wakes.insert((crowd.next_wake, counter));
                self.due(now)
            }
        }
    }

    /// The instant of the next [`due`](Self::due) queues.
    pub(crate) fn next_wake(&self) -> Option<Moment> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Returns the queues whose time has come since a change of their counter.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<QueueId> {
        let mut due = Vec::new();
        while let Some(&(at, counter)) = self.wakes.first()
            && at <= now
        {
            self.wakes.pop_first();
            due.extend(self.of(counter));
            if let Some(crowd) = self.crowds.get_mut(&counter) {
                crowd.next_wake = now.after(interval(crowd.queues));
            }
        }
        due
    }

    /// The interval between two denied checks after changes of these counters, for each of their queues.
    pub(crate) fn interval(&self, counters: impl Iterator<Item = u64>) -> Duration {
        let most = counters.filter_map(|counter| self.crowds.get(&counter)).map(|crowd| crowd.queues).max();
        interval(most.unwrap_or(1))
    }

    fn of(&self, counter: u64) -> impl Iterator<Item = QueueId> {
        let (first, last) = ((counter, QueueId::FIRST), (counter, QueueId::LAST));
        self.queues.range(first..=last).map(|(_, queue)| *queue)
    }
}

fn interval(queues: usize) -> Duration {
    let further = u32::try_from(queues.saturating_sub(1)).unwrap_or(u32::MAX);
    INTERVAL_PER_QUEUE.saturating_mul(further).min(LONGEST_INTERVAL)
}

// The calls that a change of the rules has woken, until each of them has found its queue.

/// The numbers of those calls. Their tasks run in any order, and a call whose limit has changed goes to another queue. So
/// no call checks the store before the earlier ones are in their queues or have ended, or the time for that is over.
#[derive(Debug)]
pub(crate) struct MovingCalls {
    numbers: BTreeSet<u64>,
    until: Moment,
}

impl Default for MovingCalls {
    fn default() -> Self {
        Self { numbers: BTreeSet::new(), until: Moment::PAST }
    }
}

impl MovingCalls {
    /// Begins a move of these calls, besides those that move already.
    pub(crate) fn begin(&mut self, numbers: impl Iterator<Item = u64>, until: Moment) {
        self.numbers.extend(numbers);
        self.until = until;
    }

    /// Records that a call is in its queue, or has ended. Returns whether it was the last one that moved.
    pub(crate) fn settle(&mut self, number: u64) -> bool {
        self.numbers.remove(&number) && self.numbers.is_empty()
    }

    /// Ends the move if its time is over. Returns whether it ends.
    pub(crate) fn end_if_due(&mut self, now: Moment) -> bool {
        let ends = self.end().is_some_and(|end| end <= now);
        if ends {
            self.numbers.clear();
        }
        ends
    }

    /// The instant at which the move ends at the latest; `None` if no call moves.
    pub(crate) fn end(&self) -> Option<Moment> {
        (!self.is_empty()).then_some(self.until)
    }

    /// The earliest instant at which a call of this number may check the store.
    pub(crate) fn may_check_at(&self, number: u64) -> Moment {
        let has_earlier = self.numbers.first().is_some_and(|first| *first < number);
        if has_earlier { self.until } else { Moment::PAST }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}
