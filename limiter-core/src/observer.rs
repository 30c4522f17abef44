//! The places where decisions and failures are reported: to observers, to the log and to the series of metrics.
//!
//! Observers are callbacks that cannot change a decision. Their panics are caught, as those of a log subscriber and of a
//! recorder of metrics are.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::activity::Recorder;
use crate::clock::Moment;
use crate::collected;
use crate::decision::DecisionContext;
use crate::metrics::{self, CallOutcome, DecidedCall};
use crate::overflow::{Overflows, Report};
use crate::request::Request;
use crate::run::run_contained;
use crate::sync::{Mutex, lock};
use crate::{Allowed, Decision, Denied, Error, Key, Limit, Overflow, Source, TARGET};

type Observer<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// The observers of a limiter. Each kind runs in the order of registration, on the caller's own thread.
#[derive(Clone, Default)]
pub(crate) struct Observers {
    allowed: Vec<Observer<Allowed>>,
    denied: Vec<Observer<Denied>>,
    shadowed: Vec<Observer<Denied>>,
    failed: Vec<Observer<Error>>,
    overflowed: Vec<Observer<Overflow>>,
    overflows: Option<Arc<Overflows>>,
    /// The rules of the limiter, for the log of denials for a cost. Set when it is built.
    rules: Option<Arc<dyn LoggedLimits>>,
    /// `None` unless the program has turned it on.
    activity: Option<Arc<Recorder>>,
}

impl Observers {
    pub(crate) fn on_allowed(&mut self, observer: impl Fn(&Allowed) + Send + Sync + 'static) {
        self.allowed.push(Arc::new(observer));
    }

    pub(crate) fn on_denied(&mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) {
        self.denied.push(Arc::new(observer));
    }

    pub(crate) fn on_shadowed(&mut self, observer: impl Fn(&Denied) + Send + Sync + 'static) {
        self.shadowed.push(Arc::new(observer));
    }

    pub(crate) fn on_failed(&mut self, observer: impl Fn(&Error) + Send + Sync + 'static) {
        self.failed.push(Arc::new(observer));
    }

    pub(crate) fn on_overflow(&mut self, observer: impl Fn(&Overflow) + Send + Sync + 'static) {
        self.overflowed.push(Arc::new(observer));
    }

    /// Attaches a counter of overflows. Each decision then also reports its overflows, if a report is due.
    pub(crate) fn attach_overflow(&mut self, overflows: Arc<Overflows>) {
        self.overflows = Some(overflows);
    }

    /// Attaches the rules of the limiter.
    pub(crate) fn attach_rules(&mut self, rules: Arc<dyn LoggedLimits>) {
        self.rules = Some(rules);
    }

    /// Attaches the counts of activity.
    pub(crate) fn attach_activity(&mut self, activity: Option<Arc<Recorder>>) {
        self.activity = activity;
    }

    /// The counts of activity.
    #[cfg(test)]
    pub(crate) fn activity(&self) -> Option<&Recorder> {
        self.activity.as_deref()
    }

    /// Returns whether any observer receives allowed calls.
    #[inline]
    pub(crate) fn observe_allowed(&self) -> bool {
        !self.allowed.is_empty()
    }

    /// Returns whether anything receives allowed calls: an observer, or the answer that the calling task works on.
    #[inline]
    pub(crate) fn receive_allowed(&self) -> bool {
        self.observe_allowed() || collected::is_collecting()
    }

    /// Returns whether a report of each request of an allowed call is used.
    #[inline]
    pub(crate) fn want_reports(&self) -> bool {
        metrics::IS_ON || self.observe_allowed()
    }

    /// Reports a decision about one request.
    #[inline(always)]
    pub(crate) fn decided(&self, context: DecisionContext<'_>, decision: &Decision, time: Option<Moment>) {
        collected::add(decision);
        match decision {
            Decision::Allowed(allowed) => {
                self.record_allowed(context, allowed);
                call_each(&self.allowed, allowed);
            }
            Decision::Denied(denied) => self.denied(context, denied),
        }
        self.report_overflow(time);
    }

    /// Reports an allowed call of the fast path, which no observer receives.
    #[inline]
    pub(crate) fn allowed_fast(&self, name: &'static str, request: &Request<'_>, remaining: u32, now: Moment) {
        metrics::allowed_fast(name, request, remaining);
        if let Some(activity) = &self.activity {
            activity.allowed_one(name, request, Source::Store);
        }
        self.report_overflow(Some(now));
    }

