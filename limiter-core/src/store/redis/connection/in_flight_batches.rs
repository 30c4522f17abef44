//! The batches in flight to one server: a semaphore whose size depends on the calls in them and on the round trip.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::round_trip::Length;

/// The number of batches in flight to one server, and of calls in them.
///
/// While replies come quickly, two batches keep the server busy. Calls that arrive meanwhile wait for one of them, which
/// takes up to a round trip. Where that is long, further batches are sent at an even pace instead, with the calls that
/// have arrived since the last one.
pub(crate) struct InFlightBatches {
    batches: Cell<usize>,
    calls: Cell<usize>,
    /// The most batches in flight over a long round trip. Missed replies halve it: the server may be slow because it has
    /// too much to do. Then each full number of replies adds one again.
    max: Cell<usize>,
    /// Replies since `max` was changed.
    replies: Cell<usize>,
    /// Batches sent so far, and those sent before `max` was halved.
    sent: Cell<u64>,
    sent_before_halving: Cell<u64>,
    /// The time before which no further batch is sent over a long round trip.
    next_at: Cell<Option<Instant>>,
    /// The time at which such a batch is to be sent, if calls wait for it.
    timer: Cell<Option<Instant>>,
    /// Set when no permit was free: calls may wait for the next one.
    is_awaited: Cell<bool>,
    /// Set when a permit was released for which calls wait.
    is_released: Cell<bool>,
    /// Notified when a permit is released for which calls wait, and when the timer is set.
    changed: Notify,
}

/// Permit for one batch in flight. Dropping it releases the permit, and wakes the task that sends the next batch if calls
/// wait for it.
///
/// A batch holds it until the server has replied to all of it, or until it is in flight to another server instead.
pub(crate) struct InFlightPermit {
    batches: Rc<InFlightBatches>,
    calls: Cell<usize>,
    /// The number of batches sent before this one.
    sent_before: u64,
    has_missed_reply: Cell<bool>,
}

/// Calls that are taken from the queue for one batch.
pub(crate) const MAX_BATCH_CALLS: usize = 1024;
/// Batches in flight at a time: while the server runs one, the next is on the wire.
const MAX_BATCHES: usize = 2;
/// Batches in flight at a time while they hold few calls. Small batches keep the server busy only if there are more.
const MAX_SMALL_BATCHES: usize = 4;
/// Calls in flight that are few.
const FEW_CALLS: usize = 64;
/// Batches in flight at a time over a long round trip.
const MAX_BATCHES_OVER_LONG_ROUND_TRIP: usize = 128;
/// Batches in flight at a time, after any number of missed replies, to a server that never replied quickly.
const MIN_BATCHES_TO_FAR_SERVER: usize = 32;
/// Batches that are sent in one long round trip at an even pace, if so many may be in flight.
const BATCHES_PER_ROUND_TRIP: u32 = 64;
/// The shortest time between two of them.
const MIN_PAUSE: Duration = Duration::from_millis(1);

impl Default for InFlightBatches {
    fn default() -> Self {
        Self {
            batches: Cell::default(),
            calls: Cell::default(),
            max: Cell::new(MAX_BATCHES_OVER_LONG_ROUND_TRIP),
            replies: Cell::default(),
            sent: Cell::default(),
            sent_before_halving: Cell::default(),
            next_at: Cell::default(),
            timer: Cell::default(),
            is_awaited: Cell::default(),
            is_released: Cell::default(),
            changed: Notify::new(),
        }
    }
}

impl InFlightBatches {
    /// Takes a permit for one more batch, if it may be sent now. So many calls wait for it. The round trip is read only if
    /// it matters.
    pub(crate) fn try_acquire(
        self: &Rc<Self>,
        waiting_calls: usize,
        round_trip: impl FnOnce() -> Length,
    ) -> Option<InFlightPermit> {
        let max = if self.calls.get() < FEW_CALLS { MAX_SMALL_BATCHES } else { MAX_BATCHES };
        if self.batches.get() >= max && !self.is_due(waiting_calls, round_trip()) {
            self.is_awaited.set(true);
            return None;
        }
        self.batches.set(self.batches.get() + 1);
        let sent_before = self.sent.replace(self.sent.get() + 1);
        Some(InFlightPermit {
            batches: Rc::clone(self),
            calls: Cell::default(),
            sent_before,
            has_missed_reply: Cell::default(),
        })
    }

