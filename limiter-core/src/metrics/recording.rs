//! The events that are recorded. Each runs the recorder, which is code of the program: its panics are caught.

use std::iter;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

mod charges;
mod contained;
mod describe;
mod rule_series;
mod slots;

pub(crate) use charges::{charge_failed, charged, settle_failed, settled};
use contained::record;
use describe::describe_series;
use rule_series::{RuleSeries, series_of};
pub(crate) use slots::{slots_held, slots_in_use, slots_lost};

use super::{CallOutcome, DecidedCall, StoreOp};
use crate::clock::{Clock, Moment};
use crate::request::Request;
use crate::sync::process::PerProcess;
use crate::{Error, ErrorKind, Limit, Source};

/// Records a decision. An allowed one counts for each of its rules, a denied one for the rule that denied it.
#[inline]
pub(crate) fn decided(call: &DecidedCall<'_>) {
    record(|| {
        if let (CallOutcome::Allowed, [_, _, ..]) = (call.outcome, call.requests) {
            return allowed_by_several(call);
        }
        let series = series_of(call.name);
        match (call.outcome, call.requests) {
            (CallOutcome::Allowed, [request]) => allowed(series, call.source, request, call.remaining),
            (outcome, [request]) => {
                series.count_decision(outcome, call.source);
                series.set_limits(&iter::once(request.limit));
            }
            (outcome, []) => series.count_decision(outcome, call.source),
            (outcome, _) => {
                series.count_decision(outcome, call.source);
                series.set_limits(&Share { call, name: call.name }.limits());
            }
        }
    });
}

/// Records an allowed call of the fast path of the memory store.
#[inline]
pub(crate) fn allowed_fast(name: &'static str, request: &Request<'_>, remaining: u32) {
    record(|| {
        allowed(series_of(name), Source::Store, request, remaining);
    });
}

#[inline]
fn allowed(series: &RuleSeries, source: Source, request: &Request<'_>, remaining: u32) {
    series.count_decision(CallOutcome::Allowed, source);
    if has_taken_permits(source) {
        series.count_permits(request.own_take());
    }
    if source.is_of_store() && is_near(request.limit, remaining) {
        series.count_near_limit();
    }
    series.set_limits(&iter::once(request.limit));
}

#[cold]
fn allowed_by_several(call: &DecidedCall<'_>) {
    for share in shares(call) {
        let series = series_of(share.name);
        series.count_decision(CallOutcome::Allowed, call.source);
        if has_taken_permits(call.source) {
            series.count_permits(share.requests().map(|(_, request)| request.own_take()).max().unwrap_or(0));
        }
        let is_near = |(index, request): (usize, &Request<'_>)| {
            call.reports.get(index).is_some_and(|report| is_near(request.limit, report.remaining))
        };
        if call.source == Source::Store && share.requests().any(is_near) {
            series.count_near_limit();
        }
        series.set_limits(&share.limits());
    }
}

fn has_taken_permits(source: Source) -> bool {
    source.is_of_store() || source == Source::Standby
}

/// Returns whether less than a fifth of the permits is left.
fn is_near(limit: Limit, remaining: u32) -> bool {
    u64::from(remaining) * 5 < u64::from(limit.max_cost())
}

/// The requests that one rule has in a call.
#[derive(Clone, Copy)]
struct Share<'c> {
    call: &'c DecidedCall<'c>,
    name: &'static str,
}

impl<'c> Share<'c> {
    fn requests(self) -> impl Iterator<Item = (usize, &'c Request<'c>)> + Clone {
        let is_own = move |(index, _): &(usize, _)| name_of(self.call.names, *index) == self.name;
        self.call.requests.iter().enumerate().filter(is_own)
    }

    fn limits(self) -> impl Iterator<Item = Limit> + Clone {
        self.requests().map(|(_, request)| request.limit)
    }
}

/// Each rule of a call, once.
fn shares<'c>(call: &'c DecidedCall<'c>) -> impl Iterator<Item = Share<'c>> {
    distinct(call.names, call.requests.len()).map(|name| Share { call, name })
}

