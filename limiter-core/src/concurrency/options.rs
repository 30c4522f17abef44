//! The options of slots: how long those of a process that is gone stay in use, and who hears of lost ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::TARGET;
use crate::run::run_contained;

/// The options of slots that a program sets.
#[derive(Clone)]
pub(crate) struct SlotOptions {
    pub(crate) slot_time: Duration,
    observers: Vec<LossObserver>,
}

type LossObserver = Arc<dyn Fn(&LostSlots) + Send + Sync>;

/// Slots of running calls that are lost: the process stood still, or did not reach the store, for most of a slot time.
///
/// The calls go on, and other processes may use their slots. [`Builder::on_lost`](crate::Builder::on_lost) reports it.
#[derive(Clone, Debug)]
pub struct LostSlots {
    slots: u32,
    key: Option<String>,
}

impl LostSlots {
    pub(crate) fn new(slots: u32, key: Option<String>) -> Self {
        Self { slots, key }
    }

    /// The number of slots: those of all calls of a key that ran in this process.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The encoded key; `None` unless the limiter [exposes keys](crate::Builder::expose_keys).
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl SlotOptions {
    pub(crate) fn add_observer(&mut self, observer: impl Fn(&LostSlots) + Send + Sync + 'static) {
        self.observers.push(Arc::new(observer));
    }

    /// Reports lost slots to the log and to the observers, whose panics are caught.
    pub(crate) fn report(&self, lost: &LostSlots) {
        tracing::warn!(
            target: TARGET,
            slots = lost.slots,
            "slots of running calls are lost: this process stood still, or did not reach Redis, for most of a slot time"
        );
        for observer in &self.observers {
            if !run_contained(|| observer(lost)) {
                tracing::error!(target: TARGET, "an observer of lost slots panicked");
            }
        }
    }

    /// Returns the message for a slot time out of its range.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { slot_time, .. } = self;
        let is_valid = (Duration::from_secs(1)..=Duration::from_secs(600)).contains(slot_time);
        (!is_valid).then(|| {
            format!(
                "`slot_time` must be between 1 s and 10 min, got {slot_time:?}: leave it out for the default of 10 s"
            )
        })
    }
}

impl Default for SlotOptions {
    fn default() -> Self {
        Self { slot_time: Duration::from_secs(10), observers: Vec::new() }
    }
}

impl fmt::Debug for SlotOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot_time, observers } = self;
        f.debug_struct("SlotOptions").field("slot_time", slot_time).field("observers", &observers.len()).finish()
    }
}
