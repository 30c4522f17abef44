//! The batches in flight to one server: a semaphore whose size depends on the calls in them.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The number of batches in flight to one server, and of calls in them.
#[derive(Default)]
pub(crate) struct InFlightBatches {
    batches: Cell<usize>,
    calls: Cell<usize>,
    /// Set when no permit was free: calls may wait for the next one.
    is_awaited: Cell<bool>,
    /// Notified when a permit is released for which calls wait.
    released: Notify,
}

/// Permit for one batch in flight. Dropping it releases the permit, and wakes the task that sends the next batch if calls
/// wait for it.
///
/// A batch holds it until the server has replied to all of it, or until it is in flight to another server instead.
pub(crate) struct InFlightPermit {
    batches: Rc<InFlightBatches>,
    calls: Cell<usize>,
}

/// Batches in flight at a time: while the server runs one, the next is on the wire.
const MAX_BATCHES: usize = 2;
/// Batches in flight at a time while they hold few calls. Small batches keep the server busy only if there are more.
const MAX_SMALL_BATCHES: usize = 4;
/// Calls in flight that are few.
const FEW_CALLS: usize = 64;

impl InFlightBatches {
    /// Takes a permit for one more batch, if it may be sent now.
    pub(crate) fn try_acquire(self: &Rc<Self>) -> Option<InFlightPermit> {
        let max = if self.calls.get() < FEW_CALLS { MAX_SMALL_BATCHES } else { MAX_BATCHES };
        if self.batches.get() >= max {
            self.is_awaited.set(true);
            return None;
        }
        self.batches.set(self.batches.get() + 1);
        Some(InFlightPermit { batches: Rc::clone(self), calls: Cell::new(0) })
    }

    /// Waits until a permit is released for which calls wait. A release before the call counts.
    pub(crate) async fn released(&self) {
        self.released.notified().await;
    }

    /// Wakes the task that waits for a released permit: there are calls to send.
    pub(crate) fn wake(&self) {
        self.released.notify_one();
    }
}

impl InFlightPermit {
    /// Counts the calls of the batch.
    pub(crate) fn add_calls(&self, calls: usize) {
        self.calls.set(self.calls.get() + calls);
        self.batches.calls.set(self.batches.calls.get() + calls);
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let InFlightBatches { batches, calls, .. } = &*self.batches;
        batches.set(batches.get() - 1);
        calls.set(calls.get() - self.calls.get());
        if self.batches.is_awaited.take() {
            self.batches.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a permit, if there is one.
    fn acquire(batches: &Rc<InFlightBatches>, calls: usize) -> Option<InFlightPermit> {
        let permit = batches.try_acquire()?;
        permit.add_calls(calls);
        Some(permit)
    }

    #[test]
    fn allows_four_small_batches_or_two_large_ones() {
        let batches = Rc::default();
        let mut small: Vec<_> = (0..4).map(|_| acquire(&batches, 1).expect("a permit")).collect();
        assert!(acquire(&batches, 100).is_none());
        small.pop();
        let large = acquire(&batches, 100).expect("the fourth");
        for _ in 0..2 {
            small.pop();
            assert!(acquire(&batches, 1).is_none(), "two in flight, one of them large");
        }
        small.pop();
        let second = acquire(&batches, 2).expect("the second");
        assert!(acquire(&batches, 1).is_none());
        drop(large);
        let _small: Vec<_> = (0..3).map(|_| acquire(&batches, 1).expect("small again")).collect();
        assert!(acquire(&batches, 1).is_none());
        drop(second);
    }
}
