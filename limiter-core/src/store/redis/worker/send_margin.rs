//! The time that a call must have left when it is sent.

use std::cell::Cell;

use tokio::time::Instant;

use super::call::Deadline;

/// The part of its time that a call must have left when it is sent to one server.
///
/// A server that gets more calls than it can run makes them wait in their queue, in the order in which they came, up to
/// their deadlines. If each were sent as long as it has any time left, nearly every reply would come too late, and the
/// server would work for nothing, also long after the cause has ended. So late replies double this part, up to half of the
/// time, and many replies in time reduce it slowly. A call that has not waited is always sent.
#[derive(Default)]
pub(super) struct SendMargin {
    /// In 128ths of the time.
    part: Cell<u32>,
    /// Replies in time since it was changed.
    replies: Cell<u32>,
    raised_at: Cell<Option<Instant>>,
}

const PARTS: u32 = 128;
/// The part after the first late reply.
const FIRST_PART: u32 = 4;
const MAX_PART: u32 = PARTS / 2;
/// Replies in time that reduce it by one part. With fewer a quarter of the work is for nothing where the calls are few more
/// than the server can run, by a simulation of a queue in front of a server.
const REPLIES: u32 = 256;

impl SendMargin {
    /// Returns whether a call has too little time left to be sent now.
    pub(super) fn has_passed(&self, deadline: Deadline, now: Instant) -> bool {
        let margin = match self.part.get() {
            0 => return now >= deadline.instant,
            part => deadline.timeout / PARTS * part,
        };
        now + margin >= deadline.instant
    }

    /// Records the reply to a batch that was sent at this time and whose oldest call has this deadline. `None` if it did
    /// not come in time for any of its calls. Of late replies to batches in flight at the same time one counts.
    pub(super) fn record(&self, deadline: Deadline, sent_at: Instant, replied_at: Option<Instant>) {
        let part = self.part.get();
        if replied_at.is_none_or(|at| at > deadline.instant) {
            if self.raised_at.get().is_none_or(|at| sent_at >= at) {
                self.part.set((part * 2).clamp(FIRST_PART, MAX_PART));
                self.raised_at.set(Some(Instant::now()));
                self.replies.set(0);
            }
        } else if part > 0 {
            self.replies.set(self.replies.get() + 1);
            if self.replies.get() == REPLIES {
                self.part.set(part - 1);
                self.replies.set(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Returns the milliseconds before the deadline from which on a call of 128 ms is not sent.
    fn millis(margin: &SendMargin) -> usize {
        let deadline = Deadline::after(128 * MILLI);
        (0..128).take_while(|left| margin.has_passed(deadline, deadline.instant - *left * MILLI)).count() - 1
    }

    #[tokio::test(start_paused = true)]
    async fn late_replies_double_it_and_many_in_time_reduce_it_slowly() {
        let margin = SendMargin::default();
        let late = || margin.record(Deadline::after(128 * MILLI), Instant::now(), None);
        let in_time = || margin.record(Deadline::after(128 * MILLI), Instant::now(), Some(Instant::now()));
        assert_eq!(millis(&margin), 0);
        (0..REPLIES * 2).for_each(|_| in_time());
        assert_eq!(millis(&margin), 0);
        let doubled: Vec<_> = (0..6)
            .map(|_| {
                late();
                millis(&margin)
            })
            .collect();
        assert_eq!(doubled, [4, 8, 16, 32, 64, 64]);
        (0..REPLIES - 1).for_each(|_| in_time());
        assert_eq!(millis(&margin), 64);
        in_time();
        assert_eq!(millis(&margin), 63);
        (0..63 * REPLIES).for_each(|_| in_time());
        assert_eq!(millis(&margin), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_batches_in_flight_at_the_same_time_one_late_reply_counts() {
        let (margin, deadline, sent_at) = (SendMargin::default(), Deadline::after(128 * MILLI), Instant::now());
        advance(130 * MILLI).await;
        margin.record(deadline, sent_at, None);
        // It came in time for its youngest calls alone.
        margin.record(deadline, sent_at + MILLI, Some(Instant::now()));
        assert_eq!(millis(&margin), 4);
        margin.record(deadline, Instant::now(), Some(Instant::now()));
        assert_eq!(millis(&margin), 8);
    }

    /// Calls come half as often again as a server can run them. Returns the share of its work whose replies come in time.
    async fn share_in_time(is_fixed: bool) -> f64 {
        const BATCH: usize = 128;
        let (margin, mut queue, mut arrived) = (SendMargin::default(), VecDeque::new(), Instant::now());
        // The times at which the batches in flight end.
        let mut in_flight: VecDeque<(Instant, Instant, Vec<Deadline>)> = VecDeque::new();
        let (mut in_time, mut served) = (0, 0);
        for _ in 0..2_000 {
            let now = Instant::now();
            while arrived <= now {
                arrived += MILLI / 15;
                queue.push_back(Deadline { instant: arrived + 100 * MILLI, timeout: 100 * MILLI });
            }
            while in_flight.len() < 2 && !queue.is_empty() {
                let is_sent = |deadline: &Deadline| !margin.has_passed(*deadline, now);
                let batch: Vec<_> = std::iter::from_fn(|| queue.pop_front()).filter(is_sent).take(BATCH).collect();
                let begins_at = in_flight.back().map_or(now, |(ends_at, ..)| *ends_at);
                let time = MILLI / 10 * u32::try_from(batch.len()).expect("few");
                if !batch.is_empty() {
                    in_flight.push_back((begins_at + time, now, batch));
                }
            }
            let Some((ends_at, sent_at, batch)) = in_flight.pop_front() else { break };
            advance(ends_at - now).await;
            served += batch.len();
            in_time += batch.iter().filter(|deadline| deadline.instant >= ends_at).count();
            let is_missed = batch.last().is_some_and(|youngest| youngest.instant < ends_at);
            if !is_fixed {
                margin.record(batch[0], sent_at, (!is_missed).then_some(ends_at));
            }
        }
        in_time as f64 / served as f64
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_server_works_for_calls_that_still_wait() {
        let [without, with] = [share_in_time(true).await, share_in_time(false).await];
        assert!(without < 0.25 && with > 0.9, "{without} {with}");
    }
}
