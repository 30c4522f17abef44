//! What a run's calls say about its limiter.

use std::time::Duration;

use rate_limited::{Algorithm, Limit};

use super::fullest::fullest_windows;
use super::server_windows::Epoch;
use super::subject::Subject;
use super::{By, Call, Fullest, stalls};

/// One row's run.
#[derive(Debug, Clone)]
pub struct RowReport {
    /// What the limiter had for each call.
    pub deadline: Duration,
    /// One for each subject.
    pub subjects: Vec<Report>,
    /// Whether the store decided again in the end, however long it took.
    pub is_back: bool,
    /// Connections that were tried from the fault until the end, where there was a proxy to count them.
    pub attempts: Option<u64>,
    /// How many of them at one moment.
    pub most_attempts: Option<usize>,
}

/// The calls of one subject, judged by what the callers saw.
#[derive(Debug, Clone)]
pub struct Report {
    /// The subject's name.
    pub name: &'static str,
    /// What the first limit allowed in a window.
    pub max: u32,
    /// Least part of the limit that has to be used.
    pub least_share: f64,
    /// How many calls there were.
    pub calls: usize,
    /// The longest of them.
    pub longest: Duration,
    /// The longest without the time in which the machine itself stood still, so that a thread that slept was not woken.
    pub longest_on_a_running_machine: Duration,
    /// The fullest window of the whole run for each limit, and the fullest one of the server's clock for a fixed window.
    pub fullest: Vec<Fullest>,
    /// The part of what the limit allows that was let in during the last whole windows before the fault…
    pub share_before: f64,
    /// …while it lasted…
    pub share_meanwhile: f64,
    /// …and in the last whole windows of the run.
    pub share_after: f64,
    /// From the moment at which it was mended until the store let somebody in, and the stand-in nobody for a while.
    pub back: Option<Duration>,
    /// Let in by the stand-in alone after that, because a call had no answer in time; without those during a quarter of
    /// whose deadline, or more, the machine itself stood still.
    pub relapses: usize,
    /// …until the stand-in had no say any more, not even beside the store.
    pub alone: Duration,
    /// Let in by the stand-in alone from the fault until it was mended, although the machine ran.
    pub meanwhile_by_standby: usize,
    /// Let in by the stand-in alone in the whole run, whatever the machine did.
    pub by_standby: usize,
    /// Calls with an error, or decided by no count.
    pub by_nobody: usize,
}

/// How long the store must decide before it is back. What fails after that has not failed for the fault.
const FOR_A_WHILE: Duration = Duration::from_millis(500);

/// What a report is made from; instants are since the run began.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) subject: &'a Subject,
    pub(super) calls: &'a [Call],
    pub(super) stalls: &'a [(Duration, Duration)],
    pub(super) deadline: Duration,
    /// None if the server's clock was stepped.
    pub(super) epoch: Option<Epoch>,
    pub(super) broken: Duration,
    pub(super) mended: Duration,
    pub(super) ended: Duration,
}

impl Record<'_> {
    pub(super) fn report(&self) -> Report {
        let net = |call: &Call| call.took() - stalls::within(self.stalls, call.start, call.end);
        let window = self.limit().window();
        // Two windows after it is back what was taken meanwhile counts no more, by any algorithm.
        let settled = self.mended + self.back().unwrap_or_default() + 2 * window;
        Report {
            name: self.subject.name,
            max: self.limit().max(),
            least_share: self.subject.least_share,
            calls: self.calls.len(),
            longest: self.calls.iter().map(Call::took).max().unwrap_or_default(),
            longest_on_a_running_machine: self.calls.iter().map(net).max().unwrap_or_default(),
            fullest: fullest_windows(self.subject, self.calls, self.epoch),
            share_before: self.share(Duration::ZERO, self.broken),
            share_meanwhile: self.share(self.broken, self.mended),
            share_after: self.share(settled, self.ended),
            back: self.back(),
            relapses: self.relapses(),
            alone: self.since_mended(|call| call.by != By::Store),
            meanwhile_by_standby: self.answered_late(self.broken, self.mended),
            by_standby: self.calls_by_standby(Duration::ZERO, Duration::MAX).count(),
            by_nobody: self.calls.iter().filter(|call| call.by == By::Nobody).count(),
        }
    }

    /// The limit that the figures are of.
    fn limit(&self) -> &Limit {
        &self.subject.limits[0]
    }

    /// The admitted part of what the limit allows between two instants, or in a window after the first one if there is less time.
    ///
    /// It is that of whole windows, one fewer than there are, and of the best place for them: permits of a moment come back
    /// together, and no stretch of time is to end just before they do. Those of a fixed window come at the edges of the
    /// server's.
    fn share(&self, from: Duration, to: Duration) -> f64 {
        let (limit, window) = (self.limit(), self.limit().window());
        let whole = u32::try_from(to.saturating_sub(from).as_nanos() / window.as_nanos()).expect("a short run");
        let windows = whole.saturating_sub(1).max(1);
        let last = (to.saturating_sub(window * windows)).max(from);
        let mut ends: Vec<_> = self.calls.iter().filter(|call| call.admitted).map(|call| call.end).collect();
        ends.sort();
        let starts = match (limit.algorithm(), self.epoch) {
            (Algorithm::FixedWindow, Some(epoch)) => vec![epoch.next_edge(from, window)],
            _ => {
                let is_early = |end: &&Duration| (from..=last).contains(*end);
                [from].iter().chain(ends.iter().filter(is_early)).copied().collect()
            }
        };
        let admitted = |start: Duration| {
            let before = |instant: Duration| ends.partition_point(|end| *end < instant);
            before(start + window * windows) - before(start)
        };
        let most = starts.into_iter().map(admitted).max();
        let most = f64::from(u32::try_from(most.unwrap_or_default()).expect("a short run"));
        (most / f64::from(windows * limit.max())).min(1.0)
    }

    fn back(&self) -> Option<Duration> {
        let mut by_store: Vec<_> =
            self.calls.iter().filter(|call| call.is_admitted_by_store()).map(|call| call.end).collect();
        by_store.sort();
        let later = by_store.into_iter().filter(|end| *end >= self.mended);
        let mut stays = later.filter(|end| self.calls_by_standby(*end, *end + FOR_A_WHILE).next().is_none());
        stays.next().map(|end| end - self.mended)
    }

    fn relapses(&self) -> usize {
        self.back().map_or(0, |back| self.answered_late(self.mended + back, Duration::MAX))
    }

    /// Let in by the stand-in alone between two instants, although the machine ran.
    fn answered_late(&self, from: Duration, to: Duration) -> usize {
        let ran = |call: &&Call| stalls::within(self.stalls, call.start, call.end) < self.deadline / 4;
        self.calls_by_standby(from, to).filter(ran).count()
    }

    /// Let in by the stand-in alone between two instants.
    fn calls_by_standby(&self, from: Duration, to: Duration) -> impl Iterator<Item = &Call> {
        let by_standby = self.calls.iter().filter(|call| call.is_admitted_by_stand_in());
        by_standby.filter(move |call| call.end > from && call.end <= to)
    }

    /// From the moment at which it was mended until the last such call has ended; nothing if it did before.
    fn since_mended(&self, such: impl Fn(&Call) -> bool) -> Duration {
        let ends = self.calls.iter().filter(|call| such(call)).map(|call| call.end);
        ends.max().unwrap_or_default().saturating_sub(self.mended)
    }
}

