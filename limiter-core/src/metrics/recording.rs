//! The events that are recorded. Each runs the recorder, which is code of the program: its panics are caught.

use std::iter;
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(all(feature = "rules", feature = "redis"))]
use metrics::gauge;
use metrics::{Counter, counter};

use super::contained::record;
use super::describe::describe;
use super::key_count::{ReplyTime, overflow_counter};
use super::rule_series::{RuleSeries, series_of};
use super::rules_refused::loads;
use super::{CallOutcome, DecidedCall};
use crate::clock::{Clock, Moment};
use crate::request::Request;
use crate::{Error, ErrorKind, Limit, Source};

/// Each rule of a call has the permits that are left of it.
pub(crate) const WANTS_REPORTS: bool = true;

/// Records a decision. An allowed one counts for each of its rules, a denied one for the rule that denied it.
#[inline]
pub(crate) fn decided(call: &DecidedCall<'_>) {
    record(|| {
        if let (CallOutcome::Allowed, [_, _, ..]) = (call.outcome, call.requests) {
            return allowed_by_several(call);
        }
        let Some(series) = series_of(call.name) else { return };
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
pub(crate) fn allowed_fast(name: &'static str, request: &Request<'_>, left: FastAllowed) {
    record(|| {
        if let Some(series) = series_of(name) {
            allowed(series, Source::Store, request, left.remaining);
        }
    });
}

/// The permits left after an allowed call of the fast path, and its time.
#[derive(Clone, Copy)]
pub(crate) struct FastAllowed {
    remaining: u32,
    now: Moment,
}

impl FastAllowed {
    #[inline]
    pub(crate) fn new(remaining: u32, now: Moment) -> Self {
        Self { remaining, now }
    }

    #[inline]
    pub(crate) fn time(self) -> ReplyTime {
        ReplyTime::new(self.now)
    }
}

#[inline]
fn allowed(series: &RuleSeries, source: Source, request: &Request<'_>, remaining: u32) {
    series.count_decision(CallOutcome::Allowed, source);
    if has_taken_permits(source) {
        series.count_permits(request.cost);
    }
    if matches!(source, Source::Store | Source::Lease) && is_near(request.limit, remaining) {
        series.count_near_limit();
    }
    series.set_limits(&iter::once(request.limit));
}

#[cold]
fn allowed_by_several(call: &DecidedCall<'_>) {
    for share in shares(call) {
        let Some(series) = series_of(share.name) else { continue };
        series.count_decision(CallOutcome::Allowed, call.source);
        if has_taken_permits(call.source) {
            series.count_permits(share.requests().map(|(_, request)| request.cost).max().unwrap_or(0));
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
    matches!(source, Source::Store | Source::Lease | Source::Standby)
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
        if let Some(series) = series_of(name) {
            series.count_refunds(permits);
        }
    });
}

/// Records a call under a rule of `configured` limits that has none.
pub(crate) fn unconfigured(name: &'static str) {
    record(|| {
        if let Some(series) = series_of(name) {
            series.count_unconfigured();
        }
    });
}

/// Records the time that a call has waited for its permits since it began, for each rule.
pub(crate) fn waited(began: Moment, clock: &Clock, names: &[&'static str]) {
    let waited: Duration = began.until(clock.now());
    record(|| {
        for name in distinct(names, names.len()) {
            if let Some(series) = series_of(name) {
                series.record_wait(waited);
            }
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
pub(super) fn error_counters() -> &'static [Counter] {
    static COUNTERS: OnceLock<[Counter; KINDS.len()]> = OnceLock::new();
    COUNTERS.get_or_init(|| {
        describe();
        KINDS.map(|kind| counter!("rate_limited_errors_total", "kind" => kind.as_str()))
    })
}

/// The kinds of failures of calls. `Conflict` is none: only changes of the shared rules have it.
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
#[cfg(all(feature = "rules", feature = "redis"))]
pub(crate) fn shared_rules_version(version: u64) {
    record(|| {
        describe();
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
