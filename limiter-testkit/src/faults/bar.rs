//! What a row must keep to.

use std::fmt;
use std::time::Duration;

use super::{Fullest, Report, Row, RowReport};

/// What a row must keep to, whatever the machine.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Windows' worths of permits beyond an algorithm's bound, in any window.
    pub over: u32,
    /// From the moment at which it is mended until the store decides alone what is let in.
    pub back: Duration,
    /// Whether the stand-in has to let calls in meanwhile: else the fault was none.
    pub stands_in: bool,
}

/// What was not kept to.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss(pub String);

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a machine may add to what a limiter does.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// What a call may take beyond its deadline.
    pub slack: Duration,
    /// Calls that the stand-in may let in where it need not: each of them was not answered in time.
    pub relapses: usize,
}

/// The misses of a row, as they are found.
#[derive(Debug, Default)]
struct Misses(Vec<Miss>);

impl Misses {
    fn keep(&mut self, kept: bool, miss: impl FnOnce() -> String) {
        if !kept {
            self.0.push(Miss(miss()));
        }
    }
}

impl Row {
    /// Where the row fell short.
    #[must_use]
    pub fn misses(&self, report: &RowReport, allowed: &Allowance) -> Vec<Miss> {
        [self.unsafe_outcomes(report), self.slow_outcomes(report, allowed), (self.judge)(report)].concat()
    }

    /// Where the row fell short of what holds on every machine, however busy.
    #[must_use]
    pub fn unsafe_outcomes(&self, report: &RowReport) -> Vec<Miss> {
        let mut misses = Misses::default();
        for subject in &report.subjects {
            for fullest in &subject.fullest {
                let (over, most) = (fullest.over(), self.most_over(subject, fullest));
                misses.keep(over <= most, || {
                    let Fullest { windows, most: held, bound } = fullest;
                    format!(
                        "{}: {held} permits of {bound} in a window ({windows:?}), {most} more at most",
                        subject.name
                    )
                });
            }
            misses.keep(subject.by_nobody == 0, || {
                format!("{}: {} calls had no decision", subject.name, subject.by_nobody)
            });
        }
        misses.keep(report.is_back, || "the store never decided again".to_owned());
        let by_standby: usize = report.subjects.iter().map(|subject| subject.by_standby).sum();
        misses.keep(!self.bar.stands_in || by_standby > 0, || "no stand-in was needed: was that a fault?".to_owned());
        let at_once = report.most_attempts.unwrap_or_default();
        misses.keep(at_once <= 1, || format!("{at_once} connections were tried at once"));
        misses.0
    }

    /// Where the row fell short of what holds on a machine that has time for it.
    fn slow_outcomes(&self, report: &RowReport, allowed: &Allowance) -> Vec<Miss> {
        let mut misses = Misses::default();
        let longest_allowed = report.deadline + allowed.slack;
        for subject in &report.subjects {
            let Report { name, longest_on_a_running_machine: longest, relapses, .. } = *subject;
            misses.keep(longest <= longest_allowed, || {
                format!("{name}: a call took {longest:.1?}, of {longest_allowed:?}")
            });
            let (back, most) = (subject.back, self.bar.back);
            misses.keep(back.is_none_or(|back| back <= most), || {
                format!("{name}: back to exact after {:.1?}, of {most:?}", back.unwrap_or_default())
            });
            misses.keep(back.is_some(), || format!("{name}: the store never decided alone again"));
            misses.keep(relapses <= allowed.relapses, || format!("{name}: the stand-in let {relapses} in after that"));
            let Report { share_before, share_meanwhile, share_after, least_share, .. } = *subject;
            for (share, when) in
                [(share_before, "before it"), (share_meanwhile, "meanwhile"), (share_after, "after it")]
            {
                let percent = share * 100.0;
                misses.keep(share >= least_share, || format!("{name}: {percent:.1} % of the limit was used {when}"));
            }
            let by_standby = subject.meanwhile_by_standby;
            misses.keep(self.bar.stands_in || by_standby <= allowed.relapses, || {
                format!("{name}: the stand-in let {by_standby} in meanwhile")
            });
        }
        misses.0
    }

    /// Permits that may be let in beyond the bound of one window.
    pub(super) fn most_over(&self, subject: &Report, fullest: &Fullest) -> u64 {
        // Processes that stand in for one store do not know of each other.
        let others = if subject.by_standby == 0 { 0 } else { u64::from(self.processes) - 1 };
        let unknown = if self.instances == 1 { others * fullest.bound } else { 0 };
        u64::from(self.bar.over) * u64::from(subject.max) + unknown
    }
}
