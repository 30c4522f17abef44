//! The settings of a call under a rule, composed from all levels.

use std::slice;
use std::time::Duration;

use crate::limit::PackedBuckets;
use crate::request::sharing::{SameCounter, in_memory, in_redis};
use crate::request::{CallOptions, CallSettings};
use crate::rule::{Mode, Origin, Rule, all_concurrent, all_whole};
use crate::{Algorithm, Error, Layout, Limit};

/// Settings composed from levels. `None` leaves a setting to the attribute, and an empty list the limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    limits: ConfiguredLimits,
    limits_origin: Option<Origin>,
    algorithm: Option<Algorithm>,
    burst: Option<u32>,
    layout: Option<Layout>,
    packed: Option<PackedBuckets>,
    mode: Option<Mode>,
    pub(crate) call: CallSettings,
    /// Those of rules that set none, in any level or attribute.
    pub(crate) default_call: CallSettings,
    /// The limits may be in shared rules, which the limiter has not read yet.
    pub(crate) is_shared_unread: bool,
}

/// The settings of calls that no rule and no caller sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallDefaults {
    pub(crate) options: CallOptions,
    /// The limiter's own deadline.
    pub(crate) deadline: Duration,
    /// The store may be shared by processes.
    pub(crate) is_guarded: bool,
}

impl CallDefaults {
    pub(super) fn same_counter(&self) -> SameCounter {
        if self.is_guarded { in_redis } else { in_memory }
    }
}

/// The configured limits of a rule. One, as most rules have, is not allocated.
#[derive(Clone, Debug, Default)]
enum ConfiguredLimits {
    #[default]
    None,
    One(Limit),
    Several(Vec<Limit>),
}

impl ConfiguredLimits {
    fn new(limits: &[Limit]) -> Self {
        match *limits {
            [] => Self::None,
            [limit] => Self::One(limit),
            _ => Self::Several(limits.to_vec()),
        }
    }
}

/// The defaults of all rules, composed from levels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DefaultSettings {
    mode: Option<Mode>,
    call: CallSettings,
}

impl DefaultSettings {
    /// Adds the defaults of a lower level: those that the levels above lack.
    pub(crate) fn add(&mut self, defaults: &Rule) {
        self.mode = self.mode.or(defaults.mode);
        self.call = self.call.or(defaults.call);
    }
}

impl Settings {
    /// Adds the settings of a rule in a lower level: those that the levels above lack.
    pub(crate) fn add(&mut self, rule: &Rule, origin: Origin) {
        // A limit that names an algorithm is whole, and so are those whose text determines how they count. Those of the levels
        // below belong to other limits.
        let names_algorithm = |limit: &Limit| !limit.is_whole() && limit.algorithm() != Algorithm::default();
        let is_whole = self.limits().iter().any(names_algorithm) || all_whole(self.limits().iter().copied()).is_some();
        if !is_whole {
            self.add_algorithm(rule);
        }
        if self.limits_origin.is_none() && !rule.limits.is_empty() {
            self.limits = ConfiguredLimits::new(&rule.limits);
            self.limits_origin = Some(origin);
        }
        self.add_policies(rule);
    }

    /// Adds the algorithm of a rule in a lower level, with what belongs to it. A burst is left out if a level above has an
    /// algorithm without one: it belongs to another algorithm.
    fn add_algorithm(&mut self, rule: &Rule) {
        if self.algorithm.is_none_or(Algorithm::has_burst) {
            self.burst = self.burst.or(rule.burst);
        }
        self.algorithm = self.algorithm.or(rule.algorithm);
        self.layout = self.layout.or(rule.layout);
    }

    /// Adds the settings of an override or a plan in a lower level. If its limits are hidden, so is what belongs to them.
    pub(crate) fn add_override(&mut self, rule: &Rule, origin: Origin) {
        match self.limits_origin {
            None => self.add(rule, origin),
            Some(_) => self.add_policies(rule),
        }
    }

    /// Adds the settings that do not belong to limits.
    fn add_policies(&mut self, rule: &Rule) {
        // The number was checked with its rule.
        let packed = rule.packed.and_then(|number| PackedBuckets::new(number.into()).ok());
        self.packed = self.packed.or(packed);
        self.mode = self.mode.or(rule.mode);
        self.call = self.call.or(rule.call);
    }

    /// Returns the settings with the limits of others, and with what belongs to those.
    pub(crate) fn with_limits_of(self, other: &Self) -> Self {
        let Self { limits, limits_origin, algorithm, burst, layout, .. } = other.clone();
        Self { limits, limits_origin, algorithm, burst, layout, ..self }
    }

    /// Adds the defaults, after the settings of all levels and the attribute.
    pub(crate) fn add_defaults(&mut self, defaults: &DefaultSettings) {
        self.mode = self.mode.or(defaults.mode);
        self.default_call = defaults.call;
    }

    /// Returns the settings of limits as a rule, for its checks.
    pub(crate) fn to_rule(&self) -> Rule {
        let Self { algorithm, burst, layout, packed, .. } = *self;
        // A block is of interest to counts that share a hash alone.
        let call = CallSettings { block: self.call.block.filter(|_| packed.is_some()), ..CallSettings::NONE };
        let packed = packed.map(PackedBuckets::number);
        Rule { limits: self.limits().to_vec(), algorithm, burst, layout, packed, call, ..Rule::default() }
    }

    /// Replaces the mode as `RATE_LIMITED_MODE` requires.
    pub(crate) fn switch_mode(&mut self, switch: Option<Mode>) {
        self.mode = Some(self.mode().switched_to(switch));
    }