#[cfg(test)]
mod tests {
    use rate_limited::Key;

    use super::*;
    use crate::faults::Windows;

    const MILLI: Duration = Duration::from_millis(1);

    /// A permit in a tenth of a second, a fault from 1 s to 2 s.
    fn report(calls: &[(u32, bool, By)], stalls: &[(Duration, Duration)]) -> Report {
        judged(Algorithm::SlidingWindow, calls, stalls)
    }

    fn judged(algorithm: Algorithm, calls: &[(u32, bool, By)], stalls: &[(Duration, Duration)]) -> Report {
        let call = |&(end, admitted, by)| Call { start: MILLI * (end - 1), end: MILLI * end, admitted, by, key: 0 };
        let limit = Limit::new(1, MILLI * 100).expect("a limit").with_algorithm(algorithm);
        let subject = Subject { name: "", keys: vec![Key::new("a")], limits: vec![limit], least_share: 0.95 };
        let record = Record {
            subject: &subject,
            calls: &calls.iter().map(call).collect::<Vec<_>>(),
            stalls,
            deadline: MILLI,
            epoch: None,
            broken: MILLI * 1_000,
            mended: MILLI * 2_000,
            ended: MILLI * 4_000,
        };
        record.report()
    }

    #[test]
    fn it_is_back_when_the_store_lets_in_and_the_stand_in_does_not() {
        use By::{Nobody, Standby, Store};
        let (back, after) =
            ([(2_100, true, Store), (2_300, true, Standby), (2_500, true, Store)], (3_600, false, Standby));
        let seen = report(&[&[(900, true, Store), (1_500, true, Standby)][..], &back, &[after]].concat(), &[]);
        assert_eq!((seen.back, seen.alone), (Some(MILLI * 500), MILLI * 1_600));
        assert_eq!((seen.meanwhile_by_standby, seen.relapses, seen.by_nobody, seen.by_standby), (1, 0, 0, 2));
        assert_eq!(seen.fullest, [Fullest { windows: Windows::Any, most: 1, bound: 1 }]);
        let never = report(&[(2_100, true, Standby), (2_200, false, Nobody)], &[]);
        assert_eq!(never.back, None);
    }

    #[test]
    fn what_the_machine_is_to_blame_for_is_no_relapse() {
        let calls = [(2_100, true, By::Store), (3_000, true, By::Standby)];
        assert_eq!(report(&calls, &[]).relapses, 1);
        let stalled = report(&calls, &[(MILLI * 2_990, MILLI * 3_000)]);
        assert_eq!((stalled.relapses, stalled.longest, stalled.longest_on_a_running_machine), (0, MILLI, MILLI));
    }

    #[test]
    fn permits_too_many_are_counted() {
        let calls: Vec<_> = [100, 110, 120, 250].map(|end| (end, true, By::Store)).into();
        let over = |algorithm| judged(algorithm, &calls, &[]).fullest[0].over();
        assert_eq!(over(Algorithm::SlidingWindow), 2);
        assert_eq!((over(Algorithm::FixedWindow), over(Algorithm::TokenBucket)), (1, 2));
        // 100 ms apart, less the calls' own durations: no window need hold both.
        let calls: Vec<_> = [100, 200].map(|end| (end, true, By::Store)).into();
        assert_eq!(report(&calls, &[]).fullest[0].over(), 0);
    }

    #[test]
    fn the_used_part_is_of_whole_windows() {
        let calls: Vec<_> = (0..20).map(|turn| (turn * 50 + 1, turn % 4 == 0, By::Store)).collect();
        let report = report(&calls, &[]);
        // Nine windows of the ten before it, from the first call on.
        assert_eq!((report.share_before, report.share_meanwhile), (5.0 / 9.0, 0.0));
    }
}
