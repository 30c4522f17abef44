//! The slots of a key: the processes that have some, and those that wait.

use rate_limited::__private::SlotHolder;
use rate_limited::Limit;
use serde_json::{Value, json};

use crate::duration_text;
use limiter_inspect::millis;

/// The slots of a key for its limit of concurrent calls.
pub(super) struct Slots {
    limit: Limit,
    holders: Vec<SlotHolder>,
}

impl Slots {
    pub(super) fn new(limit: Limit, holders: Vec<SlotHolder>) -> Self {
        Self { limit, holders }
    }

    /// The slots of all processes.
    pub(super) fn in_use(&self) -> u32 {
        self.holders.iter().map(|holder| u32::from(holder.slots)).sum()
    }

    fn free(&self) -> u32 {
        self.limit.max().saturating_sub(self.in_use())
    }

    /// Returns a line for the limit and one for each process, each after a newline.
    pub(super) fn lines(&self) -> String {
        let mut lines = format!("\n  {}: {} free", self.limit, self.free());
        for holder in &self.holders {
            let SlotHolder { slots, waiting, end, .. } = holder;
            lines += &format!("\n  process {}: has {slots}", process_id(holder));
            if *waiting > 0 {
                lines += &format!(", waits for {waiting}");
            }
            lines += &format!(", ends in {} unless it renews them", duration_text::write(*end));
        }
        lines
    }

    /// Returns the limit as one of those of a `peek`. Calls end when they end, so there is no time of a reset.
    pub(super) fn limit_json(&self) -> Value {
        json!({ "limit": self.limit.to_string(), "remaining": self.free(), "reset_after_ms": null })
    }

    /// Returns the processes.
    pub(super) fn processes_json(&self) -> Value {
        let process = |holder: &SlotHolder| {
            json!({
                "process": process_id(holder),
                "slots": holder.slots,
                "waits_for": holder.waiting,
                "ends_in_ms": millis(holder.end),
            })
        };
        self.holders.iter().map(process).collect()
    }

    /// Returns what a reset leaves as it is.
    pub(super) fn kept_text(&self) -> String {
        match self.in_use() {
            0 => format!("no slot of {} is in use", self.limit),
            1 => format!("1 slot of {} stays in use until its call ends", self.limit),
            slots => format!("{slots} slots of {} stay in use until their calls end", self.limit),
        }
    }
}

fn process_id(holder: &SlotHolder) -> String {
    holder.process.iter().map(|byte| format!("{byte:02x}")).collect()
}
