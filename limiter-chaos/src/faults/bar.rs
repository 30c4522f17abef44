//! The bars of a row, and the check of its report against them.

use std::fmt;
use std::time::Duration;

use super::{FullestWindow, Row, RowReport, WorkloadReport};

/// The bars of a row, for every machine.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Permits that may be admitted beyond an algorithm's bound in any window, in multiples of the limit.
    pub excess_windows: u32,
    /// The longest time from the repair until the store alone decides again.
    pub max_recovery: Duration,
    /// True if the standby limiter must admit calls during the fault. If it does not, the fault had no effect.
    pub needs_standby: bool,
}

/// A bar that was missed, with the figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss(pub String);

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The allowance for a slow machine.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// The time that a call may take beyond its deadline.
    pub slack: Duration,
    /// The number of calls that the standby limiter may admit without need, each because its reply was late.
    pub relapses: usize,
}

/// The misses of a row, in the order of their checks.
#[derive(Debug, Default)]
struct Misses(Vec<Miss>);

impl Misses {
    fn require(&mut self, is_met: bool, miss: impl FnOnce() -> String) {
        if !is_met {
            self.0.push(Miss(miss()));
        }
    }
}

impl Row {
    /// Returns all bars that the row missed.
    #[must_use]
    pub fn misses(&self, report: &RowReport, allowed: &Allowance) -> Vec<Miss> {
        [self.unsafe_outcomes(report), self.slow_outcomes(report, allowed), (self.extra_check)(report)].concat()
    }

    /// Returns the missed bars that hold on every machine, however busy.
    #[must_use]
    pub fn unsafe_outcomes(&self, report: &RowReport) -> Vec<Miss> {
        let mut misses = Misses::default();
        for workload in &report.workloads {
            for fullest in &workload.fullest {
                let (excess, max_excess) = (fullest.excess(), self.max_excess(workload, fullest));
                misses.require(excess <= max_excess, || {
                    let FullestWindow { windows, permits, bound } = fullest;
                    format!(
                        "{}: {permits} permits of {bound} in a window ({windows:?}), at most {max_excess} more allowed",
                        workload.name
                    )
                });
            }
            misses.require(workload.uncounted == 0, || {
                format!("{}: {} calls had no decision", workload.name, workload.uncounted)
            });
            let WorkloadReport { name, by_lease, .. } = *workload;
            misses.require(!self.leases || by_lease > 0, || format!("{name}: leases admitted no call"));
        }
        misses.require(report.has_recovered, || "the store never decided again".to_owned());
        let by_standby: usize = report.workloads.iter().map(|workload| workload.by_standby).sum();
        misses.require(!self.bar.needs_standby || by_standby > 0, || {
            "the standby limiter admitted no call: the fault had no effect".to_owned()
        });
        let attempts = report.max_concurrent_attempts.unwrap_or_default();
        misses.require(attempts <= 1, || format!("{attempts} concurrent connection attempts"));
        misses.0
    }

    /// Returns the missed bars that hold only on a machine that is not busy.
    fn slow_outcomes(&self, report: &RowReport, allowed: &Allowance) -> Vec<Miss> {
        let mut misses = Misses::default();
        let longest_allowed = report.deadline + allowed.slack;
        for workload in &report.workloads {
            let WorkloadReport { name, longest_without_stalls: longest, relapses, .. } = *workload;
            misses.require(longest <= longest_allowed, || {
                format!("{name}: a call took {longest:.1?}, at most {longest_allowed:?} allowed")
            });
            let WorkloadReport { by_lease, by_store, .. } = *workload;
            misses.require(!self.leases || 3 * by_lease > by_store, || {
                format!("{name}: leases admitted {by_lease} calls, and script calls {by_store}")
            });
            let (recovery, max_recovery) = (workload.recovery, self.bar.max_recovery);
            misses.require(recovery.is_none_or(|recovery| recovery <= max_recovery), || {
                format!("{name}: recovery took {:.1?}, at most {max_recovery:?} allowed", recovery.unwrap_or_default())
            });
            misses.require(recovery.is_some(), || format!("{name}: the store never decided alone again"));
            misses.require(relapses <= allowed.relapses, || {
                format!("{name}: {relapses} relapses, at most {} allowed", allowed.relapses)
            });
            let WorkloadReport { share_before, share_during, share_after, min_share, .. } = *workload;
            for (share, when) in [
                (share_before, "before the fault"),
                (share_during, "during the fault"),
                (share_after, "after the recovery"),
            ] {
                let percent = share * 100.0;
                misses.require(share >= min_share, || format!("{name}: {percent:.1} % of the limit was used {when}"));
            }
            let by_standby = workload.standby_during_fault;
            misses.require(self.bar.needs_standby || by_standby <= allowed.relapses, || {
                format!("{name}: the standby limiter admitted {by_standby} calls during the fault")
            });
        }
        misses.0
    }

    /// Returns the number of permits that may be admitted beyond the bound of one window.
    pub(super) fn max_excess(&self, workload: &WorkloadReport, fullest: &FullestWindow) -> u64 {
        // The standby limiters of several processes are not coordinated.
        let others = if workload.by_standby == 0 { 0 } else { u64::from(self.processes) - 1 };
        let uncoordinated = if self.instances == 1 { others * fullest.bound } else { 0 };
        u64::from(self.bar.excess_windows) * u64::from(workload.max) + uncoordinated
    }
}
