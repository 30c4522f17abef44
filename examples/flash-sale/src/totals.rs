//! The totals of this process.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::answer::Answer;

/// The numbers of answers, and of open pages.
#[derive(Default)]
pub(crate) struct Totals {
    bought: AtomicU64,
    degraded: AtomicU64,
    failed: AtomicU64,
    pages: AtomicUsize,
}

/// The totals at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) bought: u64,
    pub(crate) degraded: u64,
    pub(crate) failed: u64,
    pub(crate) pages: usize,
}

impl Totals {
    pub(crate) fn count(&self, answer: &Answer) {
        let total = match answer {
            Answer::Bought { .. } => &self.bought,
            Answer::Degraded { .. } => &self.degraded,
            Answer::Unavailable { .. } => &self.failed,
            _ => return,
        };
        total.fetch_add(1, Relaxed);
    }

    pub(crate) fn open_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }

    pub(crate) fn close_page(&self) {
        self.pages.fetch_sub(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            bought: self.bought.load(Relaxed),
            degraded: self.degraded.load(Relaxed),
            failed: self.failed.load(Relaxed),
            pages: self.pages.load(Relaxed),
        }
    }
}
