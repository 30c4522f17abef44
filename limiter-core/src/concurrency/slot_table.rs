//! The keys of which calls run or wait in this process, each with its slots.

use std::hash::BuildHasher;
use std::sync::Arc;

use indexmap::IndexMap;

use super::slots_of_key::{SharedSlots, SlotOutbox, SlotTerms, SlotsOfKey};
use crate::Key;
use crate::clock::Clock;
use crate::sync::{Mutex, Seed, lock, seed};

/// The number of maps, each under a lock of its own. A power of two.
const MAPS: usize = 16;
/// The keys that a map keeps although no call uses them.
const MIN_KEYS: usize = 64;
/// The keys that the insertion of one examines: more than one, so that the sweep outpaces insertions.
const SWEPT_PER_INSERTION: usize = 2;
/// The calls of known keys for each key that they examine.
const CALLS_PER_SWEPT: u32 = 8;

/// The slots of all keys in one process.
pub(crate) struct SlotTable {
    seed: Seed,
    maps: [Mutex<KeyMap>; MAPS],
    terms: Arc<SlotTerms>,
}

struct KeyMap {
    keys: IndexMap<Key, Arc<SlotsOfKey>, Seed>,
    /// The index of the key that is examined next.
    cursor: usize,
    /// The calls of keys that were in the map.
    known_calls: u32,
}

impl SlotTable {
    pub(crate) fn new(clock: Clock, store: Option<SharedSlots>) -> Self {
        let seed = seed();
        let map = |()| Mutex::new(KeyMap { keys: IndexMap::with_hasher(seed.clone()), cursor: 0, known_calls: 0 });
        let maps = [(); MAPS].map(map);
        Self { seed, maps, terms: Arc::new(SlotTerms::new(clock, store)) }
    }

    /// Returns whether the store keeps slots for this process of which no call runs.
    pub(super) fn has_free_slots(&self) -> bool {
        self.all().iter().any(|slots| slots.has_free())
    }

    /// The slots of a key.
    pub(crate) fn slots_of(&self, key: &Key) -> Arc<SlotsOfKey> {
        let mut map = lock(self.map_of(key));
        if let Some(slots) = map.keys.get(key).map(Arc::clone) {
            map.known_calls = map.known_calls.wrapping_add(1);
            if map.known_calls.is_multiple_of(CALLS_PER_SWEPT) {
                map.sweep(1);
            }
            return slots;
        }
        map.sweep(SWEPT_PER_INSERTION);
        let slots = Arc::new(SlotsOfKey::new(key.clone(), Arc::clone(&self.terms)));
        map.keys.insert(key.clone(), Arc::clone(&slots));
        slots
    }

    /// The way to the store; `None` if this process decides alone.
    pub(crate) fn outbox(&self) -> Option<&dyn SlotOutbox> {
        self.terms.outbox()
    }

    /// The slots of a key, if a call has or wants some.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<SlotsOfKey>> {
        lock(self.map_of(key)).keys.get(key).map(Arc::clone)
    }

    /// All keys with their slots.
    pub(crate) fn all(&self) -> Vec<Arc<SlotsOfKey>> {
        self.maps.iter().flat_map(|map| lock(map).keys.values().map(Arc::clone).collect::<Vec<_>>()).collect()
    }

    fn map_of(&self, key: &Key) -> &Mutex<KeyMap> {
        // The map itself uses the other bits of the hash.
        &self.maps[usize::from(self.seed.hash_one(key).to_be_bytes()[3]) % MAPS]
    }
}

impl KeyMap {
    /// Examines the next keys, and removes those that no call uses.
    fn sweep(&mut self, keys: usize) {
        for _ in 0..keys {
            if self.keys.len() <= MIN_KEYS {
                break;
            }
            self.cursor %= self.keys.len();
            let slots = &self.keys[self.cursor];
            if Arc::strong_count(slots) > 1 || !slots.is_unused() {
                self.cursor += 1;
            } else {
                self.keys.swap_remove_index(self.cursor);
            }
        }
        let kept = 2 * self.keys.len().max(MIN_KEYS);
        if self.keys.capacity() > 2 * kept {
            self.keys.shrink_to(kept);
        }
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::concurrency::SlotClaim;

    fn count(table: &SlotTable) -> usize {
        table.maps.iter().map(|map| lock(map).keys.len()).sum()
    }

    fn capacity(table: &SlotTable) -> usize {
        table.maps.iter().map(|map| lock(map).keys.capacity()).sum()
    }

    fn key(number: usize) -> Key {
        Key::new("k:").part(number)
    }

    #[test]
    fn keys_of_calls_that_have_ended_make_room_for_new_ones() {
        let table = SlotTable::new(Clock::System, None);
        let held: Vec<_> =
            (0..1000).map(|number| table.slots_of(&key(number)).enter(1, SlotClaim::ONE).expect("free")).collect();
        for number in 1000..100_000 {
            drop(table.slots_of(&key(number)).enter(1, SlotClaim::ONE).expect("free"));
        }
        assert!(count(&table) <= 2 * held.len() + MAPS * MIN_KEYS, "{} keys", count(&table));
        assert!(
            (0..1000).all(|number| table.slots_of(&key(number)).enter(1, SlotClaim::ONE).is_none()),
            "those in use are kept"
        );
    }

    #[test]
    fn memory_of_a_peak_is_freed_by_later_calls() {
        const PEAK: usize = 50_000;
        let table = SlotTable::new(Clock::System, None);
        let held: Vec<_> =
            (0..PEAK).map(|number| table.slots_of(&key(number)).enter(1, SlotClaim::ONE).expect("free")).collect();
        assert_eq!(count(&table), PEAK);
        drop(held);
        // Each call examines an eighth of a key.
        for call in 0..12 * PEAK {
            drop(table.slots_of(&key(call % 500)).enter(1, SlotClaim::ONE));
        }
        let (keys, capacity) = (count(&table), capacity(&table));
        assert!(keys <= 2 * MAPS * MIN_KEYS && capacity <= 8 * MAPS * MIN_KEYS, "{keys} of {capacity}");
    }
}
