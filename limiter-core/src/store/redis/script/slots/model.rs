//! The slots of one key, as `lua/slots.lua` keeps them, in plain code.

use std::time::Duration;

use crate::concurrency::message::{MessageState, SlotHolder, SlotMessage, SlotProcessId, SlotReply};

/// The slots of one key, and the processes that wait for some.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredSlots {
    entries: Vec<StoredEntry>,
    is_damaged: bool,
}

/// The entry of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredEntry {
    process: SlotProcessId,
    end: u64,
    number: u32,
    slots: u16,
    slot_time: u16,
    /// The slots that it waits for. 0: it does not wait.
    waiting: u16,
    least: u16,
    /// Its place in the line of those that wait.
    since: u64,
}

/// The most entries, but for those of running calls.
pub(super) const MAX_ENTRIES: usize = 1024;
/// The longest time in which a process without slots waits for the next message, in ms.
const MAX_WAIT_MS: u64 = 2000;

impl StoredEntry {
    fn encode(&self) -> Vec<u8> {
        let &Self { process, end, number, slots, slot_time, waiting, least, since } = self;
        let shorts = [slots, slot_time, waiting, least].map(u16::to_be_bytes);
        [&process[..], &end.to_be_bytes()[2..], &number.to_be_bytes(), shorts.as_flattened(), &since.to_be_bytes()[2..]]
            .concat()
    }

    fn is_hungry(&self, least_share: u16) -> bool {
        self.waiting > 0 && self.slots < least_share
    }

    /// The slots that nobody behind it in the line may have.
    fn due(&self, least_share: u16) -> u16 {
        self.waiting.min(least_share.saturating_sub(self.slots)).max(self.least.saturating_sub(self.slots))
    }
}

fn millis(slot_time: u16) -> u64 {
    u64::from(slot_time) * 10
}

fn sum<'a>(entries: impl IntoIterator<Item = &'a StoredEntry>) -> u32 {
    entries.into_iter().map(|entry| u32::from(entry.slots)).sum()
}

/// Slots as a number of 16 bits, or the most.
fn saturated(slots: impl TryInto<u16>) -> u16 {
    slots.try_into().unwrap_or(u16::MAX)
}

