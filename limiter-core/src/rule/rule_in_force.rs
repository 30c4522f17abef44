//! The settings of a rule in force, for programs that show them.

use std::time::Duration;

use super::{Mode, Origin, ResolvedRule};
use crate::request::CallSettings;
use crate::{Block, Limit, OnError};

/// A rule with its settings from all levels: see [`Limiter::rules`](crate::Limiter::rules).
#[derive(Clone, Debug)]
pub struct RuleInForce {
    name: String,
    key: Option<String>,
    limits: Vec<Limit>,
    packed: Option<u32>,
    mode: Mode,
    call: CallSettings,
    origin: Origin,
    overrides: usize,
    plans: Vec<String>,
    attribute_limits: &'static [&'static str],
}

impl RuleInForce {
    /// `key` is the one that a set of rules states.
    pub(crate) fn new(
        (name, key): (&str, Option<&str>),
        rule: &ResolvedRule,
        attribute_limits: &'static [&'static str],
    ) -> Self {
        let settings = rule.settings();
        // A layout that an algorithm does not support is an error of each call.
        let applied = |limit: &Limit| settings.apply_algorithm(*limit, None).unwrap_or(*limit);
        Self {
            name: name.to_owned(),
            key: key.map(str::to_owned),
            limits: settings.limits().iter().map(applied).collect(),
            packed: settings.packed(),
            mode: settings.mode(),
            call: settings.call.or(settings.default_call),
            origin: settings.limits_origin(),
            overrides: rule.overrides(),
            plans: rule.plans().map(str::to_owned).collect(),
            attribute_limits,
        }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template of the rule's keys, such as `user:{user_id}`, if a set of rules states it as `key`.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The configured limits, with the algorithm, the burst and the layout that are configured. Empty if the attribute's limits
    /// apply.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The limits of the attribute, as written in the source, or the limit of a layer. Empty if no annotated function and
    /// no layer has the rule.
    #[must_use]
    pub fn attribute_limits(&self) -> &'static [&'static str] {
        self.attribute_limits
    }

    /// The number of hashes that share its counts, if it is [packed](crate::Rule::packed).
    #[must_use]
    pub fn packed(&self) -> Option<u32> {
        self.packed
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The configured failure policy. `None` for the attribute's, or else the limiter's.
    #[must_use]
    pub fn on_error(&self) -> Option<OnError> {
        self.call.on_error
    }

    /// The configured deadline. `None` for the limiter's.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.call.deadline
    }

    /// The settings of its calls, as a rule without others.
    #[cfg(feature = "serde")]
    pub(crate) fn call_settings(&self) -> crate::Rule {
        crate::Rule { call: self.call, packed: self.packed, ..crate::Rule::new() }
    }

    /// Returns whether calls may take [leases](crate::Rule::leases), if that is configured. `None` for the attribute's
    /// setting, or else the limiter's.
    #[must_use]
    pub fn leases(&self) -> Option<bool> {
        self.call.leases
    }

    /// Returns whether calls are [postpaid](crate::Rule::postpaid), if that is configured. `None` for the attribute's setting.
    #[must_use]
    pub fn postpaid(&self) -> Option<bool> {
        self.call.postpaid
    }

    /// Returns the [block](crate::Rule::block) that a denial begins, if that is configured. `None` for the attribute's setting.
    #[must_use]
    pub fn block(&self) -> Option<Block> {
        self.call.block
    }

    /// The level that the limits come from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The number of overrides of the rule, in all levels.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides
    }

    /// The [plans](crate::Rule::plans) that apply to the rule, by name.
    #[must_use]
    pub fn plans(&self) -> &[String] {
        &self.plans
    }
}
