//! The series of one rule. Their handles are created at its first decision and kept until the process ends.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::describe::describe_series;
use crate::limit::WindowName;
use crate::metrics::CallOutcome;
use crate::sync::process::PerProcess;
use crate::sync::{RwLock, read, write};
use crate::{Limit, Source};

/// The handles of a rule. Rare ones are registered by their first event.
pub(super) struct RuleSeries {
    name: &'static str,
    decisions: [[OnceLock<Counter>; Source::COUNT]; OUTCOMES],
    permits: Counter,
    near_limit: Counter,
    refunds: OnceLock<Counter>,
    charges: OnceLock<ChargeCounters>,
    unconfigured: OnceLock<Counter>,
    wait: OnceLock<Histogram>,
    limits: LimitGauges,
}

/// The counters of charges. They are registered together, so that each begins at 0.
struct ChargeCounters {
    counted: Counter,
    overdrawn: Counter,
    full: Counter,
    failed: Counter,
}

/// The label `reason` of permits that are not counted.
#[derive(Clone, Copy)]
pub(super) enum UncountedReason {
    /// The counter is at one of its bounds.
    Full,
    /// The charge failed. The store may have counted it or not.
    Error,
}

const OUTCOMES: usize = 3;

impl RuleSeries {
    /// Registers the usual series of a rule, so that they begin at 0.
    fn new(name: &'static str) -> Self {
        describe_series();
        let series = Self {
            name,
            decisions: Default::default(),
            permits: counter!("rate_limited_permits_total", "rule" => name),
            near_limit: counter!("rate_limited_near_limit_total", "rule" => name),
            refunds: OnceLock::new(),
            charges: OnceLock::new(),
            unconfigured: OnceLock::new(),
            wait: OnceLock::new(),
            limits: LimitGauges::new(name),
        };
        series.decisions_by(CallOutcome::Allowed, Source::Store);
        series.decisions_by(CallOutcome::Denied, Source::Store);
        series
    }

    #[inline]
    pub(super) fn count_decision(&self, outcome: CallOutcome, source: Source) {
        self.decisions_by(outcome, source).increment(1);
    }

    #[inline]
    fn decisions_by(&self, outcome: CallOutcome, source: Source) -> &Counter {
        let (outcome_index, outcome) = match outcome {
            CallOutcome::Allowed => (0, "allowed"),
            CallOutcome::Denied => (1, "denied"),
            CallOutcome::Shadowed => (2, "shadowed"),
        };
        self.decisions[outcome_index][source.index()].get_or_init(|| {
            let source = source.as_str();
            counter!("rate_limited_decisions_total", "rule" => self.name, "outcome" => outcome, "source" => source)
        })
    }

    #[inline]
    pub(super) fn count_permits(&self, permits: u32) {
        self.permits.increment(permits.into());
    }

    #[inline]
    pub(super) fn count_near_limit(&self) {
        self.near_limit.increment(1);
    }

    pub(super) fn count_refunds(&self, permits: u32) {
        let register = || counter!("rate_limited_refunds_total", "rule" => self.name);
        self.refunds.get_or_init(register).increment(permits.into());
    }

    /// Counts permits of a charge, and those of them that are beyond the limit.
    pub(super) fn count_charges(&self, counted: u32, overdrawn: u32) {
        let counters = self.charge_counters();
        counters.counted.increment(counted.into());
        counters.overdrawn.increment(overdrawn.into());
    }

    /// Counts permits of a charge that no counter has.
    pub(super) fn count_uncounted(&self, reason: UncountedReason, permits: u32) {
        let counters = self.charge_counters();
        let counter = match reason {
            UncountedReason::Full => &counters.full,
            UncountedReason::Error => &counters.failed,
        };
        counter.increment(permits.into());
    }

    fn charge_counters(&self) -> &ChargeCounters {
        let of_rule = |series| counter!(series, "rule" => self.name);
        let uncounted = |reason| counter!("rate_limited_uncounted_total", "rule" => self.name, "reason" => reason);
        self.charges.get_or_init(|| ChargeCounters {
            counted: of_rule("rate_limited_charges_total"),
            overdrawn: of_rule("rate_limited_overdrawn_total"),
            full: uncounted("full"),
            failed: uncounted("error"),
        })
    }

    pub(super) fn count_unconfigured(&self) {
        let register = || counter!("rate_limited_unconfigured_total", "rule" => self.name);
        self.unconfigured.get_or_init(register).increment(1);
    }

    pub(super) fn record_wait(&self, waited: Duration) {
        let register = || histogram!("rate_limited_wait_seconds", "rule" => self.name);
        self.wait.get_or_init(register).record(waited);
    }

