//! What it takes to give permits back.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::guard::Granted;
use crate::limiter::Inner;
use crate::store::{Asked, Question};
use crate::sync::{AtomicBool, Ordering};

/// The limiter that grants. Kept by receipts, it keeps nothing alive but its own address.
pub(crate) type Giver = Weak<Inner>;

/// Good for one refund, by the limiter that gave it.
pub(crate) struct Receipt {
    giver: Giver,
    taken: Box<[Asked]>,
    granted: Granted,
    spent: AtomicBool,
}

impl Receipt {
    /// A receipt of what was taken; none if that is nothing.
    pub(crate) fn new(giver: &Giver, questions: &[Question<'_>], granted: Granted) -> Option<Arc<Self>> {
        let taken = || Asked::all(questions);
        let receipt = || Self { giver: giver.clone(), taken: taken(), granted, spent: AtomicBool::new(false) };
        questions.iter().any(|question| question.cost > 0).then(|| Arc::new(receipt()))
    }

    pub(crate) fn is_of(&self, giver: &Giver) -> bool {
        self.giver.ptr_eq(giver)
    }

    /// What is to be given back: only the first who asks is told.
    pub(crate) fn spend(&self) -> Option<(Vec<Question<'_>>, Granted)> {
        let first = !self.spent.swap(true, Ordering::AcqRel);
        first.then(|| (self.taken.iter().map(Asked::question).collect(), self.granted.clone()))
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("granted", &self.granted).field("spent", &self.spent).finish_non_exhaustive()
    }
}
