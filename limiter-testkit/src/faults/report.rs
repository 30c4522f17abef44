//! What a run's calls say about its limiter.

use std::time::Duration;

use super::{By, Call, stalls};
use crate::history::{feasible, most_certain};

/// One row's run, judged by what its callers saw.
#[derive(Debug, Clone)]
pub struct Report {
    /// What the limiter had for each call.
    pub deadline: Duration,
    /// What the limit allowed in a window.
    pub max: u32,
    /// How many calls there were.
    pub calls: usize,
    /// The longest of them.
    pub longest: Duration,
    /// The longest without the time in which the machine itself stood still, so that a thread that slept was not woken.
    pub longest_on_a_running_machine: Duration,
    /// The most permits beyond the limit that some window of the whole run held for certain, whenever in its interval
    /// each call was decided.
    pub over: u64,
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
    /// Calls with an error, or decided by no count.
    pub by_nobody: usize,
    /// Connections that were tried from the fault until the end, where there was a proxy to count them.
    pub attempts: Option<u64>,
    /// How many of them at one moment.
    pub most_attempts: Option<usize>,
}

/// How long the store must decide before it is back. What fails after that has not failed for the fault.
const FOR_A_WHILE: Duration = Duration::from_millis(500);

/// What a report is made from; instants are since the run began.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) calls: &'a [Call],
    pub(super) stalls: &'a [(Duration, Duration)],
    pub(super) deadline: Duration,
    pub(super) max: u32,
    pub(super) window: Duration,
    pub(super) broken: Duration,
    pub(super) mended: Duration,
    pub(super) ended: Duration,
    pub(super) attempts: Option<u64>,
    pub(super) most_attempts: Option<usize>,
}

impl Record<'_> {
    pub(super) fn report(&self) -> Report {
        let net = |call: &Call| call.took() - stalls::within(self.stalls, call.start, call.end);
        let whole_windows = |from: Duration, to: Duration| {
            let count = to.saturating_sub(from).as_nanos() / self.window.as_nanos();
            let count = u32::try_from(count).expect("a short run").max(1);
            (to.saturating_sub(self.window * count), to)
        };
        // A window after it is back what was taken meanwhile counts no more.
        let settled = self.mended + self.back().unwrap_or_default() + self.window;
        Report {
            deadline: self.deadline,
            max: self.max,
            calls: self.calls.len(),
            longest: self.calls.iter().map(Call::took).max().unwrap_or_default(),
            longest_on_a_running_machine: self.calls.iter().map(net).max().unwrap_or_default(),
            over: self.over(),
            share_before: self.share(whole_windows(Duration::ZERO, self.broken)),
            share_meanwhile: self.share((self.broken, self.mended)),
            share_after: self.share(whole_windows(settled, self.ended)),
            back: self.back(),
            relapses: self.relapses(),
            alone: self.since_mended(|call| call.by != By::Store),
            meanwhile_by_standby: self.answered_late(self.broken, self.mended),
            by_nobody: self.calls.iter().filter(|call| call.by == By::Nobody).count(),
            attempts: self.attempts,
            most_attempts: self.most_attempts,
        }
    }

    fn over(&self) -> u64 {
        let admissions: Vec<_> = self.calls.iter().filter_map(Call::admission).collect();
        let beyond = most_certain(&admissions, self.window).saturating_sub(self.max.into());
        // The count is of calls wholly within a window. Others may be too many by their order.
        let too_many = feasible(&admissions, self.window, self.max).is_err();
        beyond.max(too_many.into())
    }

    /// The admitted part of what the limit allows in a stretch of time.
    fn share(&self, (from, to): (Duration, Duration)) -> f64 {
        let admitted = self.calls.iter().filter(|call| call.admitted && (from..to).contains(&call.end)).count();
        let allowed = f64::from(self.max) * (to - from).as_secs_f64() / self.window.as_secs_f64();
        if allowed > 0.0 { f64::from(u32::try_from(admitted).expect("a short run")) / allowed } else { 1.0 }
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
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// A permit in a tenth of a second, a fault from 1 s to 2 s.
    fn report(calls: &[(u32, bool, By)], stalls: &[(Duration, Duration)]) -> Report {
        let call = |&(end, admitted, by)| Call { start: MILLI * (end - 1), end: MILLI * end, admitted, by };
        let record = Record {
            calls: &calls.iter().map(call).collect::<Vec<_>>(),
            stalls,
            deadline: MILLI,
            max: 1,
            window: MILLI * 100,
            broken: MILLI * 1_000,
            mended: MILLI * 2_000,
            ended: MILLI * 4_000,
            attempts: None,
            most_attempts: None,
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
        assert_eq!((seen.meanwhile_by_standby, seen.relapses, seen.by_nobody, seen.over), (1, 0, 0, 0));
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
        assert_eq!(report(&calls, &[]).over, 2);
        // 100 ms apart, less the calls' own durations: no window need hold both.
        let calls: Vec<_> = [100, 200].map(|end| (end, true, By::Store)).into();
        assert_eq!(report(&calls, &[]).over, 0);
    }

    #[test]
    fn the_used_part_is_of_whole_windows() {
        let calls: Vec<_> = (0..20).map(|turn| (turn * 50 + 1, turn % 4 == 0, By::Store)).collect();
        let report = report(&calls, &[]);
        assert_eq!((report.share_before, report.share_meanwhile), (0.5, 0.0));
    }
}
