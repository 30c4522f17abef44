//! Settings of rules by name, with which a program's configuration overrides its attributes.

use std::time::Duration;

use crate::error::NamedValue;
use crate::limit::{PACKED_BOUND, PackedBuckets};
use crate::request::CallSettings;
use crate::rule::customer_plan::names_problem;
use crate::{Algorithm, Block, Error, ErrorKind, Layout, Limit, OnError};

mod mode;
pub(crate) mod message_text;
#[cfg(any(feature = "rules", feature = "serde"))]
pub(crate) mod format;
mod key_match;
mod packed_conflict;
mod override_index;
mod rule_in_force;
mod rule_set;
mod settings;
mod rule_ref;
mod service_rule;
mod catalog;
mod level_warnings;
mod level_rule;
mod customer_plan;
mod resolved_rule;
mod levels;
mod site_cache;
mod table;
mod inventory;
mod plan;
#[cfg(feature = "rules")]
pub(crate) mod text;
#[cfg(feature = "rules")]
mod file;

pub(crate) use catalog::Catalog;
pub(crate) use customer_plan::CustomerPlan;
#[cfg(feature = "rules")]
pub(crate) use file::{FileWatch, OpenedFile, WatchIntervals, file_error};
pub use key_match::KeyMatch;
pub(crate) use key_match::KeyPattern;
#[cfg(all(feature = "rules", feature = "redis"))]
pub(crate) use levels::check_shared_text;
pub(crate) use mode::MODE_VARIABLE;
pub use mode::Mode;
pub(crate) use packed_conflict::{PackedConflict, packed_problem};
pub(crate) use plan::{
    OwnLimits, OwnPolicy, Plan, Planned, PlannedRules, RuleRequests, RuleUse, Shadow, SlotRequests, Trial,
    UnlimitedRule,
};
pub(crate) use resolved_rule::ResolvedRule;
pub use rule_in_force::RuleInForce;
pub(crate) use rule_ref::{KeyText, RuleId, RuleRef, UNCACHED, intern, is_interned, log_apart, log_in_call};
#[cfg(feature = "rules")]
pub(crate) use rule_set::RulesStatus;
pub(crate) use rule_set::TextPlace;
pub use rule_set::{Origin, RuleSet};
pub(crate) use service_rule::{RegisteredRule, ServiceRule};
pub(crate) use settings::{CallDefaults, Settings};
pub(crate) use table::RuleTable;

/// Settings for the annotated functions whose rule has a given name: see [`Builder::rule`](crate::Builder::rule).
///
/// A setting overrides the one of the attribute. Without a setting the attribute's applies.
///
/// ```
/// # use limiter_core as rate_limited;
/// use std::time::Duration;
/// use rate_limited::{Limiter, OnError, Rule};
///
/// # let from_configuration = "20/s".to_owned();
/// let limiter = Limiter::builder()
///     .rule("getId", Rule::new().limit(from_configuration.parse()?))
///     .rule("user:{user_id}", Rule::new().on_error(OnError::Open).deadline(Duration::from_millis(20)))
///     .build()?;
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[must_use = "a rule has no effect until it is added to a builder or a `RuleSet`"]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    pub(crate) limits: Vec<Limit>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) burst: Option<u32>,
    pub(crate) layout: Option<Layout>,
    /// The number of hashes, as it was set.
    pub(crate) packed: Option<u32>,
    pub(crate) mode: Option<Mode>,
    pub(crate) call: CallSettings,
    pub(crate) overrides: Vec<(KeyMatch, Rule)>,
    /// The plans that apply to it, by name.
    pub(crate) plans: Option<Vec<String>>,
    /// The key that the rule's function must have.
    pub(crate) key: Option<String>,
    pub(crate) place: TextPlace,
}

