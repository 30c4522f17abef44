//! Sets of which any two are nested or disjoint, such as networks: a look-up finds those that contain a value.

use std::borrow::Borrow;
use std::iter::successors;

use super::sorted_blocks::SortedBlocks;

/// A set, or one value. A set is before all that it contains, and each set between two of which one contains the other is
/// in the first.
pub(super) trait Nested: Ord {
    fn contains(&self, inner: &Self) -> bool;

    /// Returns a number below `u64::MAX`, which is in no other order than the sets. Most sets have one of their own.
    fn lead(&self) -> u64;
}

/// Sets of one type in their order, each with a number.
pub(super) struct NestedSets<T> {
    sets: Vec<NumberedSet<T>>,
    /// The leads of the sets.
    leads: SortedBlocks,
}

struct NumberedSet<T> {
    set: T,
    number: u32,
    /// The index of the smallest other set that contains this one.
    outer: Option<u32>,
}

impl<T> NestedSets<T> {
    pub(super) fn new<N: Nested + ?Sized>(sets: impl IntoIterator<Item = (T, u32)>) -> Self
    where
        T: Borrow<N> + Ord,
    {
        let mut numbered: Vec<_> = sets.into_iter().collect();
        numbered.sort_unstable();
        let leads: Vec<_> = numbered.iter().map(|(set, _)| set.borrow().lead()).collect();
        let mut sets: Vec<NumberedSet<T>> = Vec::with_capacity(numbered.len());
        for (set, number) in numbered {
            let mut outer = sets.len().checked_sub(1);
            while let Some(other) = outer.and_then(|index| sets.get(index))
                && !other.set.borrow().contains(set.borrow())
            {
                outer = other.outer.and_then(|index| usize::try_from(index).ok());
            }
            let outer = outer.and_then(|index| u32::try_from(index).ok());
            sets.push(NumberedSet { set, number, outer });
        }
        Self { sets, leads: SortedBlocks::new(&leads) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the sets that contain a value, with their numbers, the smallest first.
    #[inline]
    pub(super) fn containing<'a, N: Nested + ?Sized>(&'a self, value: &'a N) -> impl Iterator<Item = (&'a T, u32)>
    where
        T: Borrow<N>,
    {
        let is_up_to = |other: &NumberedSet<T>| other.set.borrow() <= value;
        let with_lead = self.sets.get(..self.leads.count_up_to(value.lead())).unwrap_or_default();
        let last = match with_lead.last() {
            Some(last) if !is_up_to(last) => {
                with_lead.get(..with_lead.partition_point(is_up_to)).unwrap_or_default().last()
            }
            last => last,
        };
        // Each set before the value that contains it also contains the last set before it.
        let outer = |inner: &&'a NumberedSet<T>| self.sets.get(usize::try_from(inner.outer?).ok()?);
        let is_outside = |other: &&NumberedSet<T>| !other.set.borrow().contains(value);
        successors(last, outer).skip_while(is_outside).map(|other| (&other.set, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of one service share their beginnings, and so their leads.
    #[test]
    fn sets_with_one_lead_are_found() {
        let texts = ["%2Fapi%2F", "%2Fapi%2Fa", "%2Fapi%2Fab", "%2Fapi%2Fb", "%2Fapi%2Fba", "%2Fz", ""];
        let sets = NestedSets::new::<[u8]>((0..).zip(texts).map(|(number, text)| (text.as_bytes().to_vec(), number)));
        let cases: [(&str, &[u32]); 7] = [
            ("%2Fapi%2F", &[0, 6]),
            ("%2Fapi%2Fabc", &[2, 1, 0, 6]),
            ("%2Fapi%2Fb", &[3, 0, 6]),
            ("%2Fapi%2FbB", &[3, 0, 6]),
            ("%2Fapi", &[6]),
            ("%2Fzz", &[5, 6]),
            ("", &[6]),
        ];
        for (text, expected) in cases {
            let found: Vec<_> = sets.containing(text.as_bytes()).map(|(_, number)| number).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
