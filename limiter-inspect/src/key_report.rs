//! The state of a key under each rule that fits it.
//!
//! A limiter that lives has written the limits and the mode in force in it, whatever level they come from. They are the rules
//! of the limiter that reads the counts. Of the shared rules it takes the overrides and plans, and whole rules that no limiter
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rate_limited::{
    Algorithm, Decision, DenialBurst, Error, Key, Limit, LimitUsage, Limiter, Mode, Origin, RuleInForce, RuleSet,
    SharedRules, Source,
};
use serde_json::{Value, json};

use crate::denials::{denial_json, denials_of_key};
use crate::fleet::{Fleet, LiveLimits, fits, place};
use crate::key_pieces::texts_and_parts;
use crate::rules_alone::stated_keys;

mod live_rules;

use live_rules::{of_limiters, shared_beside};

/// A question about a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyQuestion<'q> {
    /// The key.
    pub key: &'q Key,
    /// The rule, in place of each one that fits the key.
    pub rule: Option<&'q str>,
    /// The plan of the customer, or an empty text.
    pub plan: &'q str,
}

/// The reason why a question has no answer.
#[derive(Debug)]
pub enum KeyProblem {
    /// A key with a digest fits no template, so its rule must be named.
    NeedsRule,
    /// No limiter that lives has the rule, and neither have the shared rules. They have these.
    UnknownRule(Vec<String>),
    /// The keys of the rule have these templates, and this key has none of them.
    OtherKeys(Vec<String>),
    /// The store has failed.
    Store(Error),
}

/// The state of a key under each rule that fits it.
#[derive(Debug)]
pub struct KeyReport {
    /// The state under each rule, by the names of the rules.
    pub states: Vec<KeyState>,
    /// The templates of all rules, if none fits the key.
    pub templates: Vec<String>,
    /// Its last denials, of limiters with activity. `None` if they cannot be read.
    pub denials: Option<Vec<DenialBurst>>,
    /// The versions of the shared rules.
    pub versions: RulesVersions,
    /// The mistake of the published text, whose overrides and plans are left out then.
    pub left_out: Option<Error>,
}

/// The state of a key under a rule.
#[derive(Debug)]
pub struct KeyState {
    /// The name of the rule.
    pub rule: String,
    /// The limits in force, with their use.
    pub limits: Vec<LimitUsage>,
    /// The time until each of these limits allows a call. Those of a key that is blocked, or denied for ever, are zero.
    pub waits: Vec<Duration>,
    /// The limits of expressions in the source, which a reader does not know.
    pub unread: Vec<String>,
    /// The mode of the key.
    pub mode: Mode,
    /// The level that the limits come from, or an override.
    pub origin: String,
    /// The decision about the next call.
    pub decision: Decision,
    /// The limiters that have these limits, and all that have the rule.
    pub limiters: (usize, usize),
    /// The limits of the other limiters, as during a deploy.
    pub others: Vec<String>,
}

/// The most versions that are written, and the most limiters of each.
const MAX_VERSIONS: usize = 100;
const MAX_PLACES: usize = 1_000;

/// The versions of the shared rules.
#[derive(Debug)]
pub struct RulesVersions {
    /// The version that is published.
    pub published: u64,
    /// The limiters of each version that they follow. `None` for those that follow none.
    pub followed: BTreeMap<Option<u64>, Vec<String>>,
}

