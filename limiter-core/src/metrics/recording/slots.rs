//! Slots of calls that run at once.

use metrics::{counter, gauge};

use super::contained::record;
use super::describe::describe_series;

/// Records slots that calls take in this process, or give back.
pub(crate) fn slots_held(change: i32) {
    record(|| {
        describe_series();
        gauge!("rate_limited_slots_held").increment(change);
    });
}

/// Records the slots of all processes, of the key of a rule's last decision.
pub(crate) fn slots_in_use(name: &'static str, in_use: u32) {
    record(|| {
        describe_series();
        gauge!("rate_limited_slots_in_use", "rule" => name).set(in_use);
    });
}

/// Records slots of running calls that are lost.
pub(crate) fn slots_lost(slots: u32) {
    record(|| {
        describe_series();
        counter!("rate_limited_slots_lost_total").increment(slots.into());
    });
}
