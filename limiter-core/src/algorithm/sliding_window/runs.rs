//! The runs of a log. Most calls look at the newest, and at when the oldest was: that is at hand, where the rest is
//! behind a pointer, and a log of one run needs no heap.

use std::collections::VecDeque;

/// Totals and their differences are modulo 2^32: what is used never exceeds a `max`, which is a `u32`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Units after the base.
    pub(super) offset: u32,
    /// Permits taken up to and with this run.
    pub(super) total: u32,
}

/// In the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// All but the newest.
    older: VecDeque<Run>,
    newest: Option<Run>,
    /// The offset of the oldest, if there is any.
    first: u32,
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

    /// The newest, to take permits with, and the offset of the oldest.
    #[inline]
    pub(super) fn ends(&mut self) -> Option<(&mut Run, u32)> {
        self.newest.as_mut().map(|newest| (newest, self.first))
    }

    /// The run at a place that there is.
    #[inline]
    pub(super) fn at(&self, index: usize) -> Run {
        self.older.get(index).copied().or(self.newest).unwrap_or_default()
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<Run> {
        self.newest.map(|_| self.at(0))
    }

    pub(super) fn push(&mut self, run: Run) {
        match self.newest.replace(run) {
            Some(newest) => self.older.push_back(newest),
            None => self.first = run.offset,
        }
    }

    pub(super) fn replace_newest(&mut self, run: Run) {
        self.newest = Some(run);
        self.settle();
    }

    /// Drops the oldest so many.
    pub(super) fn drop_oldest(&mut self, count: usize) {
        if count > self.older.len() {
            self.newest = None;
        }
        self.older.drain(..count.min(self.older.len()));
        self.settle();
    }

    pub(super) fn remove(&mut self, index: usize) {
        if self.older.remove(index).is_none() {
            self.newest = self.older.pop_back();
        }
        self.settle();
    }

    /// Takes permits off the totals from a run on.
    pub(super) fn lower_from(&mut self, index: usize, permits: u32) {
        for run in self.older.iter_mut().chain(&mut self.newest).skip(index) {
            run.total = run.total.wrapping_sub(permits);
        }
    }

    /// Takes units off all offsets: as many as the oldest has, at most.
    pub(super) fn rebase(&mut self, by: u32) {
        for run in self.older.iter_mut().chain(&mut self.newest) {
            run.offset -= by;
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.first = self.at(0).offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is at hand is what a list of all of them says.
    #[test]
    fn the_oldest_is_known_whatever_happens() {
        type Change = fn(&mut Runs);
        let changes: [(&str, Change); 6] = [
            ("nothing", |_| {}),
            ("the oldest leave", |runs| runs.drop_oldest(1)),
            ("all leave and one comes", |runs| {
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