impl KeyReport {
    /// Reads the state of a key, by a limiter on the store. Nothing is taken.
    ///
    /// # Errors
    /// A question that has no answer.
    pub async fn read(reader: &Limiter, question: KeyQuestion<'_>) -> Result<Self, KeyProblem> {
        let KeyQuestion { key, rule, .. } = question;
        if rule.is_none() && texts_and_parts(key).is_none() {
            return Err(KeyProblem::NeedsRule);
        }
        let fleet = Fleet::read(reader).await?;
        let published = SharedRules::new(reader).read().await?;
        let is_followed =
            fleet.instances().is_empty() || fleet.instances().iter().any(|one| one.rules_version.is_some());
        let toml = if is_followed { &*published.toml } else { "" };
        let names = names(key, rule, &fleet, toml)?;
        let rules: BTreeMap<_, _> =
            names.iter().filter_map(|name| Some((name.as_str(), of_limiters(&fleet, name, toml)?))).collect();
        let shared = shared_beside(toml, &rules, &fleet, key);
        let set = rules.iter().fold(RuleSet::new(), |set, (name, rule)| set.rule(*name, rule.clone()));
        let limiter = reader.examiner(set.clone())?;
        let without_shared = Limiter::builder().rules(set).build()?;
        let left_out = shared.and_then(|shared| limiter.set_rules(shared)).err();
        let followers = fleet.instances().iter().filter(|one| one.rules_version == Some(published.version)).count();
        let asked = Asked { question, fleet: &fleet, followers };
        let in_force: BTreeMap<_, _> = limiter.rules().into_iter().map(|rule| (rule.name().to_owned(), rule)).collect();
        let mut states = Vec::new();
        for name in &names {
            states.push(asked.state(name, in_force.get(name), &limiter, &without_shared).await?);
        }
        // A peek of a direct call has the text of the key in Redis.
        let subject = limiter.peek(key, &unlimited()).await?.key().map_or_else(|| key.encoded(), str::to_owned);
        let denials = denials_of_key(&limiter, &subject).await?;
        let versions = RulesVersions::new(published.version, &fleet);
        let templates = if states.is_empty() { all_templates(&fleet, toml) } else { Vec::new() };
        Ok(Self { states, templates, denials, versions, left_out })
    }

    /// Returns whether a rule denies the next call.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.states.iter().any(|state| state.decision.is_denied())
    }

    /// Returns the report about the key as JSON.
    #[must_use]
    pub fn to_json(&self, key: &Key) -> Value {
        let denials = self.denials.as_ref().map(|denials| denials.iter().map(denial_json).collect::<Vec<_>>());
        let rules = self.states.iter().map(KeyState::to_json).collect::<Vec<_>>();
        json!({ "key": key.encoded(), "rules": rules, "last_denials": denials, "shared_rules": self.versions.to_json() })
    }
}

impl From<Error> for KeyProblem {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Returns the names of the rules that fit the key: those of limiters that live, and of the shared rules.
fn names(key: &Key, rule: Option<&str>, fleet: &Fleet, toml: &str) -> Result<Vec<String>, KeyProblem> {
    let shared = stated_keys(toml);
    let known: BTreeSet<&str> = fleet.rules().map(|(name, _)| name).chain(shared.keys().map(String::as_str)).collect();
    let templates = |name: &str| {
        let live = fleet.rule(name).into_iter().flat_map(|rule| &rule.keys).map(String::as_str);
        live.chain(shared.get(name).and_then(Option::as_deref)).map(str::to_owned).collect::<Vec<_>>()
    };
    if let Some(rule) = rule {
        if !known.contains(rule) {
            return Err(KeyProblem::UnknownRule(known.into_iter().map(str::to_owned).collect()));
        }
        let templates = templates(rule);
        let is_other = |template: &String| fits(template, key) == Some(false);
        if !templates.is_empty() && templates.iter().all(is_other) {
            return Err(KeyProblem::OtherKeys(templates));
        }
        return Ok(vec![rule.to_owned()]);
    }
    // The name of a rule whose keys are unknown may be its key.
    let fits_key = |name: &&str| match templates(name) {
        unknown if unknown.is_empty() => fits(name, key) == Some(true),
        templates => templates.iter().any(|template| fits(template, key) == Some(true)),
    };
    Ok(known.into_iter().filter(fits_key).map(str::to_owned).collect())
}

/// Returns the templates of the rules of limiters that live, and of the shared rules.
fn all_templates(fleet: &Fleet, toml: &str) -> Vec<String> {
    let live = fleet.rules().flat_map(|(_, rule)| &rule.keys).cloned();
    let all: BTreeSet<_> = live.chain(stated_keys(toml).into_values().flatten()).collect();
    all.into_iter().collect()
}

/// The question, and the limiters that live.
struct Asked<'a> {
    question: KeyQuestion<'a>,
    fleet: &'a Fleet,
    /// The limiters that follow the published version of the shared rules.
    followers: usize,
}

