//! The messages of a process to the store about the slots of one key, and their replies.

use std::time::Duration;

/// The slots that a process has and wants. A message is absolute. The store uses it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotMessage {
    /// One that no earlier message of the process has, compared modulo 2^32.
    pub(crate) number: u32,
    /// The slots of calls that run, with those whose slots are lost.
    pub(crate) run: u16,
    /// The slots that the process may use until the reply.
    pub(crate) hold: u16,
    /// The slots that it would like to have.
    pub(crate) want: u16,
    /// The slots with which its first waiting call can start. 0 if any part helps.
    pub(crate) least: u16,
    /// The slots that its waiting calls need. 0 if none waits.
    pub(crate) waiting: u16,
    /// The limit.
    pub(crate) max: u16,
    /// The slot time, in units of 10 ms.
    pub(crate) slot_time: u16,
    /// It waits for long: those that have more than their share may have missed it.
    pub(crate) asks_again: bool,
}

impl SlotMessage {
    pub(crate) fn slot_time(&self) -> Duration {
        Duration::from_millis(u64::from(self.slot_time) * 10)
    }
}

/// The reply to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotReply {
    pub(crate) state: MessageState,
    /// The slots that the store keeps for the process.
    pub(crate) granted: u16,
    /// The slots that it may use.
    pub(crate) allow: u16,
    /// The slots of each process that has or wants some, rounded down.
    pub(crate) share: u16,
    /// A process that has less than its share waits.
    pub(crate) others_wait: bool,
    /// The slots of all processes.
    pub(crate) in_use: u32,
    /// The number of other processes that wait.
    pub(crate) others_waiting: u16,
    /// The time until the first entry of another process ends. `None` if there is none, or all that was wanted is
    /// granted.
    pub(crate) first_end: Option<Duration>,
}

/// The treatment of a message by the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageState {
    Fresh,
    /// The number was used before: another process has this id.
    Stale,
    /// The process is not registered: the value has its most entries.
    Full,
    /// The value was damaged, and is new.
    Damaged,
}

/// The id of a process that has slots, or waits for some.
pub(crate) type SlotProcessId = [u8; 8];

/// The slots of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    /// Its id.
    pub process: SlotProcessId,
    /// The slots that the store keeps for it.
    pub slots: u16,
    /// The slots that it waits for.
    pub waiting: u16,
    /// The time until its slots end, unless it sends a message.
    pub end: Duration,
}