    #[inline]
    fn record_allowed(&self, context: DecisionContext<'_>, allowed: &Allowed) {
        record_allowed(context, allowed);
        if let Some(activity) = &self.activity {
            activity.allowed(context, allowed);
        }
    }

    /// Reports a decision. The observers of an allowed one get each of its reports, or the decision itself if it has
    /// none.
    #[inline(always)]
    pub(crate) fn decided_each(
        &self,
        context: DecisionContext<'_>,
        decision: &mut Decision,
        reports: impl FnOnce(&mut Allowed) -> Vec<Allowed>,
    ) {
        collected::add(decision);
        match decision {
            Decision::Allowed(allowed) => {
                self.record_allowed(context, allowed);
                if self.observe_allowed() {
                    match &reports(allowed)[..] {
                        [] => call_all(&self.allowed, allowed),
                        reports => reports.iter().for_each(|report| call_all(&self.allowed, report)),
                    }
                } else if metrics::IS_ON {
                    allowed.discard_reports();
                }
            }
            Decision::Denied(denied) => self.denied(context, denied),
        }
        self.report_overflow(None);
    }

    /// Reports overflows to the observers and the log, if a report is due.
    #[inline]
    fn report_overflow(&self, time: Option<Moment>) {
        let Some(overflows) = &self.overflows else { return };
        overflows.report_keys(time);
        if let Some(report) = overflows.take_due_report() {
            self.overflowed(&report);
        }
    }

    /// Reports a denial.
    #[inline(always)]
    pub(crate) fn denied(&self, context: DecisionContext<'_>, denied: &Denied) {
        record_denied(context, denied, CallOutcome::Denied);
        if let Some(activity) = &self.activity {
            activity.denied(context, denied);
        }
        log_denied(denied);
        self.warn_of_cost(context, denied);
        call_each(&self.denied, denied);
    }

    /// Reports a denial by a mode. The metrics get no request: its limit is none that calls are counted under.
    #[cold]
    pub(crate) fn denied_by_mode(&self, context: DecisionContext<'_>, denied: &Denied) {
        record_denied(DecisionContext::new(&[], &[]), denied, CallOutcome::Denied);
        if let Some(activity) = &self.activity {
            activity.denied(context, denied);
        }
        log_denied(denied);
        call_each(&self.denied, denied);
    }

    /// Reports a call that a rule in shadow mode would deny.
    pub(crate) fn shadowed(&self, context: DecisionContext<'_>, denied: &Denied) {
        record_denied(context, denied, CallOutcome::Shadowed);
        if let Some(activity) = &self.activity {
            activity.shadowed(denied);
        }
        log_shadowed(denied);
        self.warn_of_cost(context, denied);
        call_each(&self.shadowed, denied);
    }

    /// Logs the first denial of each rule for the cost of a call, unless the log has one about the rule from when it was
    /// loaded. A rule that denies every call has none.
    #[inline]
    fn warn_of_cost(&self, context: DecisionContext<'_>, denied: &Denied) {
        if denied.is_final() {
            self.warn_of_final(context, denied);
        }
    }

    #[cold]
    #[inline(never)]
    fn warn_of_final(&self, context: DecisionContext<'_>, denied: &Denied) {
        if denied.source() != Source::Mode
            && let Some(rules) = &self.rules
        {
            log_impossible_cost(&**rules, context, denied);
        }
    }

    /// Reports a failure.
    pub(crate) fn failed(&self, error: &Error) {
        metrics::failed(error);
        call_each(&self.failed, error);
    }

    #[cold]
    fn overflowed(&self, Report { overflow, to_log }: &Report) {
        metrics::overflowed(overflow.source(), overflow.shared());
        call_each(&self.overflowed, overflow);
        if *to_log {
            tracing::warn!(
                target: TARGET,
                max_keys = overflow.max_keys(),
                source = ?overflow.source(),
                "the map of rate limit keys in this process is full: new keys share counters and may be denied early"
            );
        }
    }
}

#[inline]
fn record_allowed(context: DecisionContext<'_>, allowed: &Allowed) {
    let (names, requests) = (context.names, context.enforced());
    let (name, source, remaining) = (allowed.static_name(), allowed.source(), allowed.remaining());
    let (outcome, reports) = (CallOutcome::Allowed, allowed.request_reports());
    metrics::decided(&DecidedCall { names, requests, outcome, name, source, remaining, reports });
}

