//! The judge of a schedule: the permits that are admitted in each window.

use std::collections::VecDeque;

/// The admissions of the last window, and the most permits that any window had.
///
/// Instants are real time. The server's clock runs with it, apart from its steps back, which do not shorten a window.
pub(super) struct Judge {
    window_micros: u64,
    /// The instant of each admission, and its permits that were not refunded.
    admissions: VecDeque<(u64, u64)>,
    /// The admissions that are no longer in the queue.
    removed: usize,
    /// The admissions before the last reset.
    forgotten: usize,
    permits: u64,
    pub(super) most_permits: u64,
}

impl Judge {
    pub(super) fn new(window_micros: u64) -> Self {
        Self { window_micros, admissions: VecDeque::new(), removed: 0, forgotten: 0, permits: 0, most_permits: 0 }
    }

    /// Records an admission at an instant, the latest so far. Returns its number.
    pub(super) fn admit(&mut self, at: u64, permits: u32) -> usize {
        // A window is half open: it begins after the instant that is its length ago.
        while let Some(&(earlier, expired)) = self.admissions.front()
            && earlier + self.window_micros <= at
        {
            self.admissions.pop_front();
            self.permits -= expired;
            self.removed += 1;
        }
        self.admissions.push_back((at, permits.into()));
        self.permits += u64::from(permits);
        self.most_permits = self.most_permits.max(self.permits);
        self.removed + self.admissions.len() - 1
    }

    /// Takes back permits of an admission: from now on they count in no window.
    pub(super) fn refund(&mut self, admission: usize, permits: u32) {
        let admission = admission.checked_sub(self.removed).and_then(|index| self.admissions.get_mut(index));
        if let Some((_, admitted)) = admission {
            *admitted -= u64::from(permits);
            self.permits -= u64::from(permits);
        }
    }

    /// Forgets all admissions.
    pub(super) fn reset(&mut self) {
        self.removed += self.admissions.len();
        self.forgotten = self.removed;
        self.admissions.clear();
        self.permits = 0;
    }

    /// Returns whether an admission was before the last reset.
    pub(super) fn has_forgotten(&self, admission: usize) -> bool {
        admission < self.forgotten
    }
}

#[test]
fn a_window_counts_what_was_neither_refunded_nor_before_a_reset() {
    let mut judge = Judge::new(10);
    let first = judge.admit(0, 3);
    judge.admit(9, 4);
    assert_eq!(judge.most_permits, 7);
    judge.admit(10, 3);
    assert_eq!(judge.most_permits, 7, "the first admission is not in the window");
    judge.refund(first, 3);
    let last = judge.admit(11, 1);
    assert_eq!(judge.most_permits, 8);
    judge.refund(last, 1);
    judge.admit(12, 1);
    assert_eq!(judge.most_permits, 8);
    judge.reset();
    assert!(judge.has_forgotten(last));
    judge.refund(last, 1);
    let later = judge.admit(13, 8);
    assert!(!judge.has_forgotten(later));
    assert_eq!(judge.most_permits, 8);
    judge.admit(13, 1);
    assert_eq!(judge.most_permits, 9);
}
