//! The keys of which calls run or wait in this process, each with its slots.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::message::{SlotHolder, SlotProcessId};
use super::options::SlotOptions;
use super::slots_of_key::SlotsOfKey;
use crate::clock::{Clock, Moment};
use crate::sync::process::Process;
use crate::sync::{Mutex, Seed, lock, seed};
use crate::{Error, Key};

/// The number of maps, each under a lock of its own. A power of two.
const MAPS: usize = 16;
/// The keys that a map keeps although no call has slots of them.
const MIN_KEYS: usize = 64;

/// The slots of all keys in one process.
pub(crate) struct SlotTable {
    seed: Seed,
    maps: [Mutex<KeyMap>; MAPS],
    shared: Arc<SlotTerms>,
}

struct KeyMap {
    keys: HashMap<Key, Arc<SlotsOfKey>, Seed>,
    /// The number of keys at which the unused ones are removed.
    sweep_at: usize,
}

/// What all keys of a limiter have in common.
pub(crate) struct SlotTerms {
    pub(super) process: Process,
    clock: Clock,
    pub(super) store: Option<SharedSlots>,
}

/// The way to a store that several processes share.
pub(crate) struct SharedSlots {
    pub(crate) outbox: Box<dyn SlotOutbox>,
    pub(crate) options: SlotOptions,
    /// Reports have their key, as this function shows it.
    pub(crate) shown_key: Option<ShownKey>,
    /// The number of instances, if calls are decided by shares while the store fails.
    pub(crate) instances: Option<NonZeroU32>,
    id: Mutex<SlotProcessId>,
    /// The number of the next message.
    next_number: AtomicU32,
}

/// Returns a key as users see it.
pub(crate) type ShownKey = Box<dyn Fn(&Key) -> String + Send + Sync>;

/// Sends the messages of a process to its store.
pub(crate) trait SlotOutbox: Send + Sync {
    /// Looks at the slots of a key at an instant, and sends the message that is due.
    fn look_at(&self, slots: &Arc<SlotsOfKey>, at: Moment);

    /// Returns whether processes that wait are told of free slots.
    fn has_notices(&self) -> bool;

    /// Reads who has slots of a key, or waits for some.
    fn peek(&self, key: &Key) -> Answer<Vec<SlotHolder>>;

    /// Forgets who waits for slots of a key. Slots in use stay.
    fn reset(&self, key: &Key) -> Answer<()>;
}

/// The answer of a store.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + Sync>>;

impl SlotTable {
    pub(crate) fn new(clock: Clock, store: Option<SharedSlots>) -> Self {
        let seed = seed();
        let map = |()| Mutex::new(KeyMap { keys: HashMap::with_hasher(seed.clone()), sweep_at: MIN_KEYS });
        let maps = [(); MAPS].map(map);
        Self { seed, maps, shared: Arc::new(SlotTerms { process: Process::current(), clock, store }) }
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
        let slots = Arc::new(SlotsOfKey::new(key.clone(), Arc::clone(&self.shared)));
        map.keys.insert(key.clone(), Arc::clone(&slots));
        slots
    }

    /// The way to the store; `None` if this process decides alone.
    pub(crate) fn outbox(&self) -> Option<&dyn SlotOutbox> {
        self.shared.store.as_ref().map(|store| &*store.outbox)
    }

    /// The slots of a key, if a call has or wants some.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<SlotsOfKey>> {
        lock(self.map_of(key)).keys.get(key).map(Arc::clone)
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

impl SharedSlots {
    pub(crate) fn new(
        outbox: Box<dyn SlotOutbox>,
        options: SlotOptions,
        shown_key: Option<ShownKey>,
        instances: Option<NonZeroU32>,
    ) -> Self {
        let (id, next_number) = (Mutex::new(new_id()), AtomicU32::new(1));
        Self { outbox, options, shown_key, instances, id, next_number }
    }

    pub(super) fn id(&self) -> SlotProcessId {
        *lock(&self.id)
    }

    /// Draws a new id, unless this one is replaced already: another process has it, as on a machine that was cloned.
    pub(super) fn replace_id(&self, old: SlotProcessId) {
        let mut id = lock(&self.id);
        if *id == old {
            *id = new_id();
        }
    }

    pub(super) fn next_number(&self) -> u32 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

impl SlotTerms {
    pub(super) fn now(&self) -> Moment {
        match &self.store {
            Some(_) => self.clock.now_with_suspend(),
            None => self.clock.now(),
        }
    }
}

/// A random id of a process: the keys of each hasher are other random numbers.
fn new_id() -> SlotProcessId {
    RandomState::new().build_hasher().finish().to_be_bytes()
}
