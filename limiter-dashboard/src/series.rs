//! The rates of each rule over the last 15 minutes.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_inspect::RuleSum;
use rate_limited::DenialBurst;
use serde_json::{Value, json};

/// The time that is kept.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// The most rules with rates over time, and the most points of each.
const MAX_RULES: usize = 500;
const MAX_POINTS: usize = 900;
/// The time between two readings above which the denials of the stream fill the gap.
const MAX_GAP: Duration = Duration::from_secs(4);
/// The time of one point in a gap.
const GAP_STEP: Duration = Duration::from_secs(5);

/// Calls a second at one time. In a time without readings only the denials are known.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: SystemTime,
    allowed: Option<f64>,
    denied: f64,
}

/// The points of each rule.
#[derive(Default)]
pub(crate) struct Series {
    rules: BTreeMap<String, VecDeque<Point>>,
    read_at: Option<SystemTime>,
}

impl Series {
    /// Adds the rates of a reading, and the denials since the one before.
    pub(crate) fn add(&mut self, at: SystemTime, rules: &[(String, RuleSum)], bursts: &[DenialBurst]) {
        let is_gap = self.read_at.is_none_or(|before| at.duration_since(before).is_ok_and(|time| time > MAX_GAP));
        if is_gap {
            self.fill_gap(at, bursts);
        }
        self.read_at = Some(at);
        for (rule, sum) in rules {
            let [allowed, denied, ..] = sum.rates;
            self.push(rule, Point { at, allowed: Some(allowed), denied });
        }
        self.rules.retain(|_, points| {
            while points.front().is_some_and(|point| at.duration_since(point.at).is_ok_and(|age| age > KEPT)) {
                points.pop_front();
            }
            !points.is_empty()
        });
    }

    fn fill_gap(&mut self, at: SystemTime, bursts: &[DenialBurst]) {
        let step = GAP_STEP.as_secs();
        let second = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut denials = BTreeMap::<(&str, u64), u64>::new();
        for burst in bursts {
            let denials = denials.entry((&burst.rule, second(burst.at) / step)).or_default();
            *denials = denials.saturating_add(burst.denials);
        }
        // The last step is that of the reading.
        for ((rule, place), denials) in denials.into_iter().filter(|((_, place), _)| *place < second(at) / step) {
            let at = UNIX_EPOCH + Duration::from_secs((place + 1) * step);
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let denied = denials as f64 / GAP_STEP.as_secs_f64();
            self.push(rule, Point { at, allowed: None, denied });
        }
    }

    fn push(&mut self, rule: &str, point: Point) {
        if self.rules.len() >= MAX_RULES && !self.rules.contains_key(rule) {
            return;
        }
        let points = self.rules.entry(rule.to_owned()).or_default();
        // A clock of another server may be behind.
        if points.back().is_none_or(|last| last.at < point.at) {
            points.push_back(point);
        }
        if points.len() > MAX_POINTS {
            points.pop_front();
        }
    }

    /// Returns the last points of a rule as JSON: time in milliseconds, allowed and denied calls a second.
    pub(crate) fn to_json(&self, rule: &str, most: usize) -> Value {
        let Some(points) = self.rules.get(rule) else { return json!([]) };
        let point = |point: &Point| json!([unix_millis(point.at), point.allowed.map(rounded), rounded(point.denied)]);
        points.iter().skip(points.len().saturating_sub(most)).map(point).collect()
    }
}

/// The latest time of a browser, in milliseconds.
const MAX_MILLIS: u64 = 8_640_000_000_000_000;

/// Returns a time in milliseconds since 1970. One that no browser has is the latest.
pub(crate) fn unix_millis(time: SystemTime) -> u64 {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(millis).unwrap_or(MAX_MILLIS).min(MAX_MILLIS)
}

/// Returns a rate with three digits behind the point.
pub(crate) fn rounded(rate: f64) -> f64 {
    (rate * 1_000.0).round() / 1_000.0
}
