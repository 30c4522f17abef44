//! Busy polling: while the reply to a script call is due soon, the worker's thread polls its sockets instead of sleeping.
//!
//! A server on the same machine replies to a small batch within some tens of microseconds, and a sleeping thread takes
//! about as long to wake up. A server behind a network replies later. The poll then ends without a reply after its time
//! limit, and the thread does not poll after most of the next calls.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task;
use tokio::time::Instant;

/// The script calls in flight, and the task that polls for their replies.
pub(super) struct BusyPoll {
    /// The longest time of a poll. Zero turns busy polling off.
    limit: Duration,
    in_flight: Cell<usize>,
    /// The number of script calls that have ended.
    ended: Cell<u64>,
    /// Notified when a script call was sent.
    sent: Notify,
    #[cfg(test)]
    polls: Cell<u32>,
}

/// A script call in flight. Dropping it ends the call.
pub(super) struct PolledCall(Rc<BusyPoll>);

/// The calls after which the thread does not poll, since earlier polls have missed the reply.
#[derive(Default)]
struct Backoff {
    /// The number of calls without a poll after the latest poll.
    next_skips: u32,
    /// The number of those that are left.
    skips: u32,
}

/// The most calls in a row without a poll.
const MAX_SKIPS: u32 = 63;

/// The time without its core after which a poll is a miss: other programs need the core for more than a script call.
const MIN_LOST_TIME: Duration = Duration::from_millis(1);

impl BusyPoll {
    /// Polls for up to `limit`. With one core the thread would keep the server from running, so it never polls there.
    pub(super) fn new(limit: Duration) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::on_cores(limit, cores)
    }

    fn on_cores(limit: Duration, cores: usize) -> Self {
        Self {
            limit: if cores > 1 { limit } else { Duration::ZERO },
            in_flight: Cell::default(),
            ended: Cell::default(),
            sent: Notify::new(),
            #[cfg(test)]
            polls: Cell::default(),
        }
    }

    /// Counts a script call that is sent now.
    pub(super) fn call_sent(self: &Rc<Self>) -> PolledCall {
        self.in_flight.set(self.in_flight.get() + 1);
        self.sent.notify_one();
        PolledCall(Rc::clone(self))
    }

    /// Polls for the replies to script calls as they are sent. Never returns, unless busy polling is off.
    pub(super) async fn run(&self) {
        let mut backoff = Backoff::default();
        while !self.limit.is_zero() {
            // A call that was sent during a poll that missed is notified too, and uses up the first skip.
            self.sent.notified().await;
            self.poll_for_replies(&mut backoff).await;
        }
    }

    /// Polls until the thread may sleep: no call is in flight, or none is polled for now.
    async fn poll_for_replies(&self, backoff: &mut Backoff) {
        while self.in_flight.get() > 0 && !backoff.skip() {
            let is_hit = self.next_end().await;
            backoff.record(is_hit);
            if !is_hit {
                break;
            }
        }
    }

    /// Polls until a script call ends. Returns false if none has within the time limit.
    async fn next_end(&self) -> bool {
        #[cfg(test)]
        self.polls.set(self.polls.get() + 1);
        let (ended, began) = (self.ended.get(), Instant::now());
        while self.ended.get() == ended {
            let now = Instant::now();
            if now - began >= self.limit {
                return false;
            }
            // The server may be on this core. With the sockets polled first, 64 tasks took 1.1 of the time.
            thread::yield_now();
            if now.elapsed() >= MIN_LOST_TIME {
                return false;
            }
            // The runtime polls its sockets, and runs the tasks that are ready.
            task::yield_now().await;
        }
        true
    }
}

impl Drop for PolledCall {
    fn drop(&mut self) {
        let BusyPoll { in_flight, ended, .. } = &*self.0;
        in_flight.set(in_flight.get() - 1);
        ended.set(ended.get().wrapping_add(1));
    }
}

impl Backoff {
    /// Returns whether the thread does not poll now.
    fn skip(&mut self) -> bool {
        let is_skipped = self.skips > 0;
        self.skips = self.skips.saturating_sub(1);
        is_skipped
    }