impl StoredSlots {
    /// Executes a message. Returns the reply, and the processes that get a notice, in order.
    pub(crate) fn apply(
        &mut self,
        now_ms: u64,
        process: SlotProcessId,
        message: &SlotMessage,
    ) -> (SlotReply, Vec<SlotProcessId>) {
        let mut entries = self.live(now_ms);
        let has_ended = entries.len() < self.entries.len();
        let index = entries.iter().position(|entry| entry.process == process);
        let own = index.map(|index| entries[index]);
        let others: Vec<StoredEntry> = entries.iter().filter(|entry| entry.process != process).copied().collect();
        let SlotMessage { number, run, hold, mut want, least, mut waiting, max, slot_time, asks_again } = *message;
        let state = match own {
            Some(own) if own.number.wrapping_sub(number) < 1 << 31 => MessageState::Stale,
            None if self.is_damaged => MessageState::Damaged,
            None if others.len() >= MAX_ENTRIES => {
                (want, waiting) = (run, 0);
                MessageState::Full
            }
            _ => MessageState::Fresh,
        };

        let claimants = others.len() + usize::from(want > 0 || run > 0);
        let share = usize::from(max).checked_div(claimants).map_or(max, saturated);
        let least_share = share.max(1);
        let room = saturated(u32::from(max).saturating_sub(sum(&others)));
        let mut hungry: Vec<_> = others.iter().filter(|entry| entry.is_hungry(least_share)).copied().collect();
        hungry.sort_by_key(|entry| entry.since);
        let mut reply = SlotReply {
            state,
            granted: 0,
            allow: 0,
            share,
            others_wait: !hungry.is_empty(),
            in_use: sum(&entries),
            others_waiting: saturated(others.iter().filter(|entry| entry.waiting > 0).count()),
            first_end: None,
        };
        let mut notices = Vec::new();
        match state {
            MessageState::Stale => {}
            MessageState::Fresh | MessageState::Full | MessageState::Damaged => {
                let floor = own.map_or(run, |own| hold.min(own.slots.max(run)));
                let own_since = own.filter(|own| own.waiting > 0).map(|own| own.since);
                let is_first = |other: &&StoredEntry| {
                    let is_hungry = waiting > 0 && floor < least_share;
                    !is_hungry || own_since.is_none_or(|since| other.since < since)
                };
                let ahead: u32 = hungry.iter().filter(is_first).map(|entry| u32::from(entry.due(least_share))).sum();
                let part = want.min(saturated(u32::from(room).saturating_sub(ahead)));
                let granted = if part > floor && part >= least { part } else { floor };
                let waits = waiting > 0 && granted < want;
                let own_slots = own.map_or(0, |own| own.slots);
                let back = others.iter().filter(|entry| entry.waiting > 0).map(|entry| entry.since + 1).max();
                let entry = StoredEntry {
                    process,
                    end: now_ms + if granted > 0 { millis(slot_time) } else { millis(slot_time).min(MAX_WAIT_MS) },
                    number,
                    slots: granted,
                    slot_time,
                    waiting: if waits { waiting.min(want - granted) } else { 0 },
                    least: if waits { least } else { 0 },
                    since: match own_since {
                        _ if !waits => 0,
                        Some(since) if granted <= own_slots => since,
                        _ => back.unwrap_or(0).max(now_ms),
                    },
                };
                match index {
                    Some(index) if granted > 0 || waits => entries[index] = entry,
                    Some(index) => drop(entries.remove(index)),
                    None if granted > 0 || waits => entries.push(entry),
                    None => {}
                }
                self.entries = entries;
                self.is_damaged = false;

                reply.granted = granted;
                reply.in_use = sum(&self.entries);
                let mut free = i64::from(max) - i64::from(reply.in_use);
                if granted < own_slots || has_ended || own_since.is_some() && !waits {
                    let mut rest: Vec<_> =
                        others.iter().filter(|entry| entry.waiting > 0 && !entry.is_hungry(least_share)).collect();
                    rest.sort_by_key(|entry| entry.since);
                    let rest = rest.into_iter().map(|entry| (entry.process, entry.waiting));
                    let line = hungry.iter().map(|entry| (entry.process, entry.due(least_share))).chain(rest);
                    for (process, due) in line {
                        if free <= 0 {
                            break;
                        }
                        notices.push(process);
                        free -= i64::from(due);
                    }
                }
                if waits && granted < least_share && (own_since.is_none() || asks_again) {
                    notices.extend(others.iter().filter(|entry| entry.slots > share).map(|entry| entry.process));
                }
            }
        }
        reply.allow = reply.granted.min(room);
        if reply.granted < message.want {
            let first = others.iter().map(|entry| entry.end).min();
            reply.first_end = first.map(|end| Duration::from_millis(end.saturating_sub(now_ms)));
        }
        (reply, notices)
    }

    /// The processes that have slots or wait for some.
    pub(crate) fn peek(&self, now_ms: u64) -> Vec<SlotHolder> {
        let holder = |StoredEntry { process, end, slots, waiting, .. }| SlotHolder {
            process,
            slots,
            waiting,
            end: Duration::from_millis(end - now_ms),
        };
        self.live(now_ms).into_iter().map(holder).collect()
    }

    /// Forgets the processes that wait.
    pub(crate) fn reset(&mut self, now_ms: u64) {
        let mut entries = self.live(now_ms);
        entries.retain(|entry| entry.slots > 0);
        entries.iter_mut().for_each(|entry| (entry.waiting, entry.least, entry.since) = (0, 0, 0));
        *self = Self { entries, is_damaged: false };
    }

    /// Replaces the value by one that is no value of slots.
    pub(crate) fn damage(&mut self) {
        *self = Self { entries: Vec::new(), is_damaged: true };
    }

    /// The stored bytes of the entries; `None` if the value is damaged.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        (!self.is_damaged).then(|| self.entries.iter().flat_map(StoredEntry::encode).collect())
    }

    /// The entries that have not ended. Those that end too late are shortened: the clock has stepped back.
    fn live(&self, now_ms: u64) -> Vec<StoredEntry> {
        let shortened =
            |entry: &StoredEntry| StoredEntry { end: entry.end.min(now_ms + millis(entry.slot_time)), ..*entry };
        self.entries.iter().map(shortened).filter(|entry| entry.end > now_ms).collect()
    }
}
