//! The rules of a limiter as an operator sees them.

use std::time::Duration;

use crate::rule::ResolvedRule;
use crate::{Limit, Mode, OnError, Origin};

/// A rule with its settings from all layers: see [`Limiter::rules`](crate::Limiter::rules).
#[derive(Clone, Debug)]
pub struct RuleInForce {
    name: String,
    limits: Vec<Limit>,
    mode: Mode,
    on_error: Option<OnError>,
    deadline: Option<Duration>,
    leases: Option<bool>,
    origin: Origin,
    overrides: usize,
    attribute_limits: &'static [&'static str],
}

impl RuleInForce {
    pub(crate) fn new(name: &str, rule: &ResolvedRule, attribute_limits: &'static [&'static str]) -> Self {
        let settings = rule.settings();
        Self {
            name: name.to_owned(),
            limits: settings.limits().to_vec(),
            mode: settings.mode(),
            on_error: settings.on_error.or(settings.default_on_error),
            deadline: settings.deadline,
            leases: settings.leases.or(settings.default_leases),
            origin: settings.limits_origin(),
            overrides: rule.overrides(),
            attribute_limits,
        }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configured limits. Empty if the attribute's limits apply.
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

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The configured failure policy. `None` for the attribute's, or else the limiter's.
    #[must_use]
    pub fn on_error(&self) -> Option<OnError> {
        self.on_error
    }

    /// The configured deadline. `None` for the limiter's.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Returns whether calls may take [leases](crate::Rule::leases), if that is configured. `None` for the attribute's
    /// setting, or else the limiter's.
    #[must_use]
    pub fn leases(&self) -> Option<bool> {
        self.leases
    }

    /// The layer that the limits come from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The number of overrides of the rule, in all layers.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides
    }
}
