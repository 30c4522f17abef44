//! The looks to come at the slots of keys: one for each key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Moment;
use crate::concurrency::SlotsOfKey;

/// The looks that are not due yet, by their instants, and the place of each key.
#[derive(Default)]
pub(super) struct SlotLooks {
    later: BTreeMap<(Moment, SlotsAddress), Arc<SlotsOfKey>>,
    places: BTreeMap<SlotsAddress, LookPlace>,
}

/// The address of the slots of a key, which are kept until their look.
type SlotsAddress = usize;

/// The place of a key's look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookPlace {
    Later(Moment),
    /// It is in the queue of its server.
    Due,
    /// It is in that queue, before those of which no call waits.
    Awaited,
}

impl SlotLooks {
    /// Orders a look at an instant, instead of a later one. Returns whether it is due already: it stays where it is.
    pub(super) fn order(&mut self, slots: Arc<SlotsOfKey>, at: Moment) -> bool {
        let address = address(&slots);
        match self.places.get(&address) {
            Some(LookPlace::Due) => return true,
            Some(LookPlace::Awaited) => return false,
            Some(LookPlace::Later(before)) if *before <= at => return false,
            Some(LookPlace::Later(before)) => drop(self.later.remove(&(*before, address))),
            None => {}
        }
        self.places.insert(address, LookPlace::Later(at));
        self.later.insert((at, address), slots);
        false
    }

    /// The instant of the first look.
    pub(super) fn first(&self) -> Option<Moment> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first look out, if it is due. Its next place is to be set.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<Arc<SlotsOfKey>> {
        let first = self.later.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    pub(super) fn set_place(&mut self, slots: &Arc<SlotsOfKey>, place: LookPlace) {
        self.places.insert(address(slots), place);
    }

    /// Ends a look that is in this place. Returns `false` if it is in another one, or has ended.
    pub(super) fn end(&mut self, slots: &Arc<SlotsOfKey>, place: LookPlace) -> bool {
        let is_there = self.places.get(&address(slots)) == Some(&place);
        if is_there {
            self.places.remove(&address(slots));
        }
        is_there
    }
}

fn address(slots: &Arc<SlotsOfKey>) -> SlotsAddress {
    Arc::as_ptr(slots) as SlotsAddress
}

#[cfg(test)]
impl SlotLooks {
    /// The number of looks that are not due yet, and of keys.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.later.len(), self.places.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Key;
    use crate::clock::Clock;
    use crate::concurrency::SlotTable;

    fn at(millis: u64) -> Moment {
        Moment::PAST.after(Duration::from_millis(millis))
    }

    #[test]
    fn each_key_has_one_look_at_its_earliest_instant() {
        let (table, mut looks) = (SlotTable::new(Clock::System, None), SlotLooks::default());
        let [one, other] = [0, 1].map(|number| table.slots_of(&Key::new("k:").part(number)));
        for millis in 10..1000 {
            looks.order(Arc::clone(&one), at(2000 - millis));
            looks.order(Arc::clone(&one), at(3000));
            looks.order(Arc::clone(&other), at(500 + millis));
        }
        assert_eq!((looks.len(), looks.first()), ((2, 2), Some(at(510))));
        assert!(looks.take_due(at(509)).is_none());
        assert!(looks.take_due(at(510)).is_some_and(|due| Arc::ptr_eq(&due, &other)));
        assert_eq!(looks.first(), Some(at(1001)));
    }

    #[test]
    fn a_look_that_is_due_keeps_its_place_until_it_ends() {
        let (table, mut looks) = (SlotTable::new(Clock::System, None), SlotLooks::default());
        let slots = table.slots_of(&Key::new("a"));
        looks.order(Arc::clone(&slots), at(1));
        let due = looks.take_due(at(1)).expect("due");
        looks.set_place(&due, LookPlace::Due);
        assert!(looks.order(Arc::clone(&slots), at(2)), "it is due");
        looks.set_place(&due, LookPlace::Awaited);
        assert!(!looks.order(Arc::clone(&slots), at(2)) && looks.len() == (0, 1));
        assert!(!looks.end(&due, LookPlace::Due) && looks.end(&due, LookPlace::Awaited));
        assert!(!looks.end(&due, LookPlace::Awaited));
        assert!(!looks.order(slots, at(3)) && looks.first() == Some(at(3)));
    }
}
