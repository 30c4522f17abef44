//! The slots that a call holds until it ends.

use std::fmt;

use super::slots_of_key::HeldSlot;

/// The slots of a call, of all its limits of concurrent calls. Dropped, they are free.
#[derive(Default)]
pub struct HeldSlots {
    first: Option<HeldSlot>,
    others: Vec<HeldSlot>,
}

impl HeldSlots {
    /// No slot yet.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { first: None, others: Vec::new() }
    }

    /// Returns whether it holds no slot.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Holds a slot of a call under this rule.
    pub(crate) fn hold(&mut self, mut slot: HeldSlot, rule: &'static str) {
        slot.count_for(rule);
        self.add(slot);
    }

    fn add(&mut self, slot: HeldSlot) {
        match self.first {
            None => self.first = Some(slot),
            Some(_) => self.others.push(slot),
        }
    }

    /// Holds the slots of another value too.
    pub(crate) fn append(&mut self, other: Self) {
        other.first.into_iter().chain(other.others).for_each(|slot| self.add(slot));
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlots").field("slots", &self.len()).finish_non_exhaustive()
    }
}
