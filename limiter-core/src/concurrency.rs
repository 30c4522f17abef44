//! Limits of calls that run at once: slots, their calls, and what processes that share a store say to it.

pub(crate) mod message;
mod options;
mod hold_times;
mod grant;
mod slot_queue;
mod key_slots;
mod slots_of_key;
mod slot_table;
mod held;
mod returning;
mod failing_outbox;

pub(crate) use failing_outbox::FailingOutbox;
pub use held::HeldSlots;
pub use message::SlotHolder;
pub use options::LostSlots;
pub(crate) use options::SlotOptions;
pub(crate) use returning::{free_slots_returned, return_at_the_end};
pub(crate) use slot_queue::SlotClaim;
pub(crate) use slot_table::SlotTable;
#[cfg(feature = "redis")]
pub(crate) use slots_of_key::{Answer, DueMessage};
pub(crate) use slots_of_key::{
    HeldSlot, QueuedOutcome, QueuedSlot, SharedSlots, ShownKey, SlotOutbox, SlotOutlook, SlotsOfKey,
};

#[cfg(all(test, feature = "redis", not(limiter_loom)))]
mod simulation;
