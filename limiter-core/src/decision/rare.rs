//! The parts of a decision that most decisions do not have.

/// An optional value in a box, whose drop costs a caller one comparison if there is none.
///
/// The drop of an `Option<Box<T>>` is a call of a function, for every decision.
#[derive(Clone)]
pub(super) struct Rare<T>(Option<Box<T>>);

impl<T> Rare<T> {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }

    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    pub(super) fn get_or_insert_default(&mut self) -> &mut T
    where
        T: Default,
    {
        self.0.get_or_insert_default()
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> Drop for Rare<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            drop_value(value);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_value<T>(value: Box<T>) {
    drop(value);
}