impl Asked<'_> {
    /// Returns the state of the key under a rule.
    async fn state(
        &self,
        name: &str,
        found: Option<&RuleInForce>,
        limiter: &Limiter,
        without_shared: &Limiter,
    ) -> Result<KeyState, Error> {
        let KeyQuestion { key, plan, .. } = self.question;
        let (named, default) = (limiter.named(name).plan(plan), unlimited());
        let decision = named.peek(key, &default).await?;
        let usage = named.usage_or(key, &default).await?;
        // A limit has the place of its counts, which says nothing of where it comes from.
        let limits: Vec<_> = usage.into_iter().filter(|usage| usage.limit().unpacked() != default).collect();
        let waits = waits(limiter, key, &decision, &limits).await?;
        let with_shared = named.limits_for(key, &default)?;
        let variants = self.fleet.rule(name).and_then(|live| live.by_limiters());
        let mode = mode(&decision, found.map_or(Mode::Enforce, RuleInForce::mode));
        let is_mode_same = variants.as_ref().is_none_or(|(most, _)| most.mode == mode);
        let is_same = is_mode_same && with_shared == without_shared.named(name).limits_for(key, &default)?;
        let has_plans = found.is_some_and(|rule| !rule.plans().is_empty());
        let origin = match (&variants, found.map(RuleInForce::origin)) {
            (Some((most, _)), _) if is_same => most.origin.clone(),
            (None, Some(Origin::Runtime)) if found.is_some_and(|rule| is_of_rule(&with_shared, rule)) => {
                "shared".to_owned()
            }
            _ if has_plans && plan.is_empty() => "an override or the smallest plan".to_owned(),
            _ if has_plans => "an override or the plan".to_owned(),
            _ => "an override".to_owned(),
        };
        let (most, others) = variants.map_or((None, Vec::new()), |(most, others)| (Some(most), others));
        let all = most.into_iter().chain(others.iter().copied()).map(|variant| variant.limiters).sum();
        Ok(KeyState {
            rule: name.to_owned(),
            limits,
            waits,
            unread: most.filter(|_| is_same).map_or_else(Vec::new, |most| most.unread.clone()),
            mode,
            origin,
            decision,
            limiters: (most.map_or(0, |most| if is_same { most.limiters } else { self.followers.min(all) }), all),
            others: others.into_iter().map(in_words).collect(),
        })
    }
}

/// Returns whether the limits of a key are those of the rule itself, in the hashes of the rule.
fn is_of_rule(limits: &[Limit], rule: &RuleInForce) -> bool {
    let without_place = limits.iter().map(|limit| limit.unpacked());
    without_place.eq(rule.limits().iter().copied())
}

/// Returns the time until each limit allows a call. Of several, the decision has the longest time alone.
async fn waits(
    limiter: &Limiter,
    key: &Key,
    decision: &Decision,
    limits: &[LimitUsage],
) -> Result<Vec<Duration>, Error> {
    let mut waits = vec![Duration::ZERO; limits.len()];
    let Decision::Denied(denied) = decision else { return Ok(waits) };
    if denied.is_blocked() || denied.is_final() || denied.source() == Source::Mode {
        return Ok(waits);
    }
    let full = waits.iter_mut().zip(limits).filter(|(_, usage)| usage.remaining() == 0);
    if let [_] = limits {
        full.for_each(|(wait, _)| *wait = denied.retry_after());
        return Ok(waits);
    }
    for (wait, usage) in full {
        // A direct call under this limit has the same counter.
        if let Decision::Denied(denied) = limiter.peek(key, &usage.limit()).await? {
            *wait = denied.retry_after();
        }
    }
    Ok(waits)
}

/// Returns the limits of some limiters, such as `2/h in 3 limiters`.
fn in_words(variant: &LiveLimits) -> String {
    let limits = variant.limits.iter().map(Limit::to_string).chain(variant.unread.iter().cloned());
    let limits = limits.collect::<Vec<_>>().join(" and ");
    let limits = if limits.is_empty() { "no limit".to_owned() } else { limits };
    let mode = (variant.mode != Mode::Enforce).then(|| variant.mode.as_str().to_owned());
    let words: Vec<_> = [limits].into_iter().chain(variant.other_settings()).chain(mode).collect();
    format!("{} in {}", words.join(", "), variant.limiters)
}

/// The mode of the key, which an override may have.
fn mode(decision: &Decision, of_rule: Mode) -> Mode {
    match decision {
        Decision::Denied(denied) if denied.source() == Source::Mode => Mode::Deny,
        Decision::Denied(_) => Mode::Enforce,
        Decision::Allowed(allowed) if allowed.source() == Source::Mode => Mode::Off,
        Decision::Allowed(allowed) if !allowed.is_enforced() => Mode::Shadow,
        Decision::Allowed(_) if of_rule == Mode::Shadow => Mode::Shadow,
        Decision::Allowed(_) => Mode::Enforce,
    }
}

