//! The bounds of what is sent to a server whose replies come too late: smaller batches, of calls that have time for a reply.

use std::cell::Cell;

use tokio::time::Instant;

use super::call::Deadline;

/// The part of its time that a call must have left when it is sent to one server, and the entries of a batch.
///
/// A server that gets more calls than it can run makes them wait in their queue, in the order in which they came, up to
/// their deadlines. If each were sent as long as it has any time left, nearly every reply would come too late, and the
/// server would work for nothing, also long after the cause has ended. So late replies double this part, up to half of the
/// time, and many replies in time reduce it slowly. A call that has not waited is always sent.
///
/// Batches of many processes wait in the server too, each behind those of the others. So late replies also halve the entries
/// of a batch, and each reply in time adds one. A reply in time after which no call waits undoes half of both: the server
/// runs what comes.
pub(super) struct SendMargin {
    /// The part, in 128ths of the time.
    part: Cell<u32>,
    most_entries: Cell<usize>,
    /// Replies in time since the part was changed.
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
/// Entries that are sent at a time: the server serves no other client meanwhile.
const MAX_ENTRIES: usize = 128;

impl Default for SendMargin {
    fn default() -> Self {
        Self {
            part: Cell::default(),
            most_entries: Cell::new(MAX_ENTRIES),
            replies: Cell::default(),
            raised_at: Cell::default(),
        }
    }
}

impl SendMargin {
    /// Returns whether a call has too little time left to be sent now.
    pub(super) fn has_passed(&self, deadline: Deadline, now: Instant) -> bool {
        let margin = match self.part.get() {
            0 => return now >= deadline.instant,
            part => deadline.timeout / PARTS * part,
        };
        now + margin >= deadline.instant
    }

    /// The entries that may be sent at a time.
    pub(super) fn most_entries(&self) -> usize {
        self.most_entries.get()
    }

    /// Records the reply to a batch that was sent at this time and whose oldest call has this deadline. `None` if it did
    /// not come in time for any of its calls. Of late replies to batches in flight at the same time one counts.
    pub(super) fn record(
        &self,
        deadline: Deadline,
        sent_at: Instant,
        replied_at: Option<Instant>,
        has_waiting_calls: bool,
    ) {
        let (part, entries) = (self.part.get(), self.most_entries.get());
        if replied_at.is_none_or(|at| at > deadline.instant) {
            if self.raised_at.get().is_none_or(|at| sent_at >= at) {
                self.set((part * 2).clamp(FIRST_PART, MAX_PART), (entries / 2).max(1));
                self.raised_at.set(Some(Instant::now()));
            }
        } else if !has_waiting_calls && (part > 0 || entries < MAX_ENTRIES) {
            self.set(part / 2, (entries * 2).min(MAX_ENTRIES));
        } else if part > 0 || entries < MAX_ENTRIES {
            self.most_entries.set((entries + 1).min(MAX_ENTRIES));
            self.replies.set(self.replies.get() + 1);
            if self.replies.get() == REPLIES {
                self.set(part.saturating_sub(1), self.most_entries.get());
            }
        }
    }

