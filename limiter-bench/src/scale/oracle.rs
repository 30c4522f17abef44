//! A check that no window of sampled keys had more permits than its limit.

use std::time::Duration;

use limiter_testkit::history::{Admission, feasible, fullest_window};

use super::{is_hot, limit_of};
use crate::contestant::{Failure, failed};

/// The ranks of which some are sampled. Of less frequent users a run makes few calls.
const SAMPLED_RANKS: u32 = 3_000_000;
/// One of so many of these ranks is sampled, and every frequent user.
const SAMPLED_SHARE: u32 = 64;

/// The admissions of sampled keys.
#[derive(Debug, Default)]
pub(super) struct SampledKeys {
    admissions: Vec<Sampled>,
}

/// An admission in 12 bytes: there are millions.
#[derive(Debug, Clone, Copy)]
struct Sampled {
    rank: u32,
    sent_us: u32,
    took_us: u32,
}

/// The result of the check.
#[derive(Debug, Clone, Default)]
pub struct SampledWindows {
    /// The keys that were admitted at least once.
    pub keys: usize,
    /// The admissions.
    pub admissions: usize,
    /// The keys that used all permits of some window.
    pub full: usize,
    /// A line for each key with too many permits in some window.
    pub violations: Vec<String>,
}

impl SampledKeys {
    /// Records that a call was admitted between two instants, if its key is sampled.
    pub(super) fn admit(&mut self, rank: u32, sent: Duration, replied: Duration) {
        if !is_sampled(rank) {
            return;
        }
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        // Rounded outwards, so that no rounding could look like an excess.
        let sent_us = micros(sent);
        self.admissions.push(Sampled { rank, sent_us, took_us: (micros(replied) + 1).saturating_sub(sent_us) });
    }

    /// Checks each key under its limit in that window.
    ///
    /// # Errors
    ///
    /// The window is no limit's.
    pub(super) fn check(mut self, window: Duration) -> Result<SampledWindows, Failure> {
        self.admissions.sort_by_key(|call| call.rank); // those of a key stay in order
        let mut windows = SampledWindows { admissions: self.admissions.len(), ..SampledWindows::default() };
        for calls in self.admissions.chunk_by(|a, b| a.rank == b.rank) {
            let (rank, max) = (calls[0].rank, limit_of(calls[0].rank, window).map_err(failed)?.max());
            let calls: Vec<_> = calls.iter().map(Sampled::admission).collect();
            windows.keys += 1;
            windows.full += usize::from(fullest_window(&calls, window).1 >= u64::from(max) * 99 / 100);
            if let Err(violation) = feasible(&calls, window, max) {
                windows.violations.push(format!("user of rank {rank}: {violation}"));
            }
        }
        Ok(windows)
    }
}

impl Sampled {
    fn admission(&self) -> Admission {
        let start = Duration::from_micros(self.sent_us.into());
        Admission { start, end: start + Duration::from_micros(self.took_us.into()), cost: 1 }
    }
}

fn is_sampled(rank: u32) -> bool {
    is_hot(rank) || rank <= SAMPLED_RANKS && rank.is_multiple_of(SAMPLED_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::ORDINARY_MAX;

    /// One admission more than the limit in a window is found, and one a window later is none.
    #[test]
    fn an_admission_too_many_is_found() {
        let (window, rank) = (Duration::from_secs(10), SAMPLED_SHARE * 1_000);
        let at =
            |sampled: &mut SampledKeys, time: Duration| sampled.admit(rank, time, time + Duration::from_micros(300));
        let run = |last: Duration| {
            let mut sampled = SampledKeys::default();
            for call in 0..ORDINARY_MAX {
                at(&mut sampled, Duration::from_millis(call.into()));
            }
            at(&mut sampled, last);
            sampled.check(window).expect("a window")
        };
        let kept = run(window);
        assert_eq!((kept.keys, kept.full, kept.admissions), (1, 1, ORDINARY_MAX as usize + 1));
        assert!(kept.violations.is_empty(), "{kept:?}");
        assert_eq!(run(window / 2).violations.len(), 1);
    }

    #[test]
    fn keys_outside_of_the_sample_are_not_kept() {
        let mut sampled = SampledKeys::default();
        for rank in [SAMPLED_SHARE * 1_000 + 1, SAMPLED_RANKS + SAMPLED_SHARE] {
            sampled.admit(rank, Duration::ZERO, Duration::ZERO);
        }
        assert!(sampled.admissions.is_empty());
    }
}