    /// The number of hashes that share the rule's counts, if it is set.
    pub(crate) fn packed(&self) -> Option<u32> {
        self.packed.map(PackedBuckets::number)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.unwrap_or_default()
    }

    /// The configured limits. They replace the attribute's. Empty if no level has any.
    pub(crate) fn limits(&self) -> &[Limit] {
        match &self.limits {
            ConfiguredLimits::None => &[],
            ConfiguredLimits::One(limit) => slice::from_ref(limit),
            ConfiguredLimits::Several(limits) => limits,
        }
    }

    pub(crate) fn limits_origin(&self) -> Origin {
        self.limits_origin.unwrap_or(Origin::Attribute)
    }

    /// Returns the limit that a call is counted by. `own` is the attribute's limit, or a direct call's: a configured
    /// limit without an algorithm of its own has that one's algorithm and burst, or its calendar with zone and anchor.
    ///
    /// # Errors
    /// The limit's algorithm does not support the layout, or its counts cannot be packed.
    pub(crate) fn apply(&self, limit: Limit, own: Option<Limit>) -> Result<Limit, Error> {
        let applied = self.apply_algorithm(limit, own)?;
        if self.packed.is_none() { Ok(applied) } else { applied.with_packed(self.packed) }
    }

    /// As [`apply`](Self::apply), apart from the place of the counts.
    pub(super) fn apply_algorithm(&self, limit: Limit, own: Option<Limit>) -> Result<Limit, Error> {
        let in_calendar = own.map_or(limit, |own| limit.in_calendar_of(own));
        let limit = if self.algorithm.is_none() || limit.is_whole() { in_calendar } else { limit };
        if limit.is_whole() {
            return limit.with_layout(self.layout.unwrap_or_default());
        }
        let own = own.filter(|own| !own.is_whole());
        let names_algorithm = limit.algorithm() != Algorithm::default();
        let inherited = own.filter(|_| !names_algorithm).map(|own| own.algorithm());
        let algorithm = self.algorithm.or(inherited).unwrap_or(limit.algorithm());
        let burst_of = |limit: Limit| limit.own_burst().filter(|_| limit.algorithm() == algorithm);
        let burst = self.burst.or(burst_of(limit)).or(own.and_then(burst_of));
        let mut applied = limit;
        if algorithm != limit.algorithm() {
            applied = limit.with_algorithm(algorithm);
        }
        if let Some(burst) = burst.filter(|_| algorithm.has_burst()) {
            applied = applied.with_burst(burst)?;
        }
        let layout = match (self.layout, applied.layout(), own) {
            (Some(layout), ..) => layout,
            (None, Layout::Compact, Some(own)) if algorithm == Algorithm::SlidingWindow => own.layout(),
            (None, layout, _) => layout,
        };
        applied.with_layout(layout)
    }

    /// Returns the one limit of a call. `own` is the attribute's. `None` if there is not one, or for a layout that it does
    /// not support.
    pub(crate) fn single_limit(&self, own: Option<Limit>) -> Option<Limit> {
        match (self.limits(), own) {
            ([], Some(own)) => self.apply(own, None).ok(),
            ([limit], own) => self.apply(*limit, own).ok(),
            _ => None,
        }
    }

    /// Returns what a rule does not get, although its settings demand it: an algorithm of limits whose text determines how they
    /// count, or a charge of calls at once.
    #[inline]
    pub(crate) fn unused_by_whole_limits(&self, limits: impl Iterator<Item = Limit> + Clone) -> Option<&'static str> {
        let is_postpaid = self.call.postpaid == Some(true);
        if !is_postpaid && self.algorithm.is_none() {
            return None;
        }
        let is_concurrent = all_concurrent(limits.clone()).is_some();
        match (is_postpaid, self.algorithm) {
            (true, _) if is_concurrent => {
                Some("is postpaid in vain: its limit is of calls at once, and each has its slot: remove `postpaid`")
            }
            (_, Some(_)) if is_concurrent => {
                Some("has an algorithm in vain: its limit is of calls at once, so remove `algorithm`")
            }
            (_, Some(_)) if all_whole(limits).is_some() => {
                Some("has an algorithm in vain: its limit is of a period of the calendar, so remove `algorithm`")
            }
            _ => None,
        }
    }

    /// Returns whether a limit that applies has no use for the burst.
    pub(crate) fn ignores_burst_of(&self, limit: Limit) -> bool {
        self.burst.is_some() && !limit.algorithm().has_burst()
    }

    /// Returns whether a limit of a call has no use for the burst. `own` are the limits of the attribute, or of a direct
    /// call.
    pub(crate) fn ignores_burst(&self, own: impl Iterator<Item = Limit> + Clone) -> bool {
        self.burst.is_some() && self.applied(own).any(|limit| self.ignores_burst_of(limit))
    }

    /// The valid limits by which a call is counted. `own` are the limits of the attribute, or of a direct call.
    pub(crate) fn applied(&self, own: impl Iterator<Item = Limit> + Clone) -> impl Iterator<Item = Limit> + Clone {
        let is_counted = matches!(self.mode(), Mode::Enforce | Mode::Shadow);
        let configured = self.limits().iter().map({
            let own = own.clone();
            move |limit| self.apply(*limit, limit.example_among(own.clone()))
        });
        let unset = own.filter(|_| self.limits().is_empty()).map(|own| self.apply(own, None));
        configured.chain(unset).filter(move |_| is_counted).flatten()
    }
}
