//! What a row must keep to.

use std::fmt;
use std::time::Duration;

use super::Report;

/// What a row must keep to, whatever the machine.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Windows' worths of permits beyond the limit, in any window.
    pub over: u32,
    /// From the moment at which it is mended until the store decides alone what is let in.
    pub back: Duration,
    /// Whether the stand-in has to let calls in meanwhile: else the fault was none.
    pub stands_in: bool,
}

/// What was not kept to.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss(pub(super) String);

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
    /// The least part of the limit that must be let in, by whomever: nobody is denied for a fault.
    pub share: f64,
}

impl Bar {
    pub(super) fn most_over(&self, report: &Report) -> u64 {
        u64::from(self.over) * u64::from(report.max)
    }

    /// Where the row fell short.
    #[must_use]
    pub fn misses(&self, report: &Report, allowed: &Allowance) -> Vec<Miss> {
        let mut misses = Vec::new();
        let mut keep = |kept: bool, miss: String| {
            if !kept {
                misses.push(Miss(miss));
            }
        };
        let (longest, most) = (report.longest_on_a_running_machine, report.deadline + allowed.slack);
        keep(longest <= most, format!("a call took {longest:.1?}, of {most:?}"));
        let over = self.most_over(report);
        keep(report.over <= over, format!("{} permits too many in a window, of {over}", report.over));
        match report.back {
            Some(back) => keep(back <= self.back, format!("back to exact after {back:.1?}, of {:?}", self.back)),
            None => keep(false, "the store never decided again".to_owned()),
        }
        let relapses = report.relapses;
        keep(relapses <= allowed.relapses, format!("the stand-in let {relapses} in after that"));
        let Report { share_before, share_meanwhile, share_after, .. } = report;
        for (share, when) in [(share_before, "before it"), (share_meanwhile, "meanwhile"), (share_after, "after it")] {
            keep(*share >= allowed.share, format!("{:.1} % of the limit was used {when}", share * 100.0));
        }
        let by_standby = report.meanwhile_by_standby;
        match self.stands_in {
            true => keep(by_standby > 0, "no stand-in was needed: was that a fault?".to_owned()),
            false => keep(by_standby <= allowed.relapses, format!("the stand-in let {by_standby} in meanwhile")),
        }
        keep(report.by_nobody == 0, format!("{} calls had no decision", report.by_nobody));
        let at_once = report.most_attempts.unwrap_or_default();
        keep(at_once <= 1, format!("{at_once} connections were tried at once"));
        misses
    }
}
