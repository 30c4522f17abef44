//! Log events of denials. Without a subscriber for them a denial costs one comparison.

use std::cell::Cell;
use std::collections::BTreeSet;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::contain::run_contained;
use crate::decision::DecisionContext;
use crate::sync::Mutex;
use crate::sync::process::{id, lock};
use crate::{Denied, Key, Limit, TARGET};

/// The rules of an event that is logged once for each.
pub(crate) struct LoggedRules {
    names: Mutex<BTreeSet<&'static str>>,
    home: u32,
}

impl Default for LoggedRules {
    fn default() -> Self {
        Self { names: Mutex::default(), home: id() }
    }
}

impl LoggedRules {
    /// Adds a rule. Returns whether the event is to be logged. It is not in a child of `fork` whose parent was adding one.
    pub(crate) fn add(&self, name: &'static str) -> bool {
        lock(&self.names, self.home).is_some_and(|mut names| names.insert(name))
    }
}

/// The rules of a limiter, for the log of denials.
pub(crate) trait LoggedLimits: Send + Sync {
    /// The rules with a limit that never grants the cost of a call: the log has a line about each.
    fn impossible_costs(&self) -> &LoggedRules;

    /// Returns the layer of a limit of calls with this key. `None` for that of an attribute, a service or a direct call.
    fn place_of(&self, limit: Limit, rule: &str, key: &Key) -> Option<LimitPlace>;
}

/// The layer that a limit comes from.
pub(crate) struct LimitPlace {
    pub(crate) origin: &'static str,
    /// The path, if that layer is the file of rules.
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
pub(super) fn denied(denied: &Denied) {
    if is_logged() {
        log(|| event!("denied", denied));
    }
}

/// Logs a call that a rule in shadow mode would deny.
#[inline]
pub(super) fn shadowed(denied: &Denied) {
    if is_logged() {
        log(|| event!("shadowed", denied));
    }
}

/// Logs a denial for the cost of a call, the first of each rule, with the layer of the limit unless it is the call's own.
#[cold]
#[inline(never)]
pub(super) fn impossible_cost(rules: &dyn LoggedLimits, context: DecisionContext<'_>, denied: &Denied) {
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
