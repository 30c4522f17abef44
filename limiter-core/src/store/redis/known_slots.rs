//! The keys with slots of this process, for what happens at their server: notices, and failures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redis::Value;

use super::naming::RedisKey;
use crate::concurrency::SlotsOfKey;

/// The keys with slots of this process, by their names in Redis.
#[derive(Default)]
pub(crate) struct KnownSlots {
    keys: RefCell<BTreeMap<Vec<u8>, KnownKey>>,
    /// Notices come.
    is_subscribed: Arc<AtomicBool>,
}

struct KnownKey {
    slot: u16,
    slots: Weak<SlotsOfKey>,
}

/// The most keys that are looked at together.
const MAX_WOKEN_KEYS: usize = 1000;

impl KnownSlots {
    /// Creates it without a key. `is_subscribed` tells others whether notices come.
    pub(crate) fn new(is_subscribed: Arc<AtomicBool>) -> Self {
        Self { is_subscribed, ..Self::default() }
    }

    /// Adds a key of which the process has slots, or waits for some.
    pub(crate) fn add(&self, key: &RedisKey, slots: &Arc<SlotsOfKey>) {
        let mut keys = self.keys.borrow_mut();
        if !keys.get(&key.name[..]).is_some_and(|known| known.is_of(slots)) {
            keys.insert(key.name.to_vec(), KnownKey { slot: key.slot, slots: Arc::downgrade(slots) });
        }
    }

    /// Removes a key that no call uses any more. One in use has a message in flight, or a look to come.
    pub(crate) fn remove_unused(&self, key: &RedisKey, slots: &Arc<SlotsOfKey>) {
        let mut keys = self.keys.borrow_mut();
        if keys.get(&key.name[..]).is_some_and(|known| known.is_of(slots)) && slots.is_unused() {
            keys.remove(&key.name[..]);
        }
    }

    /// Notes whether notices come. Once they do, keys are looked at: an earlier notice is lost. Of very many keys the next
    /// renewals do.
    pub(crate) fn set_subscribed(&self, is_subscribed: bool) {
        let was_subscribed = self.is_subscribed.swap(is_subscribed, Ordering::Relaxed);
        let keys = self.keys.borrow();
        if is_subscribed && !was_subscribed && keys.len() <= MAX_WOKEN_KEYS {
            let known: Vec<_> = keys.values().filter_map(|known| known.slots.upgrade()).collect();
            drop(keys);
            known.iter().for_each(SlotsOfKey::wake);
        }
    }

    /// Wakes the calls of the key in a notice: its channel, and the name of the key.
    pub(crate) fn notified(&self, notice: &[Value]) {
        if let [_, Value::BulkString(name)] = notice {
            let known = self.keys.borrow().get(name).and_then(|known| known.slots.upgrade());
            if let Some(slots) = known {
                slots.wake();
            }
        }
    }

    /// Notes that the server of these slots has failed, and may have lost data.
    pub(crate) fn server_failed(&self, slots: &[RangeInclusive<u16>]) {
        let keys = self.keys.borrow();
        let of_server = keys.values().filter(|known| slots.iter().any(|range| range.contains(&known.slot)));
        let of_server: Vec<_> = of_server.filter_map(|known| known.slots.upgrade()).collect();
        drop(keys);
        of_server.iter().for_each(SlotsOfKey::store_failed);
    }
}

impl KnownKey {
    fn is_of(&self, slots: &Arc<SlotsOfKey>) -> bool {
        self.slots.as_ptr() == Arc::as_ptr(slots)
    }
}

#[cfg(test)]
impl KnownSlots {
    pub(crate) fn len(&self) -> usize {
        self.keys.borrow().len()
    }
}
