//! What it takes to give permits back.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::guard::Granted;
use crate::store::memory::Place;
use crate::store::{Asked, Question};
use crate::sync::{AtomicBool, Ordering};

mod giver;

pub(crate) use giver::Giver;

/// Good for one refund, by the limiter that gave it; so are its clones together.
///
/// Most receipts are dropped unread. So one of a place in memory takes nothing from the heap, and is small: what a call
/// gives is moved a few times on its way.
#[derive(Clone)]
pub(crate) struct Receipt {
    giver: Giver,
    taken: Taken,
    spent: Spent,
}

/// What was taken, from where.
#[derive(Clone)]
pub(crate) enum Taken {
    /// Permits of one limit, from the place of its key in the memory store.
    At { place: Place, cost: u32, stamp: u64 },
    /// Whatever was asked for.
    Asked(Arc<[Asked]>, Box<Granted>),
}

impl Receipt {
    /// A receipt of what was taken; none if that is nothing.
    pub(crate) fn new(giver: Giver, questions: &[Question<'_>], granted: Granted) -> Option<Self> {
        let taken = || Taken::Asked(questions.iter().map(Asked::from).collect(), Box::new(granted));
        let takes = questions.iter().any(|question| question.cost > 0);
        takes.then(|| Self { giver, taken: taken(), spent: Spent::default() })
    }

    /// A receipt of permits from a place.
    #[inline]
    pub(crate) fn at(giver: Giver, place: Place, cost: u32, stamp: u64) -> Option<Self> {
        (cost > 0).then(|| Self { giver, taken: Taken::At { place, cost, stamp }, spent: Spent::default() })
    }

    pub(crate) fn is_of(&self, giver: Giver) -> bool {
        self.giver == giver
    }

    /// What is to be given back: only the first who asks is told.
    pub(crate) fn spend(&self) -> Option<&Taken> {
        self.spent.is_first().then_some(&self.taken)
    }
}

/// Whether a receipt is spent, which its clones share: made when the first of them is, or is spent.
#[derive(Default)]
struct Spent(OnceLock<Arc<AtomicBool>>);

impl Spent {
    fn is_first(&self) -> bool {
        !self.flag().swap(true, Ordering::AcqRel)
    }

    fn flag(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(|| Arc::new(AtomicBool::new(false)))
    }
}

impl Clone for Spent {
    fn clone(&self) -> Self {
        Self(Arc::clone(self.flag()).into())
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("giver", &self.giver).field("spent", &self.spent.0).finish_non_exhaustive()
    }
}
