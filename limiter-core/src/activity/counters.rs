//! Counters of decisions for each rule. Threads count in stripes of their own, so that they do not wait for each other.

use std::array;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::distinct::DistinctKeys;
use crate::Source;
use crate::decision::DIRECT_CALL;
use crate::metrics::CallOutcome;
use crate::sync::seed;

/// Numbers of decisions about the calls of a rule.
///
/// `allowed`, `denied` and `shadowed` are all of them. The other numbers are parts of these: the decisions that the store
/// did not make. A call under several rules counts for each of them if it is allowed, and otherwise for the one that denied it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityCounts {
    /// Allowed calls.
    pub allowed: u64,
    /// Denied calls.
    pub denied: u64,
    /// Calls that a rule in [shadow mode](crate::Mode::Shadow) would deny.
    pub shadowed: u64,
    /// Decisions with [`Source::DeniedUntil`]: denials from the cache of the process.
    pub by_cache: u64,
    /// Decisions with [`Source::Lease`].
    pub by_lease: u64,
    /// Decisions with [`Source::Standby`].
    pub by_standby: u64,
    /// Decisions with [`Source::Policy`].
    pub by_policy: u64,
}

/// The number of counts.
pub(super) const COUNTS: usize = 7;

impl ActivityCounts {
    /// The counts in the order of the fields.
    pub(super) const fn as_array(self) -> [u64; COUNTS] {
        let Self { allowed, denied, shadowed, by_cache, by_lease, by_standby, by_policy } = self;
        [allowed, denied, shadowed, by_cache, by_lease, by_standby, by_policy]
    }

    pub(super) const fn from_array(counts: [u64; COUNTS]) -> Self {
        let [allowed, denied, shadowed, by_cache, by_lease, by_standby, by_policy] = counts;
        Self { allowed, denied, shadowed, by_cache, by_lease, by_standby, by_policy }
    }

    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let (one, other) = (self.as_array(), other.as_array());
        Self::from_array(array::from_fn(|index| combine(one[index], other[index])))
    }
}

impl Add for ActivityCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl Sub for ActivityCounts {
    type Output = Self;

    /// No count falls below 0.
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

// The counters of all rules.

/// The places of rules. A power of two.
const PLACES: usize = 4096;
/// The most rules with counters of their own. Further ones share those of [`OTHER_RULES`].
const MAX_RULES: usize = PLACES / 4 * 3;
/// The name of the rules that have no counters of their own.
const OTHER_RULES: &str = "(others)";
/// The name of direct calls, which have no rule.
const WITHOUT_RULE: &str = "-";

/// The counters of all rules since the start. A rule is found by the address of its name, which lives until the process
/// ends.
pub(super) struct RuleTotals {
    places: Box<[OnceLock<Box<RuleCounters>>]>,
    rules: AtomicUsize,
    others: RuleCounters,
    stripes: usize,
}

impl RuleTotals {
    pub(super) fn new() -> Self {
        let stripes = thread::available_parallelism().map_or(1, usize::from).next_power_of_two().min(MAX_STRIPES);
        Self {
            places: (0..PLACES).map(|_| OnceLock::new()).collect(),
            rules: AtomicUsize::new(0),
            others: RuleCounters::new(OTHER_RULES, stripes),
            stripes,
        }
    }

    /// Returns the counters of a rule.
    #[inline]
    pub(super) fn of(&self, name: &'static str) -> &RuleCounters {
        // Fibonacci hashing: neighbours in memory go to distant places.
        let mut place = (name.as_ptr().addr().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % PLACES;
        loop {
            match self.places[place].get() {
                Some(rule) if rule.is_of(name) => return rule,
                Some(_) => place = (place + 1) % PLACES,
                None => match self.add(place, name) {
                    Some(rule) if rule.is_of(name) => return rule,
                    // Another thread has added another rule.
                    Some(_) => {}
                    None => return &self.others,
                },
            }
        }
    }

    /// Returns the rule at a place, which is a new one if the place is empty. `None` if there are too many.
    #[cold]
    #[inline(never)]
    fn add(&self, place: usize, name: &'static str) -> Option<&RuleCounters> {
        if self.rules.load(Ordering::Relaxed) >= MAX_RULES {
            return None;
        }
        let rule = self.places[place].get_or_init(|| {
            self.rules.fetch_add(1, Ordering::Relaxed);
            Box::new(RuleCounters::new(name, self.stripes))
        });
        Some(rule)
    }

    /// All rules with a decision. One name may occur several times, at several addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RuleCounters> {
        self.places.iter().filter_map(OnceLock::get).map(|rule| &**rule).chain([&self.others])
    }
}

// The counters of one rule.

/// The most stripes of a rule.
const MAX_STRIPES: usize = 8;

/// The counters of one rule.
pub(super) struct RuleCounters {
    name: &'static str,
    /// Equal names have equal ones.
    name_hash: u64,
    stripes: Box<[Stripe]>,
    /// The keys that were denied since the last log line.
    denied_keys: OnceLock<Box<DistinctKeys>>,
}

/// The counters of some threads, in a cache line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; COUNTS]);

impl RuleCounters {
    fn new(name: &'static str, stripes: usize) -> Self {
        let (name_hash, stripes) = (seed().hash_one(name), (0..stripes).map(|_| Stripe::default()).collect());
        Self { name, name_hash, stripes, denied_keys: OnceLock::new() }
    }