impl Rule {
    /// Creates a rule without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit. The limits added here apply instead of the attribute's. Several limits make one decision: all or
    /// none.
    ///
    /// A sliding window, the default of [`Limit`], names no algorithm: the limit then has the algorithm, burst and
    /// layout of the attribute's. [`algorithm`](Rule::algorithm) forces one, also the sliding window.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Sets the algorithm of the rule's limits, or else of the attribute's. Default: the algorithm that they have.
    ///
    /// Limits of [calls at once](Limit::concurrent) have none. Beside such limits alone, it is an error.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Sets the burst of the rule's limits, or else of the attribute's: 1 to `u32::MAX` permits at once. Default: the
    /// burst that they have.
    ///
    /// Only the bucket algorithms have a burst. If the algorithm is known from this rule and has none,
    /// [`build`](crate::Builder::build) fails. Otherwise the burst is ignored for a limit without one, and the log gets
    /// a warning.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Sets the mode. Default: [`Mode::Enforce`].
    ///
    /// The environment variable `RATE_LIMITED_MODE` replaces the mode of all rules: see
    /// [`Builder::rules`](crate::Builder::rules).
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the failure policy. It replaces the attribute's policy or handler.
    ///
    /// [`Raise`](OnError::Raise) passes the error to the attribute's handler. Without a handler it counts as
    /// [`Closed`](OnError::Closed).
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.call.on_error = Some(policy);
        self
    }

    /// Sets the time in which the store must reply, 1 ms to 60 s, instead of the [limiter's own
    /// deadline](crate::Builder::deadline). If a function has several rules, the shortest deadline applies.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.call.deadline = Some(deadline);
        self
    }

    /// Turns leases on or off for the rule, instead of the attribute's setting, or else the [limiter's
    /// own](crate::Builder::leases). `true` needs the feature `leases`.
    ///
    /// Only a sliding window in the compact layout is leased, with a `max` of at least 10 000 and a window of at least
    /// 640 ms. For a rule with another limit the log gets one warning, and each of its calls is sent to the store. A
    /// store in memory has no leases, and needs none.
    pub fn leases(mut self, leases: bool) -> Self {
        self.call.leases = Some(leases);
        self
    }

    /// Makes the rule postpaid: a call runs if one permit is free, takes none, and is charged once its cost is known, by
    /// `settle` of the attribute or by [`Limiter::settle`](crate::Limiter::settle). A call that its code forgets to settle
    /// counts nothing. Where nothing can settle calls, as in an attribute without `settle` and `permit`, each takes its cost,
    /// and the log has a warning.
    ///
    /// It does not bound what starts at once: each call that begins before the first is charged may run. Where a budget must
    /// hold, take an estimate instead.
    pub fn postpaid(mut self, postpaid: bool) -> Self {
        self.call.postpaid = Some(postpaid);
        self
    }

    /// Blocks a key for a time when a limit of the rule denies it: until then each call of the key is denied, by whatever
    /// limit of the rule. Attempts do not extend the block, unless it is [`extended`](Block::extended). What the key has used
    /// counts afterwards as long as it would have.
    ///
    /// A denial of this rule's limits begins the block, and so do those of other callers with the rule. A
    /// [final](crate::Denied::is_final) denial begins none, nor do a peek, a failure policy, the mode `deny`, a charge, and a
    /// denial by calls at once. [`Named::reset`](crate::Named::reset) ends it, a refund does not.
    ///
    /// A call under such a rule does not wait: it is denied at once, and the log has a warning. Leases are an error beside it.
    pub fn block(mut self, block: Block) -> Self {
        self.call.block = Some(block);
        self
    }

    /// Sets the layout in Redis for the rule's limits, or else for those of the attribute.
    ///
    /// [`Layout::Zset`] allows only one limit in the rule, and only a sliding window. If a limit of the rule does not
    /// fit, [`build`](crate::Builder::build) fails. If one of the attribute does not fit, each call fails.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Packs the rule's counts in Redis: many of them share one hash, which saves two thirds of the memory of a key.
    ///
    /// `buckets` is the number of hashes, a power of two from 16 384 to 1 073 741 824: about a fiftieth of the keys that count at
    /// once. All processes must have the same number, since a changed one grants each quota once more, as a changed window does.
    /// It is for windows and periods of the calendar in the compact layout. Buckets, calls at once and a
    /// [`block`](Rule::block) beside it are errors. A store in memory ignores it.
    ///
    /// The limits of its decisions and of its usage have the place of their counts. So they differ by `==` from the same limit of
    /// a text, unless they are [`unpacked`](Limit::unpacked) first.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, Rule};
    ///
    /// let rule = Rule::new().limit("5/10s".parse()?).packed(262_144);
    /// let limiter = Limiter::builder().rule("user:{user_id}", rule).build()?;
    /// assert_eq!(limiter.rules()[0].packed(), Some(262_144));
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn packed(mut self, buckets: u32) -> Self {
        self.packed = Some(buckets);
        self
    }

    /// Sets the template of the rule's keys, such as `user:{user_id}`, for a rule of direct calls: by it overrides match
    /// parts, and a server builds keys of values. All sets of rules must state the same one. It also declares the rule. A
    /// function under this name must have this key.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, Rule};
    ///
    /// let upload = Rule::new().key("upload:{user_id}").limit("5/min".parse()?);
    /// let limiter = Limiter::builder().rule("upload", upload).build()?;
    /// assert_eq!(limiter.rules()[0].key(), Some("upload:{user_id}"));
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn key(mut self, template: impl Into<String>) -> Self {
        self.key = Some(template.into());
        self
    }

    /// Adds settings for the keys that match. They come before those of the rule itself, and a setting that they lack
    /// comes from the rule.
    ///
    /// Of several overrides that match, the one with the most matching parts applies. An override of
    /// [one key](KeyMatch::key) matches all parts. Then the parts decide in the key's order: an exact value comes before a
    /// network, and that before a beginning; a longer one comes before a shorter one. Among equals it is the first.
    /// Overrides cannot have overrides. A limiter can have 100 000 of them.
    ///
    /// If this rule has limits, the limits of overrides in lower levels do not apply. Their modes do, unless this rule
    /// has one.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{KeyMatch, Limiter, Mode, Rule};
    ///
    /// let rule = Rule::new()
    ///     .limit("100/min".parse()?)
    ///     .overriding(KeyMatch::parts([("user_id", 42)]), Rule::new().limit("1000/min".parse()?))
    ///     .overriding(KeyMatch::parts([("user_id", 666)]), Rule::new().mode(Mode::Deny));
    /// let limiter = Limiter::builder().rule("user:{user_id}", rule).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn overriding(mut self, keys: KeyMatch, rule: Rule) -> Self {
        self.overrides.push((keys, rule));
        self
    }

    /// Names the plans of customers that apply to the rule, which [`RuleSet::plan`] adds to the same set. They come after
    /// overrides, and before the settings of the rule itself.
    ///
    /// A call has a plan by `plan` of the attribute, by [`Named::plan`](crate::Named::plan) or by that of a layer. It is no
    /// part of the key: a customer who changes the plan keeps what was used. A call without a plan, or with one that the
    /// rule does not name, has the rule's own limit. If there is none it has the limit of the smallest plan.
    ///
    /// If this rule has limits, the limits of plans in lower levels do not apply. Overrides and plans have no plans.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Key, Limiter, Rule, RuleSet};
    ///
    /// let limiter = Limiter::memory();
    /// limiter.set_rules(
    ///     RuleSet::new()
    ///         .plan("free", Rule::new().limit("1000/d".parse()?))
    ///         .plan("pro", Rule::new().limit("10000/d".parse()?))
    ///         .rule("api", Rule::new().plans(["free", "pro"])),
    /// )?;
    /// let (customer, default) = (Key::new("api:").part(42), "10/d".parse()?);
    /// let decision = limiter.named("api").plan("pro").check_blocking(&customer, &default)?;
    /// assert_eq!(decision.remaining(), 9_999);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn plans(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.plans = Some(names.into_iter().map(Into::into).collect());
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name of a setting that only a single rule can have, if there is one.
    fn setting_of_one_rule(&self) -> Option<&'static str> {
        let Self { limits, algorithm, burst, layout, packed, mode: _, call, overrides, plans, key, place: _ } = self;
        let settings = [
            ("limit", !limits.is_empty()),
            ("algorithm", algorithm.is_some()),
            ("burst", burst.is_some()),
            ("layout", layout.is_some()),
            ("packed", packed.is_some()),
            ("postpaid", call.postpaid.is_some()),
            ("block", call.block.is_some()),
            ("overriding", !overrides.is_empty()),
            ("plans", plans.is_some()),
            ("key", key.is_some()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Checks the settings of the defaults of all rules.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a setting that only a single rule can have, and as for [`check`](Self::check).
    fn check_as_defaults(&self) -> Result<(), Error> {
        if let Some(setting) = self.setting_of_one_rule() {
            let problem = format!(
                "`defaults` must have only `mode`, `on_error`, `deadline` and `leases`, got `{setting}`: set it for a rule"
            );
            return Err(Error::new(ErrorKind::Config, problem));
        }
        self.check("the defaults")
    }

    /// Returns the most permits that the limits of a rule, or of its override, grant one call. `None` if they set none.
    /// `base` is the rule itself.
    fn most_permits(&self, base: &Self) -> Option<u32> {
        if self.limits.is_empty() && self.algorithm.is_none() && self.burst.is_none() {
            return None;
        }
        let limits = if self.limits.is_empty() { &base.limits } else { &self.limits };
        let (algorithm, burst) = (self.algorithm.or(base.algorithm), self.burst.or(base.burst));
        let permits = |limit: &Limit| match (algorithm.unwrap_or(limit.algorithm()), burst) {
            _ if limit.is_whole() => limit.max(),
            (counted_by, Some(burst)) if counted_by.has_burst() => burst,
            // The attribute may have an algorithm with a burst.
            (_, Some(burst)) if algorithm.is_none() => burst.max(limit.burst()),
            _ => limit.burst(),
        };
        limits.iter().map(permits).min()
    }

    /// Checks the settings of a rule, which messages call `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a setting out of its range, or for settings that contradict each other.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let error = |problem: String| Err(Error::new(ErrorKind::Config, problem));
        if let Some(problem) = self.call.problem(&format!(" of {name}")) {
            return error(problem);
        }
        if self.limits.len() > MAX_LIMITS {
            let count = self.limits.len();
            return error(format!(
                "`limit` of {name} must be set at most {MAX_LIMITS} times, got {count} limits: remove some"
            ));
        }
        if self.burst == Some(0) {
            return error(format!("`burst` of {name} must be at least 1, got 0: leave it out for the attribute's"));
        }
        if let Some(Err(fix)) = self.packed.map(|number| PackedBuckets::new(number.into())) {
            let number = self.packed.unwrap_or_default();
            return error(format!("`packed` of {name} must be {PACKED_BOUND}, got {number}: write {fix}"));
        }
        match self.contradiction() {
            Some(Contradiction::PackedWith(other)) => {
                let number = self.packed.unwrap_or_default();
                return error(format!(
                    "`packed` of {name} must be left out with {other}, got {number}: remove one of them"
                ));
            }
            Some(Contradiction::ZsetOfLimits(count)) => {
                return error(format!(
                    "`limit` of {name} must be set once with `layout = \"zset\"`, got {count} limits: write one"
                ));
            }
            Some(Contradiction::ZsetOf(algorithm)) => {
                let algorithm = algorithm.name();
                return error(format!(
                    "`layout` of {name} must be `compact` for `{algorithm}`, got `zset`: use `sliding_window` as the \
                     `algorithm`, or remove it"
                ));
            }
            Some(Contradiction::BurstOf(algorithm, burst)) => {
                let algorithm = algorithm.name();
                return error(format!(
                    "`burst` of {name} must be left out for `{algorithm}`, got {burst}: use `token_bucket` or \
                     `leaky_bucket` as the `algorithm`, or remove it"
                ));
            }
            Some(Contradiction::OfWindows(setting, limit)) => {
                return error(format!("`{setting}` of {name} must be left out for `{limit}`, got one: remove it"));
            }
            Some(Contradiction::WholeAlgorithm(algorithm)) => {
                let (algorithm, fix) = (algorithm.name(), algorithm.text_of_whole());
                return error(format!(
                    "`algorithm` of {name} must be that of a window, got `{algorithm}`: write the limit as `{fix}`"
                ));
            }
            None => {}
        }
        let names = self.plans.as_deref();
        if let Some((_, problem)) = names.and_then(|names| names_problem(names, &format!(" of {name}"))) {
            return error(problem);
        }
        if self.overrides.iter().any(|(_, rule)| rule.plans.is_some()) {
            return error(format!("`plans` must be left out of the overrides of {name}, got it: set it for the rule"));
        }
        if self.overrides.iter().any(|(_, rule)| !rule.overrides.is_empty()) {
            return error(format!(
                "`overriding` of {name} must have rules without overrides, got one with some: add them to the rule itself"
            ));
        }
        for (number, (keys, rule)) in (1..).zip(&self.overrides) {
            if let Some(problem) = keys.problem_of_override(number, name) {
                return error(problem);
            }
            rule.check(&format!("an override of {name}"))?;
            if let (Some(other), None) = (rule.as_override_of(self).packed_conflict(), self.packed_conflict()) {
                return error(format!(
                    "`packed` of {name} must be left out with {other} of an override, got one: remove one of them"
                ));
            }
        }
        Ok(())
    }

    /// Returns settings that contradict each other, if there are some. A limit of the default algorithm may have that of
    /// an attribute, so a burst does not contradict it.
    pub(crate) fn contradiction(&self) -> Option<Contradiction> {
        let Self { limits, algorithm, burst, layout, .. } = self;
        if let Some(conflict) = self.packed_conflict() {
            return Some(Contradiction::PackedWith(conflict));
        }
        if let Some(algorithm @ (Algorithm::Concurrent | Algorithm::Calendar)) = *algorithm {
            return Some(Contradiction::WholeAlgorithm(algorithm));
        }
        if let Some(limit) = all_whole(limits.iter().copied()) {
            return self.setting_of_windows(limit).map(|setting| Contradiction::OfWindows(setting, limit));
        }
        let windows = || limits.iter().filter(|limit| !limit.is_whole());
        let algorithms = || windows().map(|limit| algorithm.unwrap_or(limit.algorithm())).chain(*algorithm);
        if *layout == Some(Layout::Zset) {
            if limits.len() > 1 {
                return Some(Contradiction::ZsetOfLimits(limits.len()));
            }
            if let Some(other) = algorithms().find(|other| *other != Algorithm::SlidingWindow) {
                return Some(Contradiction::ZsetOf(other));
            }
        }
        let lacks_burst =
            |other: &Algorithm| !other.has_burst() && (algorithm.is_some() || *other != Algorithm::default());
        let burst = (*burst)?;
        algorithms().find(lacks_burst).map(|other| Contradiction::BurstOf(other, burst))
    }

    /// Returns the name of a setting that has no use for a limit whose text determines how it counts, if there is one.
    pub(crate) fn setting_of_windows(&self, limit: Limit) -> Option<&'static str> {
        let settings = [
            ("algorithm", self.algorithm.is_some()),
            ("burst", self.burst.is_some()),
            ("layout", self.layout == Some(Layout::Zset)),
            ("postpaid", self.call.postpaid == Some(true) && limit.is_concurrent()),
            ("block", self.call.block.is_some() && limit.is_concurrent()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Returns whether the rule, without its overrides, sets this layout or has a limit with it.
    fn has_layout_of_own(&self, layout: Layout) -> bool {
        match self.layout {
            Some(rule_layout) => rule_layout == layout,
            None => self.limits.iter().any(|limit| limit.layout() == layout),
        }
    }

    /// Returns whether the rule sets this layout or has a limit with it.
    fn has_layout(&self, layout: Layout) -> bool {
        self.has_layout_of_own(layout) || self.overrides.iter().any(|(_, rule)| rule.has_layout(layout))
    }
}

/// Settings of a rule that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contradiction {
    /// Counts that share a hash, beside a setting that those cannot have.
    PackedWith(PackedConflict),
    /// A sorted set beside so many limits.
    ZsetOfLimits(usize),
    /// A sorted set beside an algorithm that has none.
    ZsetOf(Algorithm),
    /// A burst beside an algorithm that has none.
    BurstOf(Algorithm, u32),
    /// A setting of windows beside limits whose text determines how they count, such as this one.
    OfWindows(&'static str, Limit),
    /// The algorithm of calls at once, or of the calendar, which limits alone have.
    WholeAlgorithm(Algorithm),
}

/// Returns the first of some limits if all of them are of calls at once.
pub(crate) fn all_concurrent(mut limits: impl Iterator<Item = Limit>) -> Option<Limit> {
    let first = limits.next().filter(Limit::is_concurrent)?;
    limits.all(|limit| limit.is_concurrent()).then_some(first)
}

/// Returns the first of some limits if the texts of all determine how they count.
pub(crate) fn all_whole(mut limits: impl Iterator<Item = Limit>) -> Option<Limit> {
    let first = limits.next().filter(Limit::is_whole)?;
    limits.all(|limit| limit.is_whole()).then_some(first)
}

/// The most limits of a rule.
pub(crate) const MAX_LIMITS: usize = 16;

// The rules of a limiter as an operator sees them.
