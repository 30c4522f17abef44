//! Counters, gauges and histograms of decisions, stores and rules, for the recorder that the program installs.
//!
//! The feature `metrics` records them through the crate `metrics` 0.24. Install a recorder before the first decision: a
//! series that was used without a recorder stays silent. No key is ever a label. The project's docs/metrics.md lists the
//! series.

#[cfg(feature = "redis")]
mod batch_sizes;
mod key_count;
#[cfg(feature = "metrics")]
mod recording;
mod rules_refused;
mod store_call;
mod store_up;

#[cfg(feature = "redis")]
pub(crate) use batch_sizes::BatchSizes;
pub(crate) use key_count::KeyCount;
pub(crate) use rules_refused::RulesRefused;
pub(crate) use store_call::{StoreCall, StoreOp};
pub(crate) use store_up::{StoreUp, show_stores};

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::request::{ChargeReply, Request, RequestReport};
use crate::{Error, Source};

/// Buckets for `rate_limited_store_seconds` and `rate_limited_wait_seconds`, in seconds: 50 µs to 1 s, with one bound at
/// the default deadline of 100 ms.
///
/// An exporter for Prometheus shows histograms as summaries unless it gets buckets.
#[cfg(feature = "metrics")]
pub const STORE_BUCKETS: [f64; 14] =
    [0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// A decision with its requests, for the series of its rules.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "the feature reads the fields"))]
pub(crate) struct DecidedCall<'a> {
    /// One name for each request, or one for all.
    pub(crate) names: &'a [&'static str],
    pub(crate) requests: &'a [Request<'a>],
    pub(crate) outcome: CallOutcome,
    /// The rule that the decision describes.
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) remaining: u32,
    /// The permits left of each of several requests.
    pub(crate) reports: &'a [RequestReport],
}

/// The label `outcome` of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Allowed,
    Denied,
    Shadowed,
}

/// True if series are recorded. State that only they need is not kept otherwise.
pub(crate) const IS_ON: bool = cfg!(feature = "metrics");

/// Declares the events that are recorded. Without the feature `metrics` they do nothing.
macro_rules! events {
    ($($(#[$attribute:meta])* $event:ident($($argument:ident: $type:ty),*);)+) => {
        $(
            $(#[$attribute])*
            #[inline]
            pub(crate) fn $event($($argument: $type),*) {
                #[cfg(feature = "metrics")]
                recording::$event($($argument),*);
                #[cfg(not(feature = "metrics"))]
                let _ = ($($argument,)*);
            }
        )+
    };
}

events! {
    /// Records a decision. An allowed one counts for each of its rules, a denied one for the rule that denied it.
    decided(call: &DecidedCall<'_>);
    /// Records an allowed call of the fast path of the memory store.
    allowed_fast(name: &'static str, request: &Request<'_>, remaining: u32);
    /// Records a call under a rule of `configured` limits that has none.
    unconfigured(name: &'static str);
    /// Records the time that a call has waited for its permits since it began, for each rule.
    waited(began: Moment, clock: &Clock, names: &[&'static str]);
    /// Records permits that a refund or a settlement gave back to counters of a rule.
    refunded(name: &'static str, permits: u32);
    /// Records a charge of these requests, for each rule.
    charged(names: &[&'static str], requests: &[Request<'_>], charges: &[ChargeReply]);
    /// Records what a settled call of a rule counts in addition, and what of that no counter had room for.
    settled(name: &'static str, charged: u32, overdrawn: u32, uncounted: u32);
    /// Records what a settled call of a rule should have counted in addition.
    settle_failed(name: &'static str, charged: u32);
    /// Records a charge that failed: no counter may have its permits.
    charge_failed(names: &[&'static str], requests: &[Request<'_>]);
    /// Records slots that calls take in this process, or give back.
    slots_held(change: i32);
    /// Records the slots of all processes, of the key of a rule's last decision.
    slots_in_use(name: &'static str, in_use: u32);
    /// Records slots of running calls that are lost.
    slots_lost(slots: u32);
    /// Records a failure of the limiter.
    failed(error: &Error);
    /// Records decisions by shared counters.
    overflowed(source: Source, decisions: u64);
    /// Records that a set of rules is in force, or was refused.
    rules_loaded(origin: &'static str, is_in_force: bool);
    /// Records the version of the shared rules in force.
    shared_rules_version(version: u64);
}

// The events of the state that this module keeps.
events! {
    describe();
    key_count(source: Source, keys: u32);
    refused_sets(origin: &'static str, limiters: u32);
    register_loads(origin: &'static str);
    store_called(op: StoreOp, is_ok: bool, duration: Duration);
    stores(number: u32, are_up: bool);
    batches_sent(sizes: Vec<u32>);
}
