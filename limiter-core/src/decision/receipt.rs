//! What it takes to give permits back.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::guard::Granted;
use crate::store::Asked;
use crate::store::memory::Place;
use crate::sync::{AtomicBool, Ordering};

mod giver;

pub(crate) use giver::Giver;

/// Good for one refund, by the limiter that gave it; so are its clones together.
///
/// Most receipts are dropped unread. So one of a place in memory takes nothing from the heap, and little to drop: what a
/// call gives is then not even put together where nobody looks at it.
#[derive(Clone)]
pub(crate) struct Receipt {
    giver: Giver,
    taken: Taken,
}

/// What was taken, from where.
#[derive(Clone)]
pub(crate) enum Taken {
    /// Permits of one limit, from the place of its key in the memory store.
    At { place: Place, cost: u32, stamp: u64, spent: Spent },
    /// Whatever was asked for.
    Asked(Arc<Whole>),
}

/// A receipt of whatever was asked for.
pub(crate) struct Whole {
    pub(crate) asked: Arc<[Asked]>,
    pub(crate) granted: Granted,
    spent: AtomicBool,
}

impl Receipt {
    /// A receipt of what was taken; none if that is nothing.
    pub(crate) fn new(giver: Giver, asked: Arc<[Asked]>, granted: Granted) -> Option<Self> {
        let takes = asked.iter().any(|asked| asked.question().cost > 0);
        takes.then(|| Self {
            giver,
            taken: Taken::Asked(Arc::new(Whole { asked, granted, spent: AtomicBool::new(false) })),
        })
    }

    /// A receipt of permits from a place.
    #[inline]
    pub(crate) fn at(giver: Giver, place: Place, cost: u32, stamp: u64) -> Option<Self> {
        (cost > 0).then(|| Self { giver, taken: Taken::At { place, cost, stamp, spent: Spent::default() } })
    }

    pub(crate) fn is_of(&self, giver: Giver) -> bool {
        self.giver == giver
    }

    /// What is to be given back: only the first who asks is told.
    pub(crate) fn spend(&self) -> Option<&Taken> {
        let flag = match &self.taken {
            Taken::At { spent, .. } => spent.flag(),
            Taken::Asked(whole) => &whole.spent,
        };
        (!flag.swap(true, Ordering::AcqRel)).then_some(&self.taken)
    }
}

/// Whether a receipt is spent, which its clones share: made when the first of them is, or is spent.
#[derive(Default)]
pub(crate) struct Spent(OnceLock<Arc<AtomicBool>>);

impl Spent {
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
        f.debug_struct("Receipt").field("giver", &self.giver).finish_non_exhaustive()
    }
}