    /// Returns whether a batch beyond the usual number is to be sent now, over a long round trip. Otherwise it sets the
    /// timer for it, if it only has to wait for its time.
    fn is_due(&self, waiting_calls: usize, round_trip: Length) -> bool {
        let (round_trip, max) = match round_trip {
            Length::Short => return false,
            Length::LongForNow(round_trip) => (round_trip, self.max.get()),
            Length::Long(round_trip) => (round_trip, self.max.get().max(MIN_BATCHES_TO_FAR_SERVER)),
        };
        if self.batches.get() >= max {
            return false;
        }
        let now = Instant::now();
        // More calls do not fit into a batch, so it is not delayed for them.
        if waiting_calls < MAX_BATCH_CALLS
            && let Some(next_at) = self.next_at.get().filter(|next_at| now < *next_at)
        {
            if self.timer.replace(Some(next_at)).is_none() {
                self.changed.notify_one();
            }
            return false;
        }
        // So the last of them is sent when the reply to the first one comes.
        let batches = u32::try_from(max).unwrap_or(u32::MAX).min(BATCHES_PER_ROUND_TRIP);
        self.next_at.set(Some(now + (round_trip / batches).max(MIN_PAUSE)));
        true
    }

    /// Waits until a permit is released for which calls wait, or until a batch is to be sent over a long round trip. A
    /// release before the call counts.
    pub(crate) async fn released(&self) {
        while !self.is_released.take() {
            match self.timer.get() {
                None => self.changed.notified().await,
                Some(at) => {
                    if timeout_at(at, self.changed.notified()).await.is_err() {
                        return self.timer.set(None);
                    }
                }
            }
        }
    }

    /// Wakes the task that waits for a released permit: there are calls to send.
    pub(crate) fn wake(&self) {
        self.is_released.set(true);
        self.changed.notify_one();
    }

    /// Records that there was no reply to a batch in time. Of the batches that were in flight at the same time, one counts.
    fn reply_missed(&self, sent_before: u64) {
        if sent_before >= self.sent_before_halving.get() {
            self.sent_before_halving.set(self.sent.get());
            self.max.set((self.max.get() / 2).max(MAX_BATCHES));
            self.replies.set(0);
        }
    }

    /// Records that a batch has ended, and its reply was not missed.
    fn replied(&self) {
        if self.max.get() < MAX_BATCHES_OVER_LONG_ROUND_TRIP {
            self.replies.set(self.replies.get() + 1);
            if self.replies.get() >= self.max.get() {
                self.max.set(self.max.get() + 1);
                self.replies.set(0);
            }
        }
    }
}

impl InFlightPermit {
    /// Counts the calls of the batch.
    pub(crate) fn add_calls(&self, calls: usize) {
        self.calls.set(self.calls.get() + calls);
        self.batches.calls.set(self.batches.calls.get() + calls);
    }

