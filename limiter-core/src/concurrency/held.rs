//! The slots that a call holds until it ends.

use std::fmt;
use std::mem::ManuallyDrop;

use super::slots_of_key::HeldSlot;

/// The slots of a call, of all its limits of concurrent calls. Dropped, they are free.
///
/// The future of each annotated call has one, and most hold nothing. So it is a pointer, the drop of an empty one is a
/// comparison, and all else is in functions of its own.
#[derive(Default)]
pub struct HeldSlots {
    slots: ManuallyDrop<Option<Box<SeveralSlots>>>,
}

/// The slots of a call that holds some.
struct SeveralSlots {
    first: HeldSlot,
    /// Few calls have several.
    others: Vec<HeldSlot>,
}

impl HeldSlots {
    /// No slot yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { slots: ManuallyDrop::new(None) }
    }

    /// Returns whether it holds no slot.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_none()
    }

    pub(crate) fn hold(&mut self, slot: HeldSlot) {
        match &mut *self.slots {
            Some(slots) => slots.others.push(slot),
            None => *self.slots = Some(Box::new(SeveralSlots { first: slot, others: Vec::new() })),
        }
    }

    /// Holds the slots of another value too.
    pub(crate) fn append(&mut self, mut other: Self) {
        let slots = other.slots.take();
        match slots {
            Some(slots) if !self.is_empty() => {
                [slots.first].into_iter().chain(slots.others).for_each(|slot| self.hold(slot));
            }
            slots => *self.slots = slots.or(self.slots.take()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| 1 + slots.others.len())
    }

    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        drop(self.slots.take());
    }
}

impl Drop for HeldSlots {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.free();
        }
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlots").field("slots", &self.len()).finish_non_exhaustive()
    }
}
