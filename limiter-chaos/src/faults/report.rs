//! The evaluation of the calls of a run.

use std::time::Duration;

use limiter_testkit::stalls;
use rate_limited::{Algorithm, Limit};

use super::fullest::fullest_windows;
use super::server_windows::Epoch;
use super::workload::Workload;
use super::{Call, DecidedBy, FullestWindow};

/// The results of a row.
#[derive(Debug, Clone)]
pub struct RowReport {
    /// The deadline of each call.
    pub deadline: Duration,
    /// The report of each workload.
    pub workloads: Vec<WorkloadReport>,
    /// True if the store decided again in the end, however long it took.
    pub has_recovered: bool,
    /// The number of connection attempts from the fault until the end, if a proxy counted them.
    pub attempts: Option<u64>,
    /// The greatest number of concurrent attempts.
    pub max_concurrent_attempts: Option<usize>,
}

/// The calls of one workload, evaluated from the callers' side.
#[derive(Debug, Clone)]
pub struct WorkloadReport {
    /// The workload's name.
    pub name: &'static str,
    /// The permits per window of the first limit.
    pub max: u32,
    /// The least share of the limit that must be used.
    pub min_share: f64,
    /// The number of calls.
    pub calls: usize,
    /// The longest call.
    pub longest: Duration,
    /// The longest call without the time in which the whole machine stalled.
    pub longest_without_stalls: Duration,
    /// The fullest window of the whole run for each limit, and for a fixed window also the fullest one of the server's
    /// clock.
    pub fullest: Vec<FullestWindow>,
    /// The share of the limit that was admitted in the last whole windows before the fault.
    pub share_before: f64,
    /// The share of the limit that was admitted during the fault.
    pub share_during: f64,
    /// The share of the limit that was admitted in the last whole windows of the run.
    pub share_after: f64,
    /// The time from the repair until the store admitted a call and the standby limiter admitted none for a while;
    /// `None` if that never happened.
    pub recovery: Option<Duration>,
    /// The calls that the standby limiter admitted after the recovery, because the store's reply was late. Calls during
    /// which the machine stalled for a quarter of their deadline or more are not counted.
    pub relapses: usize,
    /// The time from the repair until the end of the last call that the store did not decide alone.
    pub last_standby_decision: Duration,
    /// The calls that the standby limiter admitted during the fault, without those during a stall of the machine.
    pub standby_during_fault: usize,
    /// The calls that the standby limiter admitted in the whole run, stalls included.
    pub by_standby: usize,
    /// The calls that the store admitted, without those that leases admitted.
    pub by_store: usize,
    /// The calls that leases admitted.
    pub by_lease: usize,
    /// The calls that failed, or that no counter decided.
    pub uncounted: usize,
}

/// The time for which the store must decide alone before it counts as recovered. Later failures do not belong to the
/// fault.
const RECOVERY_CHECK_TIME: Duration = Duration::from_millis(500);

/// The input of a report. Instants are since the run began.
#[derive(Debug)]
pub(super) struct RunRecord<'a> {
    pub(super) workload: &'a Workload,
    pub(super) calls: &'a [Call],
    pub(super) stalls: &'a [(Duration, Duration)],
    pub(super) deadline: Duration,
    /// `None` if the server's clock was stepped.
    pub(super) epoch: Option<Epoch>,
    pub(super) failed_at: Duration,
    pub(super) repaired_at: Duration,
    pub(super) ended_at: Duration,
}