    /// Records that there was no reply to the batch in time: fewer may be in flight over a long round trip.
    pub(crate) fn report_missed_reply(&self) {
        self.has_missed_reply.set(true);
        self.batches.reply_missed(self.sent_before);
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let InFlightBatches { batches, calls, .. } = &*self.batches;
        batches.set(batches.get() - 1);
        calls.set(calls.get() - self.calls.get());
        if !self.has_missed_reply.get() {
            self.batches.replied();
        }
        if self.batches.is_awaited.take() {
            self.batches.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, spawn_local, yield_now};
    use tokio::time::{advance, timeout};

    use super::*;

    const LONG: Length = Length::LongForNow(Duration::from_millis(128));
    const FAR: Length = Length::Long(Duration::from_millis(128));
    /// The pause between two batches over that round trip.
    const PAUSE: Duration = Duration::from_millis(2);

    /// Takes a permit for a batch of so many calls, if there is one.
    fn acquire_over(batches: &Rc<InFlightBatches>, calls: usize, round_trip: Length) -> Option<InFlightPermit> {
        let permit = batches.try_acquire(calls, || round_trip)?;
        permit.add_calls(calls);
        Some(permit)
    }

    fn acquire(batches: &Rc<InFlightBatches>, calls: usize) -> Option<InFlightPermit> {
        acquire_over(batches, calls, Length::Short)
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

    #[tokio::test(start_paused = true)]
    async fn further_batches_over_a_long_round_trip_are_sent_at_an_even_pace_up_to_a_bound() {
        let batches = Rc::default();
        let mut in_flight: Vec<_> = (0..2).map(|_| acquire_over(&batches, 100, LONG).expect("a permit")).collect();
        while in_flight.len() < MAX_BATCHES_OVER_LONG_ROUND_TRIP {
            in_flight.push(acquire_over(&batches, 100, LONG).expect("one in each pause"));
            assert!(acquire_over(&batches, 100, LONG).is_none());
            advance(PAUSE - Duration::from_millis(1)).await;
            assert!(acquire_over(&batches, 100, LONG).is_none());
            advance(Duration::from_millis(1)).await;
            assert!(acquire(&batches, 100).is_none(), "the round trip is short again");
        }
        assert!(acquire_over(&batches, 100, LONG).is_none());
        in_flight.pop();
        assert!(acquire_over(&batches, 100, LONG).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn full_batch_over_a_long_round_trip_is_sent_at_once() {
        let batches = Rc::default();
        let _first: Vec<_> = (0..3).map(|_| acquire_over(&batches, 100, LONG).expect("a permit")).collect();
        assert!(acquire_over(&batches, MAX_BATCH_CALLS - 1, LONG).is_none());
        let permits: Vec<_> = (0..).map_while(|_| acquire_over(&batches, MAX_BATCH_CALLS, LONG)).collect();
        assert_eq!(permits.len(), MAX_BATCHES_OVER_LONG_ROUND_TRIP - 3);
    }

    /// A few that are sent at once would leave the calls after them without a batch for the rest of the round trip.
    #[tokio::test(start_paused = true)]
    async fn pause_is_longer_where_fewer_batches_may_be_in_flight() {
        let batches = Rc::new(InFlightBatches { max: Cell::new(8), ..InFlightBatches::default() });
        let _first: Vec<_> = (0..2).map(|_| acquire_over(&batches, 100, LONG).expect("a permit")).collect();
        let _third = acquire_over(&batches, 100, LONG).expect("one in each pause");
        advance(8 * PAUSE - Duration::from_millis(1)).await;
        assert!(acquire_over(&batches, 100, LONG).is_none());
        advance(Duration::from_millis(1)).await;
        assert!(acquire_over(&batches, 100, LONG).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn missed_replies_halve_the_bound_once_for_each_round_trip_and_replies_raise_it() {
        let batches = Rc::default();
        let fill = || (0..).map_while(|_| acquire_over(&batches, MAX_BATCH_CALLS, LONG)).collect::<Vec<_>>();
        for bound in [128, 64, 32, 16, 8, 4, 2, 2] {
            let in_flight = fill();
            assert_eq!(in_flight.len(), bound);
            in_flight.iter().for_each(InFlightPermit::report_missed_reply);
        }
        let far: Vec<_> = (0..).map_while(|_| acquire_over(&batches, MAX_BATCH_CALLS, FAR)).collect();
        assert_eq!(far.len(), MIN_BATCHES_TO_FAR_SERVER);
        far.iter().for_each(InFlightPermit::report_missed_reply);
        drop(far);
        for bound in [2, 3, 4, 5] {
            let in_flight = fill();
            assert_eq!(in_flight.len(), bound);
        }
    }

    /// The task must neither sleep for ever nor be woken again and again.
    #[tokio::test(start_paused = true)]
    async fn waiting_task_is_woken_by_a_release_and_when_the_next_batch_is_due() {
        let work = async {
            let batches = Rc::default();
            let in_flight: Vec<_> = (0..3).map(|_| acquire_over(&batches, 100, LONG).expect("a permit")).collect();
            let released = async || timeout(Duration::from_secs(60), batches.released()).await.expect("woken");
            let begun = Instant::now();
            assert!(acquire_over(&batches, 1, LONG).is_none());
            released().await;
            assert_eq!(begun.elapsed(), PAUSE);
            let third = acquire_over(&batches, 100, LONG).expect("due");
            // The timer is set while the task waits without one.
            let waiting = Rc::clone(&batches);
            let task = spawn_local(async move { waiting.released().await });
            yield_now().await;
            assert!(acquire_over(&batches, 1, LONG).is_none());
            task.await.expect("no panic");
            assert_eq!(begun.elapsed(), 2 * PAUSE);
            let _fourth = acquire_over(&batches, 100, LONG).expect("due");
            assert!(acquire_over(&batches, 1, LONG).is_none());
            drop(third);
            released().await;
            assert_eq!(begun.elapsed(), 2 * PAUSE, "at once");
            assert!(acquire_over(&batches, 1, LONG).is_none());
            released().await;
            assert_eq!(begun.elapsed(), 3 * PAUSE);
            drop(in_flight);
        };
        LocalSet::new().run_until(work).await;
    }
}
