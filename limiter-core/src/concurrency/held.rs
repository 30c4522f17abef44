//! The slots that a call holds until it ends.

use std::fmt;
use std::mem::ManuallyDrop;

use super::slots_of_key::HeldSlot;

/// The slots of a call, of all its limits of concurrent calls. Dropped, they are free.
///
/// Each annotated call has one, and most hold nothing. So the drop of an empty one is a comparison, and all else is a
/// function of its own.
#[derive(Default)]
pub struct HeldSlots {
    first: ManuallyDrop<Option<HeldSlot>>,
    /// Boxed, since few calls have several slots. Empty without a first one.
    #[expect(clippy::box_collection, reason = "a pointer is smaller")]
    others: ManuallyDrop<Option<Box<Vec<HeldSlot>>>>,
}

impl HeldSlots {
    /// No slot yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { first: ManuallyDrop::new(None), others: ManuallyDrop::new(None) }
    }

    /// Returns whether it holds no slot.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn hold(&mut self, slot: HeldSlot) {
        match *self.first {
            None => *self.first = Some(slot),
            Some(_) => self.others.get_or_insert_default().push(slot),
        }
    }

    /// Holds the slots of another value too.
    pub(crate) fn append(&mut self, mut other: Self) {
        let (first, others) = other.take();
        first.into_iter().chain(others).for_each(|slot| self.hold(slot));
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    fn take(&mut self) -> (Option<HeldSlot>, Vec<HeldSlot>) {
        (self.first.take(), self.others.take().map_or_else(Vec::new, |others| *others))
    }

    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        drop(self.take());
    }
}

impl Drop for HeldSlots {
    #[inline]
    fn drop(&mut self) {
        if self.first.is_some() {
            self.free();
        }
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlots").field("slots", &self.len()).finish_non_exhaustive()
    }
}