impl KeyState {
    /// The time until the next call is allowed, `None` for never, and whether the key is blocked. `None` while one is
    /// allowed.
    #[must_use]
    pub fn denied_for(&self) -> Option<(Option<Duration>, bool)> {
        match &self.decision {
            Decision::Denied(denied) if denied.is_final() || self.mode == Mode::Deny => Some((None, false)),
            Decision::Denied(denied) => Some((Some(denied.retry_after()), denied.is_blocked())),
            Decision::Allowed(_) => None,
        }
    }

    /// Returns the state as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let denied = self.denied_for();
        json!({
            "rule": self.rule,
            "limits": self.limits.iter().zip(&self.waits).map(limit_with_wait).collect::<Vec<_>>(),
            "unread_limits": self.unread,
            "mode": self.mode.as_str(),
            "origin": self.origin,
            "allowed": denied.is_none(),
            "blocked": denied.is_some_and(|(_, is_blocked)| is_blocked),
            "retry_after_ms": match denied {
                None => json!(0),
                Some((after, _)) => json!(after.map(millis)),
            },
            "limiters": self.limiters.0,
            "other_limits": self.others,
        })
    }
}

impl RulesVersions {
    fn new(published: u64, fleet: &Fleet) -> Self {
        let mut followed = BTreeMap::<_, Vec<_>>::new();
        for instance in fleet.instances() {
            followed.entry(instance.rules_version).or_default().push(place(instance));
        }
        Self { published, followed }
    }

    /// Returns the versions as JSON, with the first places of each. A fleet has few versions, and a forger any number.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let group = |(version, limiters): (&Option<u64>, &Vec<String>)| {
            let places = &limiters[..limiters.len().min(MAX_PLACES)];
            json!({ "version": version, "limiters": limiters.len(), "places": places })
        };
        let followed: Vec<_> = self.followed.iter().take(MAX_VERSIONS).map(group).collect();
        json!({ "published": self.published, "followed": followed })
    }
}

fn limit_with_wait((usage, wait): (&LimitUsage, &Duration)) -> Value {
    let mut limit = limit_json(usage);
    limit["retry_after_ms"] = json!(millis(*wait));
    limit
}

/// Returns the use of a limit as JSON.
#[must_use]
pub fn limit_json(usage: &LimitUsage) -> Value {
    let limit = usage.limit();
    json!({
        "limit": limit.to_string(),
        "algorithm": limit.algorithm().to_string(),
        "burst": is_bucket(&limit).then(|| limit.burst()),
        "used": usage.used(),
        "remaining": usage.remaining(),
        "overdrawn": usage.overdrawn(),
        "reset_after_ms": (!limit.is_concurrent()).then(|| millis(usage.reset_after())),
        "source": usage.source().as_str(),
    })
}

fn is_bucket(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// Returns a limit for people: its text, with its algorithm if that text lacks it, and a bucket's burst that is not its
/// default.
#[must_use]
pub fn limit_text(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::SlidingWindow | Algorithm::Concurrent | Algorithm::Calendar => limit.to_string(),
        algorithm if is_bucket(limit) && limit.burst() != limit.max() => {
            format!("{limit} {algorithm}, burst {}", limit.burst())
        }
        algorithm => format!("{limit} {algorithm}"),
    }
}

/// Returns a time in milliseconds, rounded up.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the limit that stands for none: a rule of the text replaces it.
fn unlimited() -> Limit {
    let longest = Limit::new(u32::MAX, Limit::MAX_WINDOW);
    longest.or_else(|_| Limit::new(1, Duration::from_secs(1))).expect("one permit a second is a limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_some_limiters_are_named_with_the_number_of_hashes() {
        let words = |packed: &str| {
            let line =
                format!(r#"{{"rule":"a","keys":["a"],"limits":["5/10s"],"mode":"shadow","origin":"file"{packed}}}"#);
            in_words(&Fleet::of_inventory(&line).rule("a").expect("it lives").variants[0])
        };
        assert_eq!(words(r#","packed":16384"#), "5/10s, packed = 16384, shadow in 1");
        assert_eq!(words(r#","block":"10m""#), "5/10s, block = 10m, shadow in 1");
        assert_eq!(words(""), "5/10s, shadow in 1");
    }
}
