//! The events that are recorded. Each runs the recorder, which is code of the program: its panics are caught.

use std::iter;
#[cfg(feature = "redis")]
use std::mem;
#[cfg(feature = "redis")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::contained::record;
use super::describe::describe;
use super::key_count::{ReplyTime, overflow_counter};
use super::rule_series::{RuleSeries, series_of};
use super::rules_refused::loads;
use super::{CallOutcome, DecidedCall};
use crate::clock::{Clock, Moment};
use crate::health::HealthState;
use crate::metrics::StoreOp;
use crate::request::Request;
use crate::sync::process::PerProcess;
#[cfg(feature = "redis")]
use crate::sync::{Mutex, lock};
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
pub(crate) fn allowed_fast(name: &'static str, request: &Request<'_>, left: FastAllowed) {
    record(|| {
        allowed(series_of(name), Source::Store, request, left.remaining);
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
pub(super) fn error_counters() -> &'static [Counter] {
    static COUNTERS: PerProcess<OnceLock<[Counter; KINDS.len()]>> = PerProcess::new();
    COUNTERS.here().get_or_init(|| {
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

// The sizes of batches, on their way from the worker to a caller.

/// The sizes of batches that are not recorded yet. The worker adds them, and the next caller with a reply records them:
/// a recorder is code of the program, which must not run on the worker's thread.
#[cfg(feature = "redis")]
#[derive(Clone, Debug)]
pub(crate) struct BatchSizes(Arc<WaitingSizes>);

#[cfg(feature = "redis")]
#[derive(Debug)]
struct WaitingSizes {
    has_any: AtomicBool,
    sizes: Mutex<Vec<u32>>,
}

/// The most sizes that wait for a caller. Further ones are not recorded.
#[cfg(feature = "redis")]
const MAX_WAITING: usize = 1024;

#[cfg(feature = "redis")]
impl BatchSizes {
    pub(crate) fn new() -> Self {
        Self(Arc::new(WaitingSizes { has_any: AtomicBool::new(false), sizes: Mutex::default() }))
    }

    /// Adds the number of calls of a batch.
    pub(crate) fn push(&self, calls: usize) {
        let mut sizes = lock(&self.0.sizes);
        if sizes.len() < MAX_WAITING {
            sizes.push(u32::try_from(calls).unwrap_or(u32::MAX));
        }
        self.0.has_any.store(true, Ordering::Relaxed);
    }

    /// Records the sizes on the thread of a caller.
    pub(crate) fn record(&self) {
        if !self.0.has_any.load(Ordering::Relaxed) {
            return;
        }
        let sizes = {
            let mut sizes = lock(&self.0.sizes);
            self.0.has_any.store(false, Ordering::Relaxed);
            mem::take(&mut *sizes)
        };
        record(|| sizes.into_iter().for_each(|calls| batch_size().record(calls)));
    }
}

#[cfg(feature = "redis")]
fn batch_size() -> &'static Histogram {
    static BATCH_SIZE: PerProcess<OnceLock<Histogram>> = PerProcess::new();
    BATCH_SIZE.here().get_or_init(|| {
        describe();
        histogram!("rate_limited_batch_size")
    })
}

// The duration of a call to a shared store.

/// A call to a shared store. A call whose future is dropped is not recorded.
pub(crate) struct StoreCall {
    op: StoreOp,
    began: Instant,
}

impl StoreCall {
    pub(crate) fn begin(op: StoreOp) -> Self {
        Self { op, began: Instant::now() }
    }

    /// Records the time since the begin.
    pub(crate) fn end(self, is_ok: bool) {
        record(|| {
            error_counters();
            histogram_of(self.op, is_ok).record(self.began.elapsed());
        });
    }
}

fn histogram_of(op: StoreOp, is_ok: bool) -> &'static Histogram {
    static HISTOGRAMS: PerProcess<[[OnceLock<Histogram>; 2]; 4]> = PerProcess::new();
    let (index, op) = match op {
        StoreOp::Decide => (0, "decide"),
        StoreOp::Peek => (1, "peek"),
        StoreOp::Refund => (2, "refund"),
        StoreOp::Reset => (3, "reset"),
    };
    let outcome = if is_ok { "ok" } else { "error" };
    HISTOGRAMS.here()[index][usize::from(is_ok)].get_or_init(|| {
        describe();
        histogram!("rate_limited_store_seconds", "op" => op, "outcome" => outcome)
    })
}

// The gauges of the number and of the state of shared stores.

/// A shared store of this process. The gauge is 1 while each of them is up.
///
/// The limiter owns the value: its drop runs the recorder, which must not run on the thread of a worker.
#[derive(Debug)]
pub(crate) struct StoreUp(Arc<StoreState>);

/// The state of a store, which its changes are written to. They are no longer counted once the limiter is dropped.
#[derive(Debug)]
pub(crate) struct StoreState {
    state: AtomicU8,
}

const DOWN: u8 = 0;
const UP: u8 = 1;
/// The limiter is dropped.
const WITHDRAWN: u8 = 2;

static STORES: PerProcess<AtomicU32> = PerProcess::new();
static STORES_UP: PerProcess<AtomicU32> = PerProcess::new();

impl StoreUp {
    /// Adds a store in a state. The gauges show it once [`show_stores`] was called.
    pub(crate) fn new(state: HealthState) -> Self {
        STORES.here().fetch_add(1, Ordering::SeqCst);
        let store = Self(Arc::new(StoreState { state: AtomicU8::new(DOWN) }));
        store.0.change(if state == HealthState::Up { UP } else { DOWN });
        store
    }

    /// Returns the state, for its changes.
    #[cfg(feature = "redis")]
    pub(crate) fn state(&self) -> Arc<StoreState> {
        Arc::clone(&self.0)
    }
}

impl Drop for StoreUp {
    fn drop(&mut self) {
        self.0.change(WITHDRAWN);
        STORES.here().fetch_sub(1, Ordering::SeqCst);
        show_stores();
    }
}

impl StoreState {
    /// Sets the state. It runs the recorder.
    #[cfg(feature = "redis")]
    pub(crate) fn set(&self, state: HealthState) {
        record(describe);
        self.change(if state == HealthState::Up { UP } else { DOWN });
        show_stores();
    }

    fn change(&self, new: u8) {
        let change = |old| (old != WITHDRAWN && old != new).then_some(new);
        let Ok(old) = self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) else { return };
        match (old, new) {
            (_, UP) => drop(STORES_UP.here().fetch_add(1, Ordering::SeqCst)),
            (UP, _) => drop(STORES_UP.here().fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

/// Sets the gauges, again if another thread has changed the state meanwhile. It runs the recorder.
pub(crate) fn show_stores() {
    record(|| {
        let (gauge, up) = (gauge!("rate_limited_stores"), gauge!("rate_limited_store_up"));
        loop {
            let shown = present();
            gauge.set(shown.0);
            up.set(u8::from(shown.1));
            if present() == shown {
                break;
            }
        }
    });
}

/// Returns the number of stores, and whether there are any and each is up.
fn present() -> (u32, bool) {
    let stores = STORES.here().load(Ordering::SeqCst);
    (stores, stores > 0 && STORES_UP.here().load(Ordering::SeqCst) == stores)
}
