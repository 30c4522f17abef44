//! The slots that a call holds until it ends.

use std::fmt;

use super::slots_of_key::HeldSlot;

/// The slots of a call, of all its limits of concurrent calls. Dropped, they are free.
#[derive(Default)]
pub struct HeldSlots {
    first: Option<HeldSlot>,
    /// Boxed, since the future of each annotated call has this value and few calls have several slots.
    #[expect(clippy::box_collection, reason = "a pointer is smaller")]
    others: Option<Box<Vec<HeldSlot>>>,
}

impl HeldSlots {
    /// No slot yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { first: None, others: None }
    }

    /// Returns whether it holds no slot.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn hold(&mut self, slot: HeldSlot) {
        match self.first {
            None => self.first = Some(slot),
            Some(_) => self.others.get_or_insert_default().push(slot),
        }
    }

    /// Holds the slots of another value too.
    pub(crate) fn append(&mut self, other: Self) {
        other
            .first
            .into_iter()
            .chain(other.others.into_iter().flat_map(|others| *others))
            .for_each(|slot| self.hold(slot));
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |others| others.len())
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlots").field("slots", &self.len()).finish_non_exhaustive()
    }
}