#[inline]
fn record_denied(context: DecisionContext<'_>, denied: &Denied, outcome: CallOutcome) {
    let (names, requests) = (context.names, context.enforced());
    let (name, source, remaining) = (denied.static_name(), denied.source(), denied.remaining());
    metrics::decided(&DecidedCall { names, requests, outcome, name, source, remaining, reports: &[] });
}

#[inline]
fn call_each<T>(observers: &[Observer<T>], event: &T) {
    if !observers.is_empty() {
        call_all(observers, event);
    }
}

#[cold]
fn call_all<T>(observers: &[Observer<T>], event: &T) {
    for observer in observers {
        if !run_contained(|| observer(event)) {
            tracing::error!(target: TARGET, "an observer of the rate limiter panicked; the decision stands");
        }
    }
}

impl Drop for Observers {
    /// Runs on a caller's thread. The worker may drop the shared count later.
    fn drop(&mut self) {
        if let Some(overflows) = &self.overflows {
            overflows.keys().withdraw();
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("allowed", &self.allowed.len())
            .field("denied", &self.denied.len())
            .field("failed", &self.failed.len())
            .field("overflowed", &self.overflowed.len())
            .finish_non_exhaustive()
    }
}

// Log events of denials. Without a subscriber for them a denial costs one comparison.

/// The rules of an event that is logged once for each.
#[derive(Default)]
pub(crate) struct LoggedRules(Mutex<BTreeSet<&'static str>>);

impl LoggedRules {
    /// Adds a rule. Returns whether the event is to be logged.
    pub(crate) fn add(&self, name: &'static str) -> bool {
        lock(&self.0).insert(name)
    }
}

/// The rules of a limiter, for the log of denials.
pub(crate) trait LoggedLimits: Send + Sync {
    /// The rules with a limit that never grants the cost of a call: the log has a line about each.
    fn impossible_costs(&self) -> &LoggedRules;

    /// Returns the level of a limit of calls with this key. `None` for that of an attribute, a service or a direct call.
    fn place_of(&self, limit: Limit, rule: &str, key: &Key) -> Option<LimitPlace>;
}

/// The level that a limit comes from.
pub(crate) struct LimitPlace {
    pub(crate) origin: &'static str,
    /// The path, if that level is the file of rules.
    pub(crate) file: Option<String>,
}

/// Writes an event about a denial. Its name is part of a static. A final denial has no time of a retry.
macro_rules! event {
    ($name:literal, $denied:expr) => {
        tracing::debug!(
            name: $name,
            target: TARGET,
            rule = $denied.name(),
            limit = %$denied.limit(),
            remaining = $denied.remaining(),
            retry_after_ms = $denied.retry_after_millis(),
            source = $denied.source().as_str(),
            $name
        )
    };
}

/// Logs a denied call. A panic of the subscriber does not end the call.
#[inline]
fn log_denied(denied: &Denied) {
    if is_logged() {
        log(|| event!("denied", denied));
    }
}

/// Logs a call that a rule in shadow mode would deny.
#[inline]
fn log_shadowed(denied: &Denied) {
    if is_logged() {
        log(|| event!("shadowed", denied));
    }
}

/// Logs a denial for the cost of a call, the first of each rule, with the level of the limit unless it is the call's own.
#[cold]
#[inline(never)]
fn log_impossible_cost(rules: &dyn LoggedLimits, context: DecisionContext<'_>, denied: &Denied) {
    if !rules.impossible_costs().add(denied.static_name()) {
        return;
    }
    let request = context.requests.get(denied.request_index());
    let place = request.and_then(|request| rules.place_of(denied.limit(), denied.static_name(), request.key));
    run_contained(|| {
        tracing::warn!(
            target: TARGET,
            rule = denied.static_name(),
            cost = request.map(|request| request.cost),
            limit = %denied.limit(),
            origin = place.as_ref().map(|place| place.origin),
            file = place.as_ref().and_then(|place| place.file.as_deref()),
            "a call was denied for its cost, which the limit never grants: no wait helps; raise the limit, or lower the \
             cost"
        );
    });
}

#[inline]
fn is_logged() -> bool {
    Level::DEBUG <= LevelFilter::current()
}

thread_local! {
    /// True while the subscriber of this thread runs.
    static IS_LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `write`, unless it is called inside of itself: a subscriber that is rate limited itself may be denied.
#[cold]
#[inline(never)]
fn log(write: impl FnOnce()) {
    if IS_LOGGING.try_with(|is_logging| is_logging.replace(true)).unwrap_or(true) {
        return;
    }
    run_contained(write);
    let _ = IS_LOGGING.try_with(|is_logging| is_logging.set(false));
}