    /// Records a poll. Each miss in a row doubles the calls without a poll: 1, 3, 7, … 63.
    fn record(&mut self, is_hit: bool) {
        self.next_skips = if is_hit { 0 } else { (2 * self.next_skips + 1).min(MAX_SKIPS) };
        self.skips = self.next_skips;
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
    use tokio::time::{advance, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    fn busy_poll() -> Rc<BusyPoll> {
        Rc::new(BusyPoll::on_cores(LIMIT, 2))
    }

    /// Starts a poll, with a clock that stands still until it is advanced.
    fn start(busy_poll: &Rc<BusyPoll>) -> JoinHandle<bool> {
        let busy_poll = Rc::clone(busy_poll);
        spawn_local(async move { busy_poll.next_end().await })
    }

    /// Lets the poll take some turns. Returns whether it has ended.
    async fn has_ended<T>(poll: &JoinHandle<T>) -> bool {
        for _ in 0..10 {
            yield_now().await;
        }
        poll.is_finished()
    }

    #[tokio::test(start_paused = true)]
    async fn poll_ends_with_a_call_that_ends_and_not_with_one_that_is_sent() {
        let work = async {
            let busy_poll = busy_poll();
            let first = busy_poll.call_sent();
            let poll = start(&busy_poll);
            assert!(!has_ended(&poll).await);
            let _second = busy_poll.call_sent();
            assert!(!has_ended(&poll).await);
            drop(first);
            assert!(has_ended(&poll).await && poll.await.expect("no panic"));
        };
        LocalSet::new().run_until(work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn poll_ends_without_a_hit_at_its_limit_and_not_before() {
        let work = async {
            let busy_poll = busy_poll();
            let _call = busy_poll.call_sent();
            let poll = start(&busy_poll);
            assert!(!has_ended(&poll).await);
            advance(LIMIT - Duration::from_nanos(1)).await;
            assert!(!has_ended(&poll).await);
            advance(Duration::from_nanos(1)).await;
            assert!(has_ended(&poll).await && !poll.await.expect("no panic"));
        };
        LocalSet::new().run_until(work).await;
    }

    /// Starts to poll for replies, as after a script call was sent.
    fn start_polls(busy_poll: &Rc<BusyPoll>, mut backoff: Backoff) -> JoinHandle<Backoff> {
        let busy_poll = Rc::clone(busy_poll);
        spawn_local(async move {
            busy_poll.poll_for_replies(&mut backoff).await;
            backoff
        })
    }

    #[tokio::test(start_paused = true)]
    async fn thread_polls_while_a_call_is_in_flight_and_sleeps_after_a_miss() {
        let work = async {
            let busy_poll = busy_poll();
            let (first, second) = (busy_poll.call_sent(), busy_poll.call_sent());
            let polls = start_polls(&busy_poll, Backoff::default());
            drop(first);
            assert!(!has_ended(&polls).await, "one is in flight");
            drop(second);
            assert!(has_ended(&polls).await, "none is in flight");
            let backoff = polls.await.expect("no panic");
            let _third = busy_poll.call_sent();
            let polls = start_polls(&busy_poll, backoff);
            assert!(!has_ended(&polls).await);
            advance(LIMIT).await;
            assert!(has_ended(&polls).await, "a miss");
            let polls = start_polls(&busy_poll, polls.await.expect("no panic"));
            assert!(has_ended(&polls).await, "the call after a miss is not polled for");
            let polls = start_polls(&busy_poll, polls.await.expect("no panic"));
            assert!(!has_ended(&polls).await, "the next one is");
        };
        LocalSet::new().run_until(work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_sent_starts_a_poll_but_those_after_a_miss() {
        let work = async {
            let busy_poll = busy_poll();
            let running = Rc::clone(&busy_poll);
            let task = spawn_local(async move { running.run().await });
            for polls in 1..=3 {
                let call = busy_poll.call_sent();
                assert!(!has_ended(&task).await && busy_poll.polls.get() == polls);
                drop(call);
                assert!(!has_ended(&task).await && busy_poll.polls.get() == polls);
            }
            let _missed = busy_poll.call_sent();
            assert!(!has_ended(&task).await && busy_poll.polls.get() == 4);
            advance(LIMIT).await;
            assert!(!has_ended(&task).await);
            for polls in [4, 5] {
                let _next = busy_poll.call_sent();
                assert!(!has_ended(&task).await && busy_poll.polls.get() == polls);
            }
        };
        LocalSet::new().run_until(work).await;
    }

    #[tokio::test]
    async fn zero_and_a_single_core_turn_polling_off() {
        for busy_poll in [BusyPoll::on_cores(Duration::ZERO, 2), BusyPoll::on_cores(LIMIT, 1)] {
            timeout(Duration::from_secs(10), busy_poll.run()).await.expect("it returns");
        }
    }

    #[test]
    fn misses_in_a_row_double_the_calls_without_a_poll() {
        let mut backoff = Backoff::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 63] {
            let skips = (0..100).take_while(|_| backoff.skip()).count();
            assert_eq!(skips, expected);
            backoff.record(false);
        }
        backoff.record(true);
        assert!(!backoff.skip());
        backoff.record(false);
        assert!(backoff.skip() && !backoff.skip());
    }
}
