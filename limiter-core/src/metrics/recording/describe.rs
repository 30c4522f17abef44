//! The descriptions of the series, which exporters show as help texts.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Passes the descriptions to the recorder, once.
pub(super) fn describe_series() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Relaxed) || IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    describe_counter!("rate_limited_decisions_total", "Decisions, once for each rule of an allowed call.");
    describe_counter!("rate_limited_permits_total", "Permits that allowed calls took.");
    describe_counter!("rate_limited_refunds_total", "Permits that refunds gave back.");
    describe_counter!("rate_limited_charges_total", "Permits that charges counted.");
    describe_counter!("rate_limited_overdrawn_total", "Permits of charges beyond the limit.");
    describe_counter!("rate_limited_uncounted_total", "Permits of charges that no counter has.");
    describe_counter!("rate_limited_near_limit_total", "Allowed calls with less than a fifth of the permits left.");
    describe_gauge!("rate_limited_slots_held", "Slots that calls of this process hold.");
    describe_gauge!("rate_limited_slots_in_use", "Slots of all processes, of the key of the last decision.");
    describe_counter!("rate_limited_slots_lost_total", "Slots of running calls that were lost.");
    describe_gauge!("rate_limited_limit", "Permits of the limit in force; 0 for a window that is not in force.");
    describe_histogram!("rate_limited_wait_seconds", Unit::Seconds, "Time from a call that may wait to its decision.");
    describe_histogram!("rate_limited_store_seconds", Unit::Seconds, "Duration of a call to a shared store.");
    describe_counter!("rate_limited_errors_total", "Failures of the limiter.");
    describe_gauge!("rate_limited_store_up", "1 while each shared store of the process is up, else 0.");
    describe_gauge!("rate_limited_stores", "Shared stores of the process.");
    describe_histogram!("rate_limited_batch_size", Unit::Count, "Calls in a batch that was sent to Redis.");
    describe_gauge!("rate_limited_keys", "Keys that the process counts exactly.");
    describe_counter!("rate_limited_overflow_total", "Decisions of new keys by shared counters.");
    describe_counter!("rate_limited_rules_loads_total", "Sets of rules that came into force or were refused.");
    describe_gauge!("rate_limited_rules_refused", "Limiters whose last set of rules of an origin was refused.");
    describe_gauge!("rate_limited_rules_version", "Version of the shared rules in force.");
    describe_counter!("rate_limited_unconfigured_total", "Calls under a rule of configured limits that has none.");
}