impl RunRecord<'_> {
    pub(super) fn report(&self) -> WorkloadReport {
        let time_without_stalls =
            |call: &Call| call.duration() - stalls::stall_time_between(self.stalls, call.start, call.end);
        let window = self.limit().window();
        // Two windows after the recovery no permit of the outage counts, by any algorithm.
        let settled = self.repaired_at + self.recovery().unwrap_or_default() + 2 * window;
        WorkloadReport {
            name: self.workload.name,
            max: self.limit().max(),
            min_share: self.workload.min_share,
            calls: self.calls.len(),
            longest: self.calls.iter().map(Call::duration).max().unwrap_or_default(),
            longest_without_stalls: self.calls.iter().map(time_without_stalls).max().unwrap_or_default(),
            fullest: fullest_windows(self.workload, self.calls, self.epoch),
            share_before: self.share(Duration::ZERO, self.failed_at),
            share_during: self.share(self.failed_at, self.repaired_at),
            share_after: self.share(settled, self.ended_at),
            recovery: self.recovery(),
            relapses: self.relapses(),
            last_standby_decision: self.last_end_since_repair(|call| !call.is_decided_by_store()),
            standby_during_fault: self.late_admissions(self.failed_at, self.repaired_at),
            by_standby: self.calls_by_standby(Duration::ZERO, Duration::MAX).count(),
            by_store: self.admissions_by(DecidedBy::Store),
            by_lease: self.admissions_by(DecidedBy::Lease),
            uncounted: self.calls.iter().filter(|call| call.decided_by == DecidedBy::NoCounter).count(),
        }
    }

    /// Returns the limit whose figures are reported.
    fn limit(&self) -> &Limit {
        &self.workload.limits[0]
    }

    /// Returns the admitted share of the limit between two instants, or in one window from the first one if they are
    /// closer.
    ///
    /// The share is that of whole windows, one fewer than fit, at the position with the most admissions. Permits of
    /// neighbouring instants expire together, and no stretch should end just before they do. The permits of a fixed
    /// window come at the edges of the server's windows.
    fn share(&self, from: Duration, to: Duration) -> f64 {
        let (limit, window) = (self.limit(), self.limit().window());
        let whole_windows = u32::try_from(to.saturating_sub(from).as_nanos() / window.as_nanos()).expect("a short run");
        let windows = whole_windows.saturating_sub(1).max(1);
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
        let max_admitted = starts.into_iter().map(admitted).max();
        let max_admitted = f64::from(u32::try_from(max_admitted.unwrap_or_default()).expect("a short run"));
        (max_admitted / f64::from(windows * limit.max())).min(1.0)
    }

    fn recovery(&self) -> Option<Duration> {
        let mut by_store: Vec<_> =
            self.calls.iter().filter(|call| call.is_admitted_by_store()).map(|call| call.end).collect();
        by_store.sort();
        let mut by_standby: Vec<_> =
            self.calls_by_standby(self.repaired_at, Duration::MAX).map(|call| call.end).collect();
        by_standby.sort();
        let later = by_store.into_iter().filter(|end| *end >= self.repaired_at);
        let mut stable = later.filter(|end| {
            let next = by_standby.get(by_standby.partition_point(|standby| standby <= end));
            next.is_none_or(|next| *next > *end + RECOVERY_CHECK_TIME)
        });
        stable.next().map(|end| end - self.repaired_at)
    }

    /// Returns the number of calls that this decider admitted.
    fn admissions_by(&self, decider: DecidedBy) -> usize {
        self.calls.iter().filter(|call| call.admitted && call.decided_by == decider).count()
    }

    fn relapses(&self) -> usize {
        self.recovery().map_or(0, |recovery| self.late_admissions(self.repaired_at + recovery, Duration::MAX))
    }

    /// Returns the number of calls that the standby limiter admitted between two instants, without those during a
    /// stall.
    fn late_admissions(&self, from: Duration, to: Duration) -> usize {
        let ran = |call: &&Call| stalls::stall_time_between(self.stalls, call.start, call.end) < self.deadline / 4;
        self.calls_by_standby(from, to).filter(ran).count()
    }

    /// Returns the calls that were admitted without the store between two instants.
    fn calls_by_standby(&self, from: Duration, to: Duration) -> impl Iterator<Item = &Call> {
        let by_standby = self.calls.iter().filter(|call| call.is_admitted_without_store());
        by_standby.filter(move |call| call.end > from && call.end <= to)
    }

    /// Returns the time from the repair until the end of the last matching call, or zero if that ended before.
    fn last_end_since_repair(&self, matches: impl Fn(&Call) -> bool) -> Duration {
        let ends = self.calls.iter().filter(|call| matches(call)).map(|call| call.end);
        ends.max().unwrap_or_default().saturating_sub(self.repaired_at)
    }
}

#[cfg(test)]
mod tests {
    use rate_limited::Key;

    use super::*;
    use crate::faults::WindowKind;

    const MILLI: Duration = Duration::from_millis(1);

