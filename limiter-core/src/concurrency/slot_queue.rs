//! The calls of a key that wait for slots, in their order.

use std::collections::VecDeque;

use crate::OnError;
use crate::request::CallOptions;

/// The slots that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotClaim {
    pub(crate) cost: u16,
    /// This process's share is a limit too, while the store fails and for a slot time after it.
    pub(crate) is_by_share: bool,
}

impl SlotClaim {
    pub(crate) fn new(cost: u16, options: &CallOptions) -> Self {
        Self { cost, is_by_share: options.on_error == OnError::Standby }
    }
}

#[cfg(all(test, not(limiter_loom)))]
impl SlotClaim {
    pub(crate) const ONE: Self = Self { cost: 1, is_by_share: false };
}

/// The queue of a key. `C` tells a call its outcome.
#[derive(Debug)]
pub(super) struct SlotQueue<C> {
    calls: VecDeque<QueuedCall<C>>,
    next_id: u64,
    /// The slots of all calls.
    slots: u64,
    /// The slots of those that wait for a slot.
    waiting: u64,
    /// The number of calls that wait for a reply of the store alone.
    asking: usize,
}

#[derive(Debug)]
pub(super) struct QueuedCall<C> {
    /// Grows with each call of the key.
    pub(super) id: u64,
    pub(super) claim: SlotClaim,
    /// It waits for a slot. Another call waits for a reply of the store alone.
    pub(super) waits: bool,
    pub(super) call: C,
}

impl<C> SlotQueue<C> {
    pub(super) fn new() -> Self {
        Self { calls: VecDeque::new(), next_id: 0, slots: 0, waiting: 0, asking: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn has_asking(&self) -> bool {
        self.asking > 0
    }

    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The id of the next call.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The claim of the first call.
    pub(super) fn first(&self) -> Option<SlotClaim> {
        self.calls.front().map(|first| first.claim)
    }

    /// Adds a call behind all others, and returns its id.
    pub(super) fn push(&mut self, claim: SlotClaim, waits: bool, call: C) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.slots += u64::from(claim.cost);
        self.waiting += if waits { claim.cost.into() } else { 0 };
        self.asking += usize::from(!waits);
        self.calls.push_back(QueuedCall { id, claim, waits, call });
        id
    }

    /// Removes the first call.
    pub(super) fn pop(&mut self) -> Option<C> {
        let call = self.calls.pop_front()?;
        Some(self.removed(call))
    }

    /// Removes a call that waits no longer.
    pub(super) fn remove(&mut self, id: u64) {
        let place = self.calls.binary_search_by_key(&id, |queued| queued.id);
        if let Some(call) = place.ok().and_then(|place| self.calls.remove(place)) {
            self.removed(call);
        }
    }

    /// Removes all calls that meet the condition.
    pub(super) fn remove_where(&mut self, condition: impl Fn(&QueuedCall<C>) -> bool) -> Vec<C> {
        let (removed, kept) = std::mem::take(&mut self.calls).into_iter().partition::<VecDeque<_>, _>(condition);
        self.calls = kept;
        removed.into_iter().map(|call| self.removed(call)).collect()
    }

    fn removed(&mut self, call: QueuedCall<C>) -> C {
        self.slots -= u64::from(call.claim.cost);
        self.waiting -= if call.waits { call.claim.cost.into() } else { 0 };
        self.asking -= usize::from(!call.waits);
        call.call
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_calls() {
        let mut queue = SlotQueue::new();
        let claim = |cost| SlotClaim { cost, is_by_share: false };
        let ids: Vec<_> = (1..=6).map(|cost| queue.push(claim(cost), cost % 2 == 0, cost)).collect();
        assert_eq!((queue.slots(), queue.waiting(), queue.asking), (21, 12, 3));
        assert_eq!(queue.pop(), Some(1));
        queue.remove(ids[3]);
        queue.remove(ids[3]);
        assert_eq!((queue.slots(), queue.waiting(), queue.asking), (16, 8, 2));
        assert_eq!(queue.remove_where(|call| !call.waits && call.id < ids[4]), [3]);
        assert_eq!((queue.slots(), queue.waiting(), queue.asking), (13, 8, 1));
        assert_eq!(queue.remove_where(|_| true), [2, 5, 6]);
        assert_eq!((queue.slots(), queue.waiting(), queue.is_empty(), queue.has_asking()), (0, 0, true, false));
    }
}
