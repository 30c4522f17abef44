//! The runs of a log.
//!
//! Most calls read only the newest run and the offset of the oldest. Both are stored inline, since a pointer is what these
//! calls would wait for. A log of one run, that of a key used in one millisecond, allocates nothing.

use std::collections::VecDeque;

/// A run: its offset, and the running total of permits.
///
/// Totals and their differences are modulo 2^32: the permits used never exceed a `u32`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// The time after the base, in units.
    pub(super) offset: u32,
    /// The permits taken up to and including this run.
    pub(super) total: u32,
}

/// The runs of a log, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// All runs but the newest.
    older: VecDeque<Run>,
    newest: Option<Run>,
    /// The offset of the oldest run, if there is one.
    oldest_offset: u32,
}

impl Runs {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.older.len() + usize::from(self.newest.is_some())
    }

    #[inline]
    pub(super) fn newest(&self) -> Option<Run> {
        self.newest
    }

    /// Returns the newest run, for changing its total, and the offset of the oldest.
    #[inline]
    pub(super) fn ends(&mut self) -> Option<(&mut Run, u32)> {
        self.newest.as_mut().map(|newest| (newest, self.oldest_offset))
    }

    /// Returns the run at an index, which must be in range.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Run {
        self.older.get(index).copied().or(self.newest).unwrap_or_default()
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<Run> {
        self.newest.map(|_| self.get(0))
    }

    pub(super) fn push(&mut self, run: Run) {
        match self.newest.replace(run) {
            Some(newest) => self.older.push_back(newest),
            None => self.oldest_offset = run.offset,
        }
    }

    pub(super) fn replace_newest(&mut self, run: Run) {
        self.newest = Some(run);
        self.update_oldest_offset();
    }

    /// Returns the number of the oldest runs that have expired, and the total up to the last of them. The newest run must
    /// be live. `None` if no run has expired.
    #[inline]
    pub(super) fn expired(&self, is_expired: impl Fn(Run) -> bool) -> Option<(usize, u32)> {
        let expired = self.older.iter().take_while(|run| is_expired(**run));
        // A search from the oldest run: most calls find one or two.
        (1..).zip(expired).last().map(|(count, run)| (count, run.total))
    }

    /// Drops the `count` oldest runs.
    pub(super) fn drop_oldest(&mut self, count: usize) {
        if count > self.older.len() {
            self.newest = None;
        }
        if count == 1 {
            // Most calls drop one run, which takes less time than a drain.
            self.older.pop_front();
        } else {
            self.older.drain(..count.min(self.older.len()));
        }
        self.update_oldest_offset();
    }

    pub(super) fn remove(&mut self, index: usize) {
        if self.older.remove(index).is_none() {
            self.newest = self.older.pop_back();
        }
        self.update_oldest_offset();
    }

    /// Subtracts permits from the totals of a run and all later ones.
    pub(super) fn subtract_from(&mut self, index: usize, permits: u32) {
        for run in self.older.iter_mut().chain(&mut self.newest).skip(index) {
            run.total = run.total.wrapping_sub(permits);
        }
    }

    /// Subtracts units from all offsets; at most the offset of the oldest run.
    pub(super) fn rebase(&mut self, by: u32) {
        for run in self.older.iter_mut().chain(&mut self.newest) {
            run.offset -= by;
        }
        self.update_oldest_offset();
    }

    fn update_oldest_offset(&mut self) {
        self.oldest_offset = self.get(0).offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_updates_the_oldest_offset() {
        type Change = fn(&mut Runs);
        let changes: [(&str, Change); 6] = [
            ("no change", |_| {}),
            ("the oldest is dropped", |runs| runs.drop_oldest(1)),
            ("all are dropped and one is added", |runs| {
                runs.drop_oldest(runs.len());
                runs.push(Run { offset: 9, total: 9 });
            }),
            ("one is removed", |runs| runs.remove(0)),
            ("the newest moves up", |runs| runs.replace_newest(Run { offset: 8, total: 8 })),
            ("the base moves", |runs| runs.rebase(1)),
        ];
        for count in 1..4 {
            for (name, change) in changes {
                let mut runs = Runs::default();
                (1..=count).for_each(|number| runs.push(Run { offset: number, total: number }));
                change(&mut runs);
                let oldest = runs.oldest().map(|run| run.offset);
                assert_eq!(runs.ends().map(|(_, first)| first), oldest, "{name}, of {count}");
            }
        }
    }
}
