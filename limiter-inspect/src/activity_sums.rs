//! The activity of all limiters together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use rate_limited::{ActivityCounts, ActivityLog, KeyActivity, RuleActivity};

/// A count of a rule.
pub type CountOf = fn(&ActivityCounts) -> u64;

/// The number of counts.
const COUNTS: usize = 7;

/// The counts that are shown as rates, each with its name.
pub const RATES: [(&str, CountOf); COUNTS] = [
    ("allowed", |counts| counts.allowed),
    ("denied", |counts| counts.denied),
    ("shadowed", |counts| counts.shadowed),
    ("cache", |counts| counts.by_cache),
    ("lease", |counts| counts.by_lease),
    ("standby", |counts| counts.by_standby),
    ("policy", |counts| counts.by_policy),
];

/// A rule in all limiters.
#[derive(Debug, Default)]
pub struct RuleSum {
    /// The calls a second, in the order of [`RATES`].
    pub rates: [f64; COUNTS],
    /// All decisions since the starts of the limiters, in the order of [`RATES`].
    pub totals: [u64; COUNTS],
    /// The limiters that have decided by it.
    pub limiters: usize,
}

/// A key in all limiters.
#[derive(Debug)]
pub struct KeySum {
    /// The name of the rule.
    pub rule: String,
    /// The key as Redis has it.
    pub key: String,
    /// The decisions since the starts of the limiters.
    pub count: u64,
    /// The part of `count` that may be of other keys.
    pub error: u64,
    /// The limiters that list it.
    pub limiters: usize,
    /// The time of the last entry with it.
    pub last_seen: SystemTime,
}

/// The rules and keys of all limiters, those first that come first in a table.
#[derive(Debug)]
pub struct ActivitySums {
    /// The rules by their calls.
    pub rules: Vec<(String, RuleSum)>,
    /// The keys that are denied most often, the first one most.
    pub denied: Vec<KeySum>,
    /// The keys that are allowed most often, the first one most.
    pub allowed: Vec<KeySum>,
    /// The number of limiters of each name.
    pub programs: BTreeMap<String, usize>,
}

impl ActivitySums {
    /// Adds up the limiters of a log, of one rule or of all. Rules are by their denied calls first if `by_denials`.
    #[must_use]
    pub fn of(log: &ActivityLog, rule: Option<&str>, by_denials: bool) -> Self {
        let is_shown = |name: &str| rule.is_none_or(|rule| rule == name);
        let (mut rules, mut programs) = (BTreeMap::<_, RuleSum>::new(), BTreeMap::new());
        let (mut denied, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for limiter in log.limiters() {
            *programs.entry(limiter.name.clone()).or_default() += 1;
            for own in limiter.rules.iter().filter(|own| is_shown(&own.rule)) {
                rules.entry(own.rule.clone()).or_default().add(own);
            }
            for (sums, keys) in [(&mut denied, &limiter.denied), (&mut allowed, &limiter.allowed)] {
                keys.iter().filter(|key| is_shown(&key.rule)).for_each(|key| add_key(sums, key));
            }
        }
        let mut rules: Vec<_> = rules.into_iter().collect();
        rules.sort_by(|(_, one), (_, other)| other.order(by_denials).total_cmp(&one.order(by_denials)));
        Self { rules, denied: sorted(denied), allowed: sorted(allowed), programs }
    }
}

impl RuleSum {
    fn add(&mut self, rule: &RuleActivity) {
        self.limiters += 1;
        for (place, (_, count)) in RATES.iter().enumerate() {
            self.rates[place] += rule.per_second(count);
            self.totals[place] = self.totals[place].saturating_add(count(&rule.total));
        }
    }

    /// The number by which rules are sorted: calls a second, and for those without any, all calls.
    fn order(&self, by_denials: bool) -> f64 {
        let [allowed, denied, ..] = self.rates;
        #[expect(clippy::cast_precision_loss, reason = "an order")]
        let [all_allowed, all_denied] = [self.totals[0], self.totals[1]].map(|total| total as f64 * 1e-30);
        if by_denials { denied + all_denied } else { allowed + denied + all_allowed + all_denied }
    }
}

fn add_key<'a>(sums: &mut BTreeMap<(&'a str, &'a str), KeySum>, key: &'a KeyActivity) {
    let KeyActivity { rule, key: text, count, error, last_seen, .. } = key;
    let sum = sums.entry((rule, text)).or_insert_with(|| KeySum {
        rule: rule.clone(),
        key: text.clone(),
        count: 0,
        error: 0,
        limiters: 0,
        last_seen: *last_seen,
    });
    sum.count = sum.count.saturating_add(*count);
    sum.error = sum.error.saturating_add(*error);
    sum.limiters += 1;
    sum.last_seen = sum.last_seen.max(*last_seen);
}

fn sorted(sums: BTreeMap<(&str, &str), KeySum>) -> Vec<KeySum> {
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|sum| Reverse(sum.count));
    sums
}

/// The names of all rules in a log.
#[must_use]
pub fn rule_names(log: &ActivityLog) -> BTreeSet<&str> {
    log.limiters().flat_map(|limiter| &limiter.rules).map(|rule| &*rule.rule).collect()
}
