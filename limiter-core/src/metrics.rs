//! Counters, gauges and histograms of decisions, stores and rules, for the recorder that the program installs.
//!
//! The feature `metrics` records them through the crate `metrics` 0.24. Install a recorder before the first decision: a
//! series that was used without a recorder stays silent. No key is ever a label. The project's docs/metrics.md lists the
//! series.

#[cfg(not(feature = "metrics"))]
mod absent;
#[cfg(feature = "metrics")]
mod contained;
#[cfg(feature = "metrics")]
mod describe;
#[cfg(feature = "metrics")]
mod key_count;
#[cfg(feature = "metrics")]
mod recording;
#[cfg(feature = "metrics")]
mod rule_series;
#[cfg(feature = "metrics")]
mod rules_refused;

#[cfg(not(feature = "metrics"))]
pub(crate) use absent::*;
#[cfg(feature = "metrics")]
pub(crate) use key_count::{KeyCount, ReplyTime};
#[cfg(all(feature = "metrics", feature = "redis"))]
pub(crate) use recording::BatchSizes;
#[cfg(all(feature = "metrics", feature = "rules", feature = "redis"))]
pub(crate) use recording::shared_rules_version;
#[cfg(feature = "metrics")]
pub(crate) use recording::{
    FastAllowed, StoreCall, StoreUp, WANTS_REPORTS, allowed_fast, decided, failed, overflowed, refunded, rules_loaded,
    show_stores, unconfigured, waited,
};
#[cfg(feature = "metrics")]
pub(crate) use rules_refused::RulesRefused;

use crate::Source;
use crate::request::{Request, RequestReport};

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

/// The label `op` of a call to a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreOp {
    Decide,
    Peek,
    Refund,
    Reset,
}
