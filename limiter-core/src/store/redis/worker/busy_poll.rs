//! Busy polling: while the reply to a script call is due soon, the worker's thread polls its sockets instead of sleeping.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use tokio::sync::Notify;
use tokio::task;
use tokio::time::{Instant, sleep};

use crate::store::redis::busy_polling::Backoff;

/// The script calls in flight, and the task that polls for their replies.
pub(super) struct BusyPoll {
    /// The longest time of a poll. Zero turns busy polling off.
    limit: Duration,
    in_flight: Cell<usize>,
    /// The number of script calls that have ended.
    ended: Cell<u64>,
    /// Notified when a script call was sent.
    sent: Notify,
    /// Yields the core. Returns the time for which it was lost.
    yield_core: fn() -> Duration,
    #[cfg(test)]
    polls: Cell<u32>,
}

/// A script call in flight. Dropping it ends the call.
pub(super) struct PolledCall(Rc<BusyPoll>);

/// The end of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollEnd {
    /// A script call has ended.
    Hit,
    /// None has ended within the time limit.
    Miss,
    /// The thread has lost its core for long.
    CoreLost,
}

/// The time without the core after which other programs seem to need it: longer than a script call takes.
const MIN_LOST_TIME: Duration = Duration::from_millis(1);

/// The time without polls after the core was lost. The thread would lose it again at each turn, for some milliseconds.
const PAUSE_AFTER_LOSS: Duration = Duration::from_secs(1);

impl BusyPoll {
    /// Polls for up to `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            in_flight: Cell::default(),
            ended: Cell::default(),
            sent: Notify::new(),
            yield_core,
            #[cfg(test)]
            polls: Cell::default(),
        }
    }

    /// The polls that have begun.
    #[cfg(test)]
    pub(super) fn polls(&self) -> u32 {
        self.polls.get()
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
            let end = self.poll().await;
            backoff.record(end == PollEnd::Hit);
            match end {
                PollEnd::Hit => {}
                PollEnd::Miss => break,
                PollEnd::CoreLost => return sleep(PAUSE_AFTER_LOSS).await,
            }
        }
    }

    /// Polls until a script call ends, for up to the limit.
    async fn poll(&self) -> PollEnd {
        #[cfg(test)]
        self.polls.set(self.polls.get() + 1);
        let (ended, began) = (self.ended.get(), Instant::now());
        while self.ended.get() == ended {
            if began.elapsed() >= self.limit {
                return PollEnd::Miss;
            }
            // The server may be on this core. With the sockets polled first, 64 tasks took 1.1 of the time.
            if (self.yield_core)() >= MIN_LOST_TIME {
                return PollEnd::CoreLost;
            }
            // The runtime polls its sockets, and runs the tasks that are ready.
            task::yield_now().await;
        }
        PollEnd::Hit
    }
}

fn yield_core() -> Duration {
    let now = StdInstant::now();
    thread::yield_now();
    now.elapsed()
}

impl Drop for PolledCall {
    fn drop(&mut self) {
        let BusyPoll { in_flight, ended, .. } = &*self.0;
        in_flight.set(in_flight.get() - 1);
        ended.set(ended.get().wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
    use tokio::time::{advance, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    fn busy_poll() -> Rc<BusyPoll> {
        // On a busy machine the core may be lost for long.
        Rc::new(BusyPoll { yield_core: || Duration::ZERO, ..BusyPoll::new(LIMIT) })
    }

    /// Starts a poll, with a clock that stands still until it is advanced.
    fn start(busy_poll: &Rc<BusyPoll>) -> JoinHandle<PollEnd> {
        let busy_poll = Rc::clone(busy_poll);
        spawn_local(async move { busy_poll.poll().await })
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
            assert!(has_ended(&poll).await);
            assert_eq!(poll.await.expect("no panic"), PollEnd::Hit);
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
            assert!(has_ended(&poll).await);
            assert_eq!(poll.await.expect("no panic"), PollEnd::Miss);
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

    #[tokio::test(start_paused = true)]
    async fn thread_does_not_poll_for_a_second_after_it_has_lost_its_core() {
        let work = async {
            let busy_poll = Rc::new(BusyPoll { yield_core: || MIN_LOST_TIME, ..BusyPoll::new(LIMIT) });
            let running = Rc::clone(&busy_poll);
            let task = spawn_local(async move { running.run().await });
            let calls: Vec<_> = (0..3).map(|_| busy_poll.call_sent()).collect();
            assert!(!has_ended(&task).await && busy_poll.polls.get() == 1);
            advance(PAUSE_AFTER_LOSS - Duration::from_millis(1)).await;
            let _next = busy_poll.call_sent();
            assert!(!has_ended(&task).await && busy_poll.polls.get() == 1);
            advance(Duration::from_millis(2)).await;
            drop(calls);
            // The first call after the pause is skipped, as after any miss.
            for polls in [1, 2] {
                let _next = busy_poll.call_sent();
                assert!(!has_ended(&task).await && busy_poll.polls.get() == polls);
            }
        };
        LocalSet::new().run_until(work).await;
    }

    #[test]
    fn yield_without_other_threads_is_short() {
        assert!((0..1000).any(|_| yield_core() < MIN_LOST_TIME));
    }

    #[tokio::test]
    async fn zero_turns_polling_off() {
        timeout(Duration::from_secs(10), BusyPoll::new(Duration::ZERO).run()).await.expect("it returns");
    }
}
