//! The limiters that live, and the rules that they have, by their heartbeats.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use limiter_syntax::{Piece, pieces};
use rate_limited::{Algorithm, Error, ErrorKind, Instance, Key, Layout, Limit, Limiter, Mode, Rule, RuleSet};
use serde_json::Value;

use crate::key_pieces::texts_and_parts;

/// The limiters that live, with their rules.
#[derive(Debug)]
pub struct Fleet {
    instances: Vec<Instance>,
    rules: BTreeMap<String, LiveRule>,
    /// Some rules are not known: an inventory is too long, or has ended meanwhile.
    has_more: bool,
}

/// A rule of limiters that live. Its limits may be several sets, as during a deploy.
#[derive(Debug, Default)]
pub struct LiveRule {
    /// The templates of its keys.
    pub keys: BTreeSet<String>,
    /// The sets of limits, each with the number of its limiters.
    pub variants: Vec<LiveLimits>,
}

/// The limits and the mode that some limiters have for a rule, whatever level they come from.
#[derive(Debug)]
pub struct LiveLimits {
    /// The limits that this version reads.
    pub limits: Vec<Limit>,
    /// Those of expressions in the source, and of later versions.
    pub unread: Vec<String>,
    /// The mode in these limiters.
    pub mode: Mode,
    /// The number of hashes that share the counts, if the rule is packed.
    pub packed: Option<u32>,
    /// The block of a key after a denial, such as `10m`.
    pub block: Option<String>,
    /// The level of the limits, such as `attribute`.
    pub origin: String,
    /// The limiters that have them.
    pub limiters: usize,
}

/// The most inventories that are read, those of the most limiters first.
const MAX_INVENTORIES: usize = 64;
/// The most bytes of all inventories.
const MAX_BYTES: usize = 8 << 20;
/// The longest time in which they are read.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Fleet {
    /// Reads the limiters that live and their rules. What no limiter has written is left out, and so is what is too much.
    ///
    /// # Errors
    /// The failure of the store.
    pub async fn read(limiter: &Limiter) -> Result<Self, Error> {
        let instances = limiter.instances().await?;
        let mut counts = BTreeMap::<&str, usize>::new();
        instances.iter().for_each(|instance| *counts.entry(&instance.inventory).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, limiters)| Reverse(*limiters));
        let (mut rules, mut bytes, began) = (BTreeMap::new(), 0, Instant::now());
        let mut has_more = counts.len() > MAX_INVENTORIES;
        for (digest, limiters) in counts.into_iter().take(MAX_INVENTORIES) {
            if bytes > MAX_BYTES || began.elapsed() > TIMEOUT {
                has_more = true;
                break;
            }
            match limiter.inventory(digest).await {
                Ok(Some(text)) => {
                    bytes += text.len();
                    text.lines().for_each(|line| has_more |= !add(&mut rules, line, limiters));
                }
                Ok(None) => has_more = true,
                // A value that no limiter has written.
                Err(error) if error.kind() == ErrorKind::Protocol => has_more = true,
                Err(error) => return Err(error),
            }
        }
        Ok(Self { instances, rules, has_more })
    }

    /// Creates limiters with this inventory for a test: one, or none without any rule.
    #[cfg(test)]
    pub(crate) fn of_inventory(text: &str) -> Self {
        let mut rules = BTreeMap::new();
        assert!(text.lines().all(|line| add(&mut rules, line, 1)), "{text}");
        Self { instances: Vec::new(), rules, has_more: false }
    }

    /// The limiters that live, in the order of their start.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// The rules that limiters have, by their names.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &LiveRule)> {
        self.rules.iter().map(|(name, rule)| (&**name, rule))
    }

    /// Returns a rule by its name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&LiveRule> {
        self.rules.get(name)
    }

    /// Returns whether all rules of limiters are known, and there is a limiter.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.has_more && !self.instances.is_empty()
    }
}

impl LiveLimits {
    /// The settings beside the limits and the mode, such as `block = 10m`.
    pub fn other_settings(&self) -> impl Iterator<Item = String> + use<> {
        let packed = self.packed.map(|buckets| format!("packed = {buckets}"));
        packed.into_iter().chain(self.block.as_ref().map(|block| format!("block = {block}")))
    }
}

