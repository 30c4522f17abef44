//! The judge of a schedule: the permits that are admitted in each window of one key.
//!
//! Calls may have different `max`. The bound of a window is the `max` of its latest grant. When the store granted those
//! permits, its log counted all permits of earlier grants that were used in the window, or could still be used in it,
//! and the sum was at most that `max`. Later grants have no permits in the window. A bound by the largest `max` would
//! hold as well, and show less.
//!
//! The log counted the charges before that grant too. Those after it are permits beyond the limit, which it cannot know.

use std::collections::VecDeque;

/// A script call that granted permits, to calls at once or as a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// Its number, in the order of the script calls.
    pub(super) number: u64,
    pub(super) max: u32,
}

/// The admissions of the last window, and whether any window had more permits than its bound.
///
/// Instants are real time. The server's clock runs with it, apart from its steps back, which do not shorten a window.
pub(super) struct Judge {
    window_micros: u64,
    /// The instant of each admission, and its permits that were not refunded.
    admissions: VecDeque<(u64, u64)>,
    /// The admissions whose grant is later than those of all admissions behind them.
    latest_grants: VecDeque<(usize, Grant)>,
    /// The admissions that are no longer in the queue.
    removed: usize,
    /// The admissions before the last reset.
    forgotten: usize,
    permits: u64,
    /// The charges of the last window: the instant, the number of the script call and the permits of each.
    charges: VecDeque<(u64, u64, u64)>,
    /// True if a window had more permits than its bound.
    pub(super) is_over: bool,
    /// True if a window had exactly as many.
    pub(super) is_full: bool,
}

impl Judge {
    pub(super) fn new(window_micros: u64) -> Self {
        Self {
            window_micros,
            admissions: VecDeque::new(),
            latest_grants: VecDeque::new(),
            removed: 0,
            forgotten: 0,
            permits: 0,
            charges: VecDeque::new(),
            is_over: false,
            is_full: false,
        }
    }

    /// Records an admission at an instant, the latest so far. Returns its number.
    pub(super) fn admit(&mut self, at: u64, permits: u32, grant: Grant) -> usize {
        // A window is half open: it begins after the instant that is its length ago.
        while let Some(&(earlier, expired)) = self.admissions.front()
            && earlier + self.window_micros <= at
        {
            self.admissions.pop_front();
            self.permits -= expired;
            self.removed += 1;
        }
        let admission = self.removed + self.admissions.len();
        self.admissions.push_back((at, permits.into()));
        self.permits += u64::from(permits);
        while self.latest_grants.pop_front_if(|(earlier, _)| *earlier < self.removed).is_some() {}
        while self.latest_grants.pop_back_if(|(_, earlier)| earlier.number <= grant.number).is_some() {}
        self.latest_grants.push_back((admission, grant));
        while self.charges.pop_front_if(|(earlier, ..)| *earlier + self.window_micros <= at).is_some() {}
        let Some((_, latest)) = self.latest_grants.front() else { return admission };
        let before = self.charges.iter().filter(|(_, number, _)| *number < latest.number);
        let counted = self.permits + before.map(|(.., permits)| permits).sum::<u64>();
        self.is_over |= counted > latest.max.into();
        self.is_full |= counted == u64::from(latest.max);
        admission
    }

    /// Records a charge at an instant, the latest so far, by the script call with this number.
    pub(super) fn charge(&mut self, at: u64, permits: u32, number: u64) {
        self.charges.push_back((at, number, permits.into()));
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
        self.latest_grants.clear();
        self.charges.clear();
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
    let grant = Grant { number: 0, max: 8 };
    let first = judge.admit(0, 3, grant);
    judge.admit(9, 4, grant);
    judge.admit(10, 3, grant);
    assert!(!judge.is_full, "the first admission is not in the window");
    judge.refund(first, 3);
    let last = judge.admit(11, 1, grant);
    assert!(judge.is_full);
    judge.refund(last, 1);
    judge.admit(12, 1, grant);
    judge.reset();
    assert!(judge.has_forgotten(last));
    judge.refund(last, 1);
    let later = judge.admit(13, 8, grant);
    assert!(!judge.has_forgotten(later) && !judge.is_over);
    judge.admit(13, 1, grant);
    assert!(judge.is_over);
}

#[test]
fn the_bound_of_a_window_is_the_max_of_its_latest_grant() {
    let grant = |number, max| Grant { number, max };
    for (admissions, is_over) in [
        // A lease of the first grant is used after the second one, whose limit was smaller.
        (vec![(0, 3, grant(1, 10)), (1, 2, grant(2, 5)), (2, 1, grant(1, 10))], true),
        (vec![(0, 3, grant(1, 10)), (1, 2, grant(2, 5)), (2, 1, grant(3, 6))], false),
        (vec![(0, 5, grant(1, 5)), (1, 5, grant(2, 10))], false),
        (vec![(0, 5, grant(1, 5)), (1, 6, grant(2, 10))], true),
        // The second grant has left the window.
        (vec![(0, 2, grant(2, 5)), (5, 4, grant(1, 10)), (10, 5, grant(1, 10))], true),
        (vec![(0, 1, grant(2, 5)), (5, 4, grant(1, 10)), (10, 5, grant(1, 10))], false),
    ] {
        let mut judge = Judge::new(10);
        for (at, permits, grant) in &admissions {
            judge.admit(*at, *permits, *grant);
        }
        assert_eq!(judge.is_over, is_over, "{admissions:?}");
    }
}

#[test]
fn a_window_counts_the_charges_before_its_latest_grant() {
    let grant = |number| Grant { number, max: 10 };
    for (charged, last_grant, at, is_over) in [(4, 3, 9, false), (5, 3, 9, true), (5, 1, 9, false), (5, 3, 11, false)] {
        let mut judge = Judge::new(10);
        judge.admit(0, 4, grant(1));
        judge.charge(1, charged, 2);
        judge.admit(at, 2, grant(last_grant));
        assert_eq!(judge.is_over, is_over, "{charged} charged, grant {last_grant} at {at}");
    }
}
