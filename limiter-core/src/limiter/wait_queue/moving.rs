//! The calls that a change of the rules has woken, until each of them has found its queue.

use std::collections::BTreeSet;

use crate::clock::Moment;

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