impl LiveRule {
    /// The limits that most limiters have, and the others.
    #[must_use]
    pub fn by_limiters(&self) -> Option<(&LiveLimits, Vec<&LiveLimits>)> {
        let mut all: Vec<_> = self.variants.iter().collect();
        all.sort_by_key(|variant| Reverse(variant.limiters));
        let most = all.first().copied()?;
        Some((most, all.split_off(1)))
    }

    /// Returns the rule that most limiters have. `None` without limits that this version reads, and for a rule that no
    /// limiter could have.
    #[must_use]
    pub fn in_most(&self) -> Option<Rule> {
        let (LiveLimits { limits, mode, packed, .. }, _) = self.by_limiters()?;
        let first = limits.iter().find(|limit| !is_whole(limit)).or(limits.first())?;
        let rule = limits.iter().fold(Rule::new().mode(*mode), |rule, limit| rule.limit(*limit));
        let rule = match packed {
            Some(buckets) => rule.packed(*buckets),
            None => rule,
        };
        // An override's limit counts as those of the rule do.
        let is_common = |limit: &Limit| limit.algorithm() == first.algorithm() && limit.layout() == first.layout();
        let rule = match first.algorithm() {
            Algorithm::SlidingWindow if first.layout() == Layout::Compact => rule,
            _ if is_whole(first) || !limits.iter().all(is_common) => rule,
            algorithm => rule.algorithm(algorithm).layout(first.layout()),
        };
        let is_valid = |rule: &Rule| Limiter::memory().set_rules(RuleSet::new().rule("rule", rule.clone())).is_ok();
        // An override's limit has the burst of the rule too.
        let is_bucket = matches!(first.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let with_burst = (is_bucket && first.burst() != first.max()).then(|| rule.clone().burst(first.burst()));
        with_burst.filter(is_valid).or_else(|| Some(rule).filter(is_valid))
    }
}

/// Returns whether the text of a limit alone determines how it counts.
fn is_whole(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Concurrent | Algorithm::Calendar)
}

/// Adds a line of an inventory. Returns `false` for one that is no rule of this version.
fn add(rules: &mut BTreeMap<String, LiveRule>, line: &str, limiters: usize) -> bool {
    let Ok(rule) = serde_json::from_str::<Value>(line) else { return false };
    // For other limiters.
    if rule["counters"].is_string() {
        return true;
    }
    // No rule has an empty name.
    let name = rule["rule"].as_str().filter(|name| !name.is_empty());
    let (Some(name), Some(limits)) = (name, rule["limits"].as_array()) else { return false };
    let known = rules.entry(name.to_owned()).or_default();
    let keys = rule["keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    known.keys.extend(keys.map(str::to_owned));
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for value in limits {
        match limit(value) {
            Some(limit) => read.push(limit),
            None => {
                let text = value.as_str().or_else(|| value["expression"].as_str());
                unread.push(text.map_or_else(|| value.to_string(), str::to_owned));
            }
        }
    }
    let origin = rule["origin"].as_str().unwrap_or("-").to_owned();
    let mode = rule["mode"].as_str().and_then(mode).unwrap_or_default();
    let packed = rule["packed"].as_u64().and_then(|buckets| buckets.try_into().ok());
    let block = rule["block"].as_str().map(str::to_owned);
    let same = |other: &&mut LiveLimits| {
        (&other.limits, &other.unread, other.mode, other.packed, &other.block) == (&read, &unread, mode, packed, &block)
    };
    match known.variants.iter_mut().find(same) {
        Some(same) => same.limiters += limiters,
        None => known.variants.push(LiveLimits { limits: read, unread, mode, packed, block, origin, limiters }),
    }
    true
}

/// Reads a limit of an inventory: a text, or an object with another algorithm.
fn limit(value: &Value) -> Option<Limit> {
    if let Some(text) = value.as_str() {
        return text.parse().ok();
    }
    let limit: Limit = value["limit"].as_str()?.parse().ok()?;
    let limit = limit.with_algorithm(algorithm(value["algorithm"].as_str()?)?);
    let limit = match &value["burst"] {
        Value::Null => limit,
        burst => limit.with_burst(burst.as_u64()?.try_into().ok()?).ok()?,
    };
    match &value["layout"] {
        Value::Null => Some(limit),
        layout if layout.as_str() == Some("zset") => limit.with_layout(Layout::Zset).ok(),
        _ => None,
    }
}

fn mode(name: &str) -> Option<Mode> {
    [Mode::Enforce, Mode::Shadow, Mode::Off, Mode::Deny].into_iter().find(|mode| mode.as_str() == name)
}

fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "sliding_window" => Algorithm::SlidingWindow,
        "fixed_window" => Algorithm::FixedWindow,
        "sliding_counter" => Algorithm::SlidingCounter,
        "token_bucket" => Algorithm::TokenBucket,
        "leaky_bucket" => Algorithm::LeakyBucket,
        _ => return None,
    })
}