    /// Evaluates calls on a limit of one permit per 100 ms, with a fault from 1 s to 2 s.
    fn report(calls: &[(u32, bool, DecidedBy)], stalls: &[(Duration, Duration)]) -> WorkloadReport {
        evaluate(Algorithm::SlidingWindow, calls, stalls)
    }

    fn evaluate(
        algorithm: Algorithm,
        calls: &[(u32, bool, DecidedBy)],
        stalls: &[(Duration, Duration)],
    ) -> WorkloadReport {
        let call = |&(end, admitted, decided_by)| Call {
            start: MILLI * (end - 1),
            end: MILLI * end,
            admitted,
            decided_by,
            key: 0,
        };
        let limit = Limit::new(1, MILLI * 100).expect("a limit").with_algorithm(algorithm);
        let workload = Workload { name: "", keys: vec![Key::new("a")], limits: vec![limit], min_share: 0.95 };
        let record = RunRecord {
            workload: &workload,
            calls: &calls.iter().map(call).collect::<Vec<_>>(),
            stalls,
            deadline: MILLI,
            epoch: None,
            failed_at: MILLI * 1_000,
            repaired_at: MILLI * 2_000,
            ended_at: MILLI * 4_000,
        };
        record.report()
    }

    #[test]
    fn recovery_needs_store_admissions_and_no_standby_admissions() {
        use DecidedBy::{NoCounter, Standby, Store};
        let (recovering, after) =
            ([(2_100, true, Store), (2_300, true, Standby), (2_500, true, Store)], (3_600, false, Standby));
        let seen = report(&[&[(900, true, Store), (1_500, true, Standby)][..], &recovering, &[after]].concat(), &[]);
        assert_eq!((seen.recovery, seen.last_standby_decision), (Some(MILLI * 500), MILLI * 1_600));
        assert_eq!((seen.standby_during_fault, seen.relapses, seen.uncounted, seen.by_standby), (1, 0, 0, 2));
        assert_eq!(seen.fullest, [FullestWindow { windows: WindowKind::Any, permits: 1, bound: 1 }]);
        assert_eq!((seen.by_store, seen.by_lease), (3, 0));
        let never = report(&[(2_100, true, Standby), (2_200, false, NoCounter)], &[]);
        assert_eq!(never.recovery, None);
    }

    #[test]
    fn permits_of_leases_are_those_of_the_store() {
        let seen = report(&[(900, true, DecidedBy::Store), (2_100, true, DecidedBy::Lease)], &[]);
        assert_eq!((seen.recovery, seen.last_standby_decision), (Some(MILLI * 100), Duration::ZERO));
        assert_eq!((seen.by_store, seen.by_lease, seen.by_standby), (1, 1, 0));
    }

    #[test]
    fn an_admission_during_a_stall_is_no_relapse() {
        let calls = [(2_100, true, DecidedBy::Store), (3_000, true, DecidedBy::Standby)];
        assert_eq!(report(&calls, &[]).relapses, 1);
        let stalled = report(&calls, &[(MILLI * 2_990, MILLI * 3_000)]);
        assert_eq!((stalled.relapses, stalled.longest, stalled.longest_without_stalls), (0, MILLI, MILLI));
    }

    #[test]
    fn excess_permits_are_counted() {
        let calls: Vec<_> = [100, 110, 120, 250].map(|end| (end, true, DecidedBy::Store)).into();
        let excess = |algorithm| evaluate(algorithm, &calls, &[]).fullest[0].excess();
        assert_eq!(excess(Algorithm::SlidingWindow), 2);
        assert_eq!((excess(Algorithm::FixedWindow), excess(Algorithm::TokenBucket)), (1, 2));
        // The ends are 100 ms apart, but each call has a duration, so no window certainly contains both.
        let calls: Vec<_> = [100, 200].map(|end| (end, true, DecidedBy::Store)).into();
        assert_eq!(report(&calls, &[]).fullest[0].excess(), 0);
    }

    #[test]
    fn the_used_share_is_of_whole_windows() {
        let calls: Vec<_> = (0..20).map(|turn| (turn * 50 + 1, turn % 4 == 0, DecidedBy::Store)).collect();
        let report = report(&calls, &[]);
        // The share is of nine of the ten windows before the fault, from the first call on.
        assert_eq!((report.share_before, report.share_during), (5.0 / 9.0, 0.0));
    }
}
