//! Activity: totals of decisions for each rule, and the keys that are denied and allowed most often.
//!
//! Decisions are counted where they are reported. A limiter with a store on Redis writes the totals into a stream beside
//! its heartbeats, as texts that this module makes and reads. Once a minute the log has a line for each rule that denies.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::decision::DecisionContext;
use crate::metrics::CallOutcome;
use crate::request::Request;
use crate::sync::{seed, unless_blocked};
use crate::{Allowed, Denied, Source};

mod counters;
mod distinct;
mod sketch;
mod minute;
#[cfg(feature = "redis")]
mod entry;
#[cfg(feature = "redis")]
mod publication;
#[cfg(feature = "redis")]
mod log;

pub use counters::ActivityCounts;
#[cfg(feature = "redis")]
pub use log::{ActivityLog, DenialBurst, KeyActivity, LimiterActivity, RuleActivity};

use counters::{RuleCounters, RuleTotals};
#[cfg(feature = "redis")]
use publication::Publication;
use sketch::SpaceSaving;

/// The options of [`Builder::activity`](crate::Builder::activity): a name for the program, and the number of keys that are
/// shown.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Activity, Limiter};
///
/// # fn main() -> Result<(), rate_limited::Error> {
/// let activity = Activity::new("checkout").top_keys(50);
/// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").activity(activity).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Activity {
    name: String,
    top_keys: u32,
    /// The shortest time between two entries.
    entry_interval: Duration,
    /// The time between two log lines of a rule.
    log_interval: Duration,
}

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The most keys of each kind that are shown.
const MAX_TOP_KEYS: u32 = 100;

impl Activity {
    /// Creates the options for a program with this name, such as `checkout`: 1 to 64 bytes. The limiter is listed under it.
    ///
    /// Up to 20 denied and 20 allowed keys are shown, unless [`top_keys`](Self::top_keys) is called.
    #[must_use]
    pub fn new(name: impl AsRef<str>) -> Self {
        let (entry_interval, log_interval) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { name: name.as_ref().to_owned(), top_keys: 20, entry_interval, log_interval }
    }

    /// Sets how many of the most denied keys are shown, and how many of the most allowed ones: 0 to 100. Default: 20. With 0
    /// no key is kept or written.
    ///
    /// The keys are those that Redis has: readable, or digests with `hash_keys`. Each takes up to 3 kB of memory for each of
    /// the two lists.
    #[must_use]
    pub fn top_keys(mut self, keys: u32) -> Self {
        self.top_keys = keys;
        self
    }

    /// Shortens the time between two entries and between two log lines, for tests of this project.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn intervals(mut self, entry: Duration, log: Duration) -> Self {
        (self.entry_interval, self.log_interval) = (entry, log);
        self
    }

    /// Returns what is wrong with the options.
    pub(crate) fn option_problem(&self) -> Option<String> {
        let Self { name, top_keys, .. } = self;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let bytes = name.len();
            return Some(format!(
                "`activity` must have a name of 1 to {MAX_NAME_BYTES} bytes, got {bytes}: write a word for the program"
            ));
        }
        (*top_keys > MAX_TOP_KEYS).then(|| {
            format!("`top_keys` must be at most {MAX_TOP_KEYS}, got {top_keys}: leave it out for the default of 20")
        })
    }
}

/// The counts of one limiter in one process. A child of `fork` begins its own.
pub(crate) struct Recorder {
    options: Activity,
    rules: RuleTotals,
    /// `None` if no key is kept.
    keys: Option<TopKeys>,
    #[cfg(feature = "redis")]
    publication: Mutex<Publication>,
}

/// The sketches of denied and of allowed keys. A decision that finds one in use by another thread is left out of it: such
/// losses are spread over the keys as the decisions are, so the order of the keys stays.
type TopKeys = [Mutex<SpaceSaving>; 2];

/// The counters of a sketch for each key that is shown. The more, the better are the counts.
const COUNTERS_OF_TOP_KEY: usize = 8;

impl Recorder {
    /// Creates the counts of a limiter, and starts its log lines.
    pub(crate) fn start(options: Activity) -> Arc<Self> {
        let shown = usize::try_from(options.top_keys).unwrap_or(0);
        let sketch = || Mutex::new(SpaceSaving::new(COUNTERS_OF_TOP_KEY * shown));
        let keys = (shown > 0).then(|| [sketch(), sketch()]);
        let log_interval = options.log_interval;
        let recorder = Arc::new(Self {
            options,
            rules: RuleTotals::new(),
            keys,
            #[cfg(feature = "redis")]
            publication: Mutex::new(Publication::new()),
        });
        minute::log_each(log_interval, Arc::downgrade(&recorder));
        recorder
    }