    #[inline]
    fn is_of(&self, name: &'static str) -> bool {
        std::ptr::eq(self.name, name)
    }

    /// Returns the name of the rule as it is shown.
    pub(super) fn shown_name(&self) -> &'static str {
        if self.name == DIRECT_CALL { WITHOUT_RULE } else { self.name }
    }

    /// The hash of the name.
    #[inline]
    pub(super) fn name_hash(&self) -> u64 {
        self.name_hash
    }

    /// Counts a decision.
    #[inline]
    pub(super) fn count(&self, outcome: CallOutcome, source: Source) {
        let Stripe(counters) = &self.stripes[stripe_of_thread() % self.stripes.len()];
        counters[outcome as usize].fetch_add(1, Ordering::Relaxed);
        let part = match source {
            Source::Store | Source::Mode => return,
            Source::DeniedUntil => 3,
            Source::Lease => 4,
            Source::Standby => 5,
            Source::Policy => 6,
        };
        counters[part].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the totals since the start.
    pub(super) fn totals(&self) -> ActivityCounts {
        let of_stripe = |Stripe(counters): &Stripe| {
            ActivityCounts::from_array(array::from_fn(|index| counters[index].load(Ordering::Relaxed)))
        };
        self.stripes.iter().map(of_stripe).fold(ActivityCounts::default(), Add::add)
    }

    /// Adds a key that was denied, by its hash.
    #[inline]
    pub(super) fn add_key(&self, hash: u64) {
        self.denied_keys.get_or_init(Box::default).add(hash);
    }

    /// Returns the number of keys that were denied since the last call.
    pub(super) fn take_denied_keys(&self) -> u64 {
        self.denied_keys.get().map_or(0, |keys| keys.take())
    }
}

/// Returns the number of the thread, for its stripe.
#[inline]
fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static STRIPE: Cell<usize> = const { Cell::new(0) };
    }
    let of_thread = STRIPE.try_with(|stripe| {
        if stripe.get() == 0 {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        stripe.get()
    });
    // The thread ends.
    of_thread.unwrap_or(0)
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn decisions_of_many_threads_are_all_counted() {
        // A literal may be in several places.
        static NAMES: [&str; 2] = ["a", "b"];
        let (rules, [a, b]) = (RuleTotals::new(), NAMES);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        rules.of(a).count(CallOutcome::Allowed, Source::Lease);
                        rules.of(a).count(CallOutcome::Denied, Source::DeniedUntil);
                        rules.of(b).count(CallOutcome::Shadowed, Source::Store);
                    }
                });
            }
        });
        let counted = 80_000;
        let expected = ActivityCounts {
            allowed: counted,
            denied: counted,
            by_lease: counted,
            by_cache: counted,
            ..ActivityCounts::default()
        };
        assert_eq!(rules.of(a).totals(), expected);
        assert_eq!(rules.of(b).totals(), ActivityCounts { shadowed: counted, ..ActivityCounts::default() });
    }

    #[test]
    fn direct_calls_have_no_rule() {
        let rules = RuleTotals::new();
        rules.of(DIRECT_CALL).count(CallOutcome::Allowed, Source::Store);
        let names: Vec<_> =
            rules.iter().filter(|rule| rule.totals().allowed > 0).map(RuleCounters::shown_name).collect();
        assert_eq!(names, [WITHOUT_RULE]);
    }

    #[test]
    fn rules_above_the_bound_are_counted_together() {
        let rules = RuleTotals::new();
        for number in 0..10_000 {
            let name: &'static str = Box::leak(format!("rule {number}").into_boxed_str());
            for _ in 0..2 {
                rules.of(name).count(CallOutcome::Denied, Source::Store);
            }
        }
        let denied = |rule: &RuleCounters| rule.totals().denied;
        assert_eq!(rules.iter().map(denied).sum::<u64>(), 20_000);
        assert_eq!(denied(&rules.others), 2 * (10_000 - u64::try_from(MAX_RULES).expect("few")));
    }
}
