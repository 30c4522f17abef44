//! The keys of which calls run or wait in this process, each with its slots.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::slots_of_key::{SharedSlots, SlotOutbox, SlotTerms, SlotsOfKey};
use crate::Key;
use crate::clock::Clock;
use crate::sync::{Mutex, Seed, lock, seed};

/// The number of maps, each under a lock of its own. A power of two.
const MAPS: usize = 16;
/// The keys that a map keeps although no call has slots of them.
const MIN_KEYS: usize = 64;

/// The slots of all keys in one process.
pub(crate) struct SlotTable {
    seed: Seed,
    maps: [Mutex<KeyMap>; MAPS],
    terms: Arc<SlotTerms>,
}

struct KeyMap {
    keys: HashMap<Key, Arc<SlotsOfKey>, Seed>,
    /// The number of keys at which the unused ones are removed.
    sweep_at: usize,
}

impl SlotTable {
    pub(crate) fn new(clock: Clock, store: Option<SharedSlots>) -> Self {
        let seed = seed();
        let map = |()| Mutex::new(KeyMap { keys: HashMap::with_hasher(seed.clone()), sweep_at: MIN_KEYS });
        let maps = [(); MAPS].map(map);
        Self { seed, maps, terms: Arc::new(SlotTerms::new(clock, store)) }
    }

    /// The slots of a key.
    pub(crate) fn slots_of(&self, key: &Key) -> Arc<SlotsOfKey> {
        let mut map = lock(self.map_of(key));
        if let Some(slots) = map.keys.get(key) {
            return Arc::clone(slots);
        }
        if map.keys.len() >= map.sweep_at {
            map.sweep();
        }
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
    /// Removes the keys that no call uses.
    fn sweep(&mut self) {
        self.keys.retain(|_, slots| Arc::strong_count(slots) > 1 || !slots.is_unused());
        self.sweep_at = (2 * self.keys.len()).max(MIN_KEYS);
        self.keys.shrink_to(self.sweep_at);
    }
}