    /// Counts an allowed call: once for each of its rules, and for each of its keys. Out of line as the others are, so that a
    /// decision without activity has one branch.
    #[cold]
    #[inline(never)]
    pub(crate) fn allowed(&self, context: DecisionContext<'_>, allowed: &Allowed) {
        match context.enforced() {
            [request] => self.allowed_one(allowed.static_name(), request, allowed.source()),
            requests => self.allowed_several(context, requests, allowed.source()),
        }
    }

    /// Counts an allowed call of one request.
    #[cold]
    #[inline(never)]
    pub(crate) fn allowed_one(&self, name: &'static str, request: &Request<'_>, source: Source) {
        let rule = self.rules.of(name);
        rule.count(CallOutcome::Allowed, source);
        if let Some([_, allowed]) = &self.keys {
            count_key(allowed, rule, request.key.hash_of_key(&seed()), request);
        }
    }

    #[cold]
    fn allowed_several(&self, context: DecisionContext<'_>, requests: &[Request<'_>], source: Source) {
        if requests.is_empty() {
            return self.rules.of(context.name_of(0)).count(CallOutcome::Allowed, source);
        }
        // The requests of a rule are neighbours, and several limits of it have one key.
        let mut last: Option<(&'static str, &Request<'_>)> = None;
        for (index, request) in requests.iter().enumerate() {
            let name = context.name_of(index);
            let rule = self.rules.of(name);
            if last.is_none_or(|(before, _)| before != name) {
                rule.count(CallOutcome::Allowed, source);
            }
            if let Some([_, allowed]) = &self.keys
                && last.is_none_or(|(before, other)| before != name || other.key != request.key)
            {
                count_key(allowed, rule, request.key.hash_of_key(&seed()), request);
            }
            last = Some((name, request));
        }
    }

    /// Counts a denied call, for the rule and the key that denied it.
    #[cold]
    #[inline(never)]
    pub(crate) fn denied(&self, context: DecisionContext<'_>, denied: &Denied) {
        let rule = self.rules.of(denied.static_name());
        rule.count(CallOutcome::Denied, denied.source());
        let Some(request) = context.requests.get(denied.request_index()) else { return };
        let hash = request.key.hash_of_key(&seed());
        rule.add_key(hash);
        if let Some([denied_keys, _]) = &self.keys {
            count_key(denied_keys, rule, hash, request);
        }
    }

    /// Counts a call that a rule in shadow mode would deny.
    pub(crate) fn shadowed(&self, denied: &Denied) {
        self.rules.of(denied.static_name()).count(CallOutcome::Shadowed, denied.source());
    }
}

/// Counts a key in a sketch, unless another thread uses that.
#[inline]
fn count_key(sketch: &Mutex<SpaceSaving>, rule: &RuleCounters, key_hash: u64, request: &Request<'_>) {
    if let Some(mut sketch) = unless_blocked(sketch.try_lock()) {
        let id = sketch::id_of(rule.name_hash(), key_hash);
        sketch.add(id, rule.shown_name(), || request.key.encoding());
    }
}

/// Shows no key.
impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "test-util", not(limiter_loom)))]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;
    use crate::{Key, Limit, Limiter};

    /// Measures a decision in memory, with activity and without: `cargo test … -- --ignored --nocapture a_decision`.
    #[test]
    #[ignore = "is a measurement"]
    fn a_decision_takes_at_most_60_ns_more_with_activity() {
        const CALLS: usize = 2_000_000;
        let cases = [
            ("allowed", "1000000000/1h", 1_000),
            ("denied", "1/1h", 1_000),
            ("denied, all keys new", "1/1h", 1_000_000),
        ];
        for (name, limit, keys) in cases {
            let limit: Limit = limit.parse().expect("a limit");
            let keys: Vec<_> = (0..keys).map(|key| Key::new("user:").part(key)).collect();
            let nanos = |limiter: Limiter| {
                let named = limiter.named("search");
                let mut best = f64::MAX;
                keys.iter().for_each(|key| drop(named.check_blocking(key, &limit)));
                for _ in 0..5 {
                    let began = Instant::now();
                    for call in 0..CALLS {
                        drop(black_box(named.check_blocking(&keys[call * 7 % keys.len()], &limit)));
                    }
                    best = best.min(began.elapsed().as_secs_f64() * 1e9 / 2e6);
                }
                best
            };
            let off = nanos(Limiter::builder().max_keys(2_000_000).build().expect("valid"));
            let on = |top_keys| {
                let activity = Activity::new("test").top_keys(top_keys);
                nanos(Limiter::builder().max_keys(2_000_000).activity(activity).build().expect("valid"))
            };
            println!("{name}: off {off:.0} ns, on {:.0} ns, without keys {:.0} ns", on(20), on(0));
        }
    }
}