    fn set(&self, part: u32, most_entries: usize) {
        self.part.set(part);
        self.most_entries.set(most_entries);
        self.replies.set(0);
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
        let late = || margin.record(Deadline::after(128 * MILLI), Instant::now(), None, true);
        let in_time = || margin.record(Deadline::after(128 * MILLI), Instant::now(), Some(Instant::now()), true);
        assert_eq!(millis(&margin), 0);
        (0..REPLIES * 2).for_each(|_| in_time());
        assert_eq!((millis(&margin), margin.most_entries()), (0, 128));
        let doubled: Vec<_> = (0..8)
            .map(|_| {
                late();
                (millis(&margin), margin.most_entries())
            })
            .collect();
        assert_eq!(doubled, [(4, 64), (8, 32), (16, 16), (32, 8), (64, 4), (64, 2), (64, 1), (64, 1)]);
        (0..REPLIES - 1).for_each(|_| in_time());
        assert_eq!((millis(&margin), margin.most_entries()), (64, 128));
        in_time();
        assert_eq!(millis(&margin), 63);
        (0..63 * REPLIES).for_each(|_| in_time());
        assert_eq!(millis(&margin), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_in_time_after_which_no_call_waits_undoes_half() {
        let margin = SendMargin::default();
        (0..8).for_each(|_| margin.record(Deadline::after(128 * MILLI), Instant::now(), None, false));
        let undone: Vec<_> = (0..8)
            .map(|_| {
                margin.record(Deadline::after(128 * MILLI), Instant::now(), Some(Instant::now()), false);
                (millis(&margin), margin.most_entries())
            })
            .collect();
        let all = [(32, 2), (16, 4), (8, 8), (4, 16), (2, 32), (1, 64), (0, 128), (0, 128)];
        assert_eq!(undone, all);
    }

    #[tokio::test(start_paused = true)]
    async fn of_batches_in_flight_at_the_same_time_one_late_reply_counts() {
        let (margin, deadline, sent_at) = (SendMargin::default(), Deadline::after(128 * MILLI), Instant::now());
        advance(130 * MILLI).await;
        margin.record(deadline, sent_at, None, true);
        // It came in time for its youngest calls alone.
        margin.record(deadline, sent_at + MILLI, Some(Instant::now()), true);
        assert_eq!(millis(&margin), 4);
        margin.record(deadline, Instant::now(), Some(Instant::now()), true);
        assert_eq!(millis(&margin), 8);
    }

    /// The calls of one process.
    struct CallingProcess {
        margin: SendMargin,
        waiting: VecDeque<Deadline>,
        arrived: Instant,
        in_flight: usize,
    }

    /// Returns the share of a server's work whose replies come in time, if more calls come than it can run, each of which takes
    /// it so long. `is_fixed` if the processes learn nothing from late replies.
    async fn share_in_time(processes: u32, load: f64, entry_time: Duration, is_fixed: bool) -> f64 {
        const TIMEOUT: Duration = Duration::from_millis(100);
        let (pause, begun) = (entry_time.mul_f64(f64::from(processes) / load), Instant::now());
        let new =
            || CallingProcess { margin: SendMargin::default(), waiting: VecDeque::new(), arrived: begun, in_flight: 0 };
        let mut all: Vec<_> = (0..processes).map(|_| new()).collect();
        let mut server: VecDeque<(usize, Instant, Vec<Deadline>)> = VecDeque::new();
        let (mut in_time, mut served) = (0_usize, 0);
        while begun.elapsed() < Duration::from_secs(10) {
            let now = Instant::now();
            for (number, process) in all.iter_mut().enumerate() {
                while process.arrived <= now {
                    process.waiting.push_back(Deadline { instant: process.arrived + TIMEOUT, timeout: TIMEOUT });
                    process.arrived += pause;
                }
                while process.in_flight < 2 && !process.waiting.is_empty() {
                    let CallingProcess { margin, waiting, .. } = process;
                    let is_sent = |deadline: &Deadline| !margin.has_passed(*deadline, now);
                    let taken = std::iter::from_fn(|| waiting.pop_front()).filter(is_sent);
                    let batch: Vec<_> = taken.take(margin.most_entries()).collect();
                    if !batch.is_empty() {
                        process.in_flight += 1;
                        server.push_back((number, now, batch));
                    }
                }
            }
            let Some((number, sent_at, batch)) = server.pop_front() else {
                advance(pause).await;
                continue;
            };
            advance(entry_time * u32::try_from(batch.len()).expect("few")).await;
            let now = Instant::now();
            served += batch.len();
            in_time += batch.iter().filter(|deadline| deadline.instant >= now).count();
            let is_missed = batch.last().is_some_and(|youngest| youngest.instant < now);
            let process = &mut all[number];
            process.in_flight -= 1;
            if !is_fixed {
                let replied_at = (!is_missed).then_some(now);
                process.margin.record(batch[0], sent_at, replied_at, !process.waiting.is_empty());
            }
        }
        in_time as f64 / served as f64
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_server_works_for_calls_that_still_wait() {
        for (processes, load, micros) in [(1, 1.5, 100), (1, 1.05, 100), (60, 1.3, 5), (100, 3.0, 5)] {
            let time = Duration::from_micros(micros);
            let without = share_in_time(processes, load, time, true).await;
            let with = share_in_time(processes, load, time, false).await;
            assert!(without < 0.25 && with > 0.85, "{processes} processes, load {load}: {without} {with}");
        }
    }
}