/// Returns a limiter for people: its host, as it was written, and its process.
#[must_use]
pub fn place(instance: &Instance) -> String {
    format!("{} ({})", instance.host, instance.pid)
}

/// Returns whether a key may be one of a template. `None` for a key with a digest, and a text that is no template.
#[must_use]
pub fn fits(template: &str, key: &Key) -> Option<bool> {
    let mut found = texts_and_parts(key)?;
    let mut texts = vec![String::new()];
    for piece in pieces(template) {
        match piece.ok()? {
            Piece::Text(text) => texts.last_mut()?.push_str(&text),
            Piece::Value { .. } => texts.push(String::new()),
        }
    }
    if found.len() % 2 == 0 {
        found.push(String::new());
    }
    Some(found.iter().step_by(2).eq(&texts))
}

/// Returns the parts of a template, such as `user_id` of `user:{user_id}`.
#[must_use]
pub fn parts(template: &str) -> Vec<&str> {
    let part = |piece| match piece {
        Ok(Piece::Value { expression, .. }) => Some(expression),
        _ => None,
    };
    pieces(template).filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_fits_the_templates_with_its_texts() {
        let key = |text: &str| Key::from_encoded(text).expect("an encoding");
        for (template, of, expected) in [
            ("getId", "getId", true),
            ("getId", "getid", false),
            ("user:{user_id}", "user:@42", true),
            ("user:{user_id}", "user:@", true),
            ("user:{user_id}", "user:42", false),
            ("user:{user_id}", "user:@42@:search", false),
            ("user:{user.id}:{page:03}", "user:@42@:@001", true),
            ("{a}{b}", "@1@@2", true),
            ("{ip:/32/64}", "@10.0.0.1", true),
            ("a{{b}}:{c}", "a%7Bb%7D:@1", true),
        ] {
            assert_eq!(fits(template, &key(of)), Some(expected), "{template}, {of}");
        }
        assert_eq!(fits("a{", &key("a")), None);
        assert_eq!(fits("{a}", &Key::new("").part("x".repeat(300))), None, "a digest");
    }

    #[test]
    fn an_inventory_is_read_line_by_line() {
        let mut rules = BTreeMap::new();
        let line = |limits: &str| format!(r#"{{"rule":"a","keys":["a:{{b}}"],"limits":[{limits}],"origin":"file"}}"#);
        for (limits, limiters) in [(r#""5/10s""#, 2), (r#""MAX/10s""#, 1), (r#""5/10s""#, 3)] {
            assert!(add(&mut rules, &line(limits), limiters));
        }
        let bucket = r#"{"limit":"5/s","algorithm":"token_bucket","burst":9}"#;
        assert!(add(&mut rules, &line(bucket), 1));
        for other in [
            "",
            "1",
            "[]",
            r#"{"left_out":7}"#,
            r#"{"rule":1,"limits":[]}"#,
            r#"{"rule":"","limits":[]}"#,
            "\u{1b}[31m",
        ] {
            assert!(!add(&mut rules, other, 1), "{other}");
        }
        let found: Vec<_> =
            rules["a"].variants.iter().map(|variant| (variant.limiters, variant.unread.len())).collect();
        assert_eq!((rules.len(), found), (1, vec![(5, 0), (1, 1), (1, 0)]));
        let last = rules["a"].variants[2].limits[0];
        assert_eq!((last.algorithm(), last.burst(), last.max()), (Algorithm::TokenBucket, 9, 5));
        assert_eq!(limit(&serde_json::json!({ "limit": "5/s", "algorithm": "later" })), None);
    }
}