/// The name of a request: one for each, or one for all.
fn name_of(names: &[&'static str], index: usize) -> &'static str {
    names.get(index).or(names.first()).copied().unwrap_or_default()
}

fn distinct(names: &[&'static str], requests: usize) -> impl Iterator<Item = &'static str> {
    let names = move |index| name_of(names, index);
    let is_first = move |index: &usize| (0..*index).all(|earlier| names(earlier) != names(*index));
    (0..requests).filter(is_first).map(names)
}

/// Records permits that a refund gave back to counters of a rule.
pub(crate) fn refunded(name: &'static str, permits: u32) {
    record(|| {
        series_of(name).count_refunds(permits);
    });
}

/// Records a call under a rule of `configured` limits that has none.
pub(crate) fn unconfigured(name: &'static str) {
    record(|| {
        series_of(name).count_unconfigured();
    });
}

/// Records the time that a call has waited for its permits since it began, for each rule.
pub(crate) fn waited(began: Moment, clock: &Clock, names: &[&'static str]) {
    let waited: Duration = began.until(clock.now());
    record(|| {
        for name in distinct(names, names.len()) {
            series_of(name).record_wait(waited);
        }
    });
}

/// Records a failure of the limiter.
pub(crate) fn failed(error: &Error) {
    record(|| {
        let index = KINDS.iter().position(|kind| *kind == error.kind());
        if let Some(counter) = index.and_then(|index| error_counters().get(index)) {
            counter.increment(1);
        }
    });
}

/// The counters of all kinds. They are registered together, so that each begins at 0.
fn error_counters() -> &'static [Counter] {
    static COUNTERS: PerProcess<OnceLock<[Counter; KINDS.len()]>> = PerProcess::new();
    COUNTERS.here().get_or_init(|| {
        describe_series();
        KINDS.map(|kind| counter!("rate_limited_errors_total", "kind" => kind.as_str()))
    })
}

/// The kinds of failures of calls. `Conflict` is none: only changes of the shared rules have it. `Settled` is a mistake.
const KINDS: [ErrorKind; 12] = [
    ErrorKind::Timeout,
    ErrorKind::Unavailable,
    ErrorKind::Loading,
    ErrorKind::NotServing,
    ErrorKind::ReadOnly,
    ErrorKind::OutOfMemory,
    ErrorKind::Overloaded,
    ErrorKind::Forked,
    ErrorKind::Refused,
    ErrorKind::Protocol,
    ErrorKind::Config,
    ErrorKind::InvalidLimit,
];

/// Records decisions by shared counters. They are reported at most once a second, so no handle is kept.
pub(crate) fn overflowed(source: Source, decisions: u64) {
    record(|| overflow_counter(source).increment(decisions));
}

/// Records the version of the shared rules in force.
pub(crate) fn shared_rules_version(version: u64) {
    record(|| {
        describe_series();
        // A gauge is a float, which is exact up to 2^53 changes.
        gauge!("rate_limited_rules_version").set(version as f64);
    });
}

/// Records that a set of rules is in force, or was refused.
pub(crate) fn rules_loaded(origin: &'static str, is_in_force: bool) {
    record(|| {
        let [in_force, refused] = loads(origin);
        if is_in_force {
            in_force.increment(1);
        } else {
            refused.increment(1);
        }
    });
}

/// Records the numbers of calls of batches.
pub(crate) fn batches_sent(sizes: Vec<u32>) {
    record(|| sizes.into_iter().for_each(|calls| batch_size().record(calls)));
}

fn batch_size() -> &'static Histogram {
    static BATCH_SIZE: PerProcess<OnceLock<Histogram>> = PerProcess::new();
    BATCH_SIZE.here().get_or_init(|| {
        describe_series();
        histogram!("rate_limited_batch_size")
    })
}

/// Records a call to a shared store.
pub(crate) fn store_called(op: StoreOp, is_ok: bool, duration: Duration) {
    record(|| {
        error_counters();
        histogram_of(op, is_ok).record(duration);
    });
}

fn histogram_of(op: StoreOp, is_ok: bool) -> &'static Histogram {
    static HISTOGRAMS: PerProcess<[[OnceLock<Histogram>; 2]; 6]> = PerProcess::new();
    let (index, op) = match op {
        StoreOp::Decide => (0, "decide"),
        StoreOp::Peek => (1, "peek"),
        StoreOp::Refund => (2, "refund"),
        StoreOp::Reset => (3, "reset"),
        StoreOp::Charge => (4, "charge"),
        StoreOp::Settle => (5, "settle"),
    };
    let outcome = if is_ok { "ok" } else { "error" };
    HISTOGRAMS.here()[index][usize::from(is_ok)].get_or_init(|| {
        describe_series();
        histogram!("rate_limited_store_seconds", "op" => op, "outcome" => outcome)
    })
}

// The gauges of the state of limiters.

/// Passes the descriptions of the series to the recorder, once.
pub(crate) fn describe() {
    record(describe_series);
}

/// Sets the number of shared stores, and whether each of them is up.
pub(crate) fn stores(number: u32, are_up: bool) {
    record(|| {
        gauge!("rate_limited_stores").set(number);
        gauge!("rate_limited_store_up").set(u8::from(are_up));
    });
}

/// Sets the number of keys that are counted exactly.
pub(crate) fn key_count(source: Source, keys: u32) {
    record(|| {
        describe_series();
        // Registered here, so that it begins at 0.
        let _ = overflow_counter(source);
        gauge!("rate_limited_keys", "source" => source.as_str()).set(keys);
    });
}

/// The counter of decisions by shared counters. They are reported at most once a second, so no handle is kept.
fn overflow_counter(source: Source) -> Counter {
    describe_series();
    counter!("rate_limited_overflow_total", "source" => source.as_str())
}

/// Sets the number of limiters whose last set of rules of an origin was refused.
pub(crate) fn refused_sets(origin: &'static str, limiters: u32) {
    record(|| gauge!("rate_limited_rules_refused", "origin" => origin).set(limiters));
}

/// Registers the series of an origin of rules.
pub(crate) fn register_loads(origin: &'static str) {
    record(|| drop(loads(origin)));
}

/// Returns the counters of sets that came into force and of those that were refused. It registers all series of the
/// origin, so that each begins at 0.
fn loads(origin: &'static str) -> [Counter; 2] {
    describe_series();
    gauge!("rate_limited_rules_refused", "origin" => origin).increment(0.0);
    #[cfg(all(feature = "rules", feature = "redis"))]
    gauge!("rate_limited_rules_version").increment(0.0);
    ["ok", "refused"]
        .map(|outcome| counter!("rate_limited_rules_loads_total", "origin" => origin, "outcome" => outcome))
}