    #[inline]
    pub(super) fn set_limits(&self, limits: &(impl Iterator<Item = Limit> + Clone)) {
        self.limits.set(limits);
    }
}

/// The rules of each thread that it used last, by the addresses of their names.
const CACHED_RULES: usize = 128;

thread_local! {
    static CACHE: [Cell<Option<CachedSeries>>; CACHED_RULES] = const { [const { Cell::new(None) }; CACHED_RULES] };
}

#[derive(Clone, Copy)]
struct CachedSeries {
    /// The series of the process that cached this one.
    all: &'static AllSeries,
    name: &'static str,
    series: &'static RuleSeries,
}

/// Returns the series of a rule.
#[inline]
pub(super) fn series_of(name: &'static str) -> &'static RuleSeries {
    let all = SERIES.here();
    let cached = CACHE.try_with(|cache| {
        let slot = &cache[cache_index(name)];
        match slot.get() {
            // Names live until the process ends, so equal addresses are equal names.
            Some(cached) if ptr::eq(cached.name, name) && ptr::eq(cached.all, all) => cached.series,
            _ => {
                let series = registered_series(all, name);
                slot.set(Some(CachedSeries { all, name, series }));
                series
            }
        }
    });
    // The thread ends.
    cached.unwrap_or_else(|_| registered_series(all, name))
}

#[inline]
fn cache_index(name: &str) -> usize {
    // Fibonacci hashing: neighbours in memory go to distant places.
    (name.as_ptr().addr().wrapping_mul(0x9E37_79B9) >> 25) % CACHED_RULES
}

/// The series of all rules, by name. There are at most 10 000 names that a program chooses at run time.
static SERIES: PerProcess<AllSeries> = PerProcess::new();

type AllSeries = RwLock<HashMap<&'static str, &'static RuleSeries>>;

#[cold]
#[inline(never)]
fn registered_series(all: &AllSeries, name: &'static str) -> &'static RuleSeries {
    if let Some(known) = read(all).get(name) {
        return known;
    }
    // The recorder runs without the lock. It returns equal handles to threads that register a rule at the same time.
    let series = RuleSeries::new(name);
    write(all).entry(name).or_insert_with(|| Box::leak(Box::new(series)))
}

// The gauges of a rule's limits in force.

/// The limits of a rule in its latest decision: one gauge for each window.
pub(super) struct LimitGauges {
    rule: &'static str,
    /// The fingerprint of the limits that the gauges show; 0 before the first.
    shown: AtomicU64,
    windows: Mutex<Vec<WindowGauge>>,
}

struct WindowGauge {
    name: WindowName,
    max: u32,
    gauge: Gauge,
}

/// The most windows of one rule. A limit that depends on the call may have any number of them.
const MAX_WINDOWS: usize = 16;

impl LimitGauges {
    pub(super) fn new(rule: &'static str) -> Self {
        Self { rule, shown: AtomicU64::new(0), windows: Mutex::default() }
    }

    /// Shows these limits of the rule. Windows of earlier decisions get 0.
    #[inline]
    pub(super) fn set(&self, limits: &(impl Iterator<Item = Limit> + Clone)) {
        let new = fingerprint(limits.clone());
        if self.shown.load(Ordering::Relaxed) != new {
            self.change(limits, new);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&self, limits: &(impl Iterator<Item = Limit> + Clone), new: u64) {
        let mut windows = match self.windows.try_lock() {
            Ok(windows) => windows,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another call changes them. The next call compares again.
            Err(TryLockError::WouldBlock) => return,
        };
        for name in limits.clone().map(|limit| limit.window_name()) {
            if windows.len() < MAX_WINDOWS && windows.iter().all(|window| window.name != name) {
                let gauge = gauge!("rate_limited_limit", "rule" => self.rule, "window" => name.to_string());
                windows.push(WindowGauge { name, max: 0, gauge });
            }
        }
        for window in windows.iter_mut() {
            let own = limits.clone().filter(|limit| limit.window_name() == window.name);
            let max = own.map(|limit| limit.max()).min().unwrap_or(0);
            if window.max != max {
                window.max = max;
                window.gauge.set(max);
            }
        }
        self.shown.store(new, Ordering::Relaxed);
    }
}

/// Returns a number that differs for other limits. It is never 0.
#[inline]
fn fingerprint(limits: impl Iterator<Item = Limit>) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let window = |limit: Limit| if limit.is_concurrent() { 0 } else { limit.window_millis() };
    let mix = |sum: u64, value: u64| (sum ^ value).wrapping_mul(FACTOR).rotate_left(32);
    limits.fold(1, |sum, limit| mix(mix(sum, limit.max().into()), window(limit))) | 1
}
