//! The requests of rules that decide together, with the settings that the rules share.

use std::time::Duration;

use super::rule_use::{OwnLimits, OwnPolicy, RuleUse};
use crate::decision::DecisionContext;
use crate::limit::LimitOrNearest;
use crate::request::{CallOptions, Request, Role};
use crate::rule::{CallDefaults, Settings};
use crate::{Denied, Error, Limit, OnError};

/// Requests of one decision, with the rule of each.
#[derive(Default, PartialEq)]
pub(crate) struct RuleRequests<'a> {
    pub(crate) requests: Vec<Request<'a>>,
    names: Vec<&'static str>,
    pub(super) rule_indices: Vec<usize>,
    settings: SharedSettings,
    /// The setting of the last rule that has a request here. A decision about several requests takes no lease, so it is
    /// of use for one alone.
    leases: Option<bool>,
}

/// The settings that rules share in a decision, before precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SharedSettings {
    /// The policy of the first rule that has one.
    on_error: Option<OnError>,
    /// The policy of rules that set none, in any layer or attribute.
    default_on_error: Option<OnError>,
    /// The shortest.
    deadline: Option<Duration>,
}

impl SharedSettings {
    #[inline]
    pub(super) fn of(settings: &Settings) -> Self {
        let Settings { on_error, default_on_error, deadline, .. } = *settings;
        Self { on_error, default_on_error, deadline }
    }

    /// Returns them with those of the next rules.
    fn then(self, next: Self) -> Self {
        Self {
            on_error: self.on_error.or(next.on_error),
            default_on_error: self.default_on_error.or(next.default_on_error),
            deadline: self.deadline.into_iter().chain(next.deadline).min(),
        }
    }

    #[inline]
    pub(super) fn options(self, leases: Option<bool>, own: OwnPolicy, defaults: &CallDefaults) -> CallOptions {
        CallOptions {
            on_error: own.resolve(self.on_error, self.default_on_error, defaults.options.on_error),
            deadline: self.deadline,
            leases: leases.unwrap_or(defaults.options.leases),
            ..defaults.options
        }
    }
}

impl RuleRequests<'_> {
    pub(crate) fn context(&self) -> DecisionContext<'_> {
        DecisionContext::new(&self.names, &self.requests)
    }

    pub(crate) fn rule_of(&self, denied: &Denied) -> usize {
        self.rule_indices.get(denied.request_index()).copied().unwrap_or(0)
    }

    pub(super) fn options(&self, own: OwnPolicy, defaults: &CallDefaults) -> CallOptions {
        self.settings.options(self.leases, own, defaults)
    }

    /// Removes and returns some of the requests.
    pub(super) fn split_off_if(&mut self, is_split: impl Fn(&Request<'_>) -> bool) -> Self {
        let mut split = Self { settings: self.settings, ..Self::default() };
        let mut index = 0;
        while let Some(request) = self.requests.get(index).copied() {
            if is_split(&request) {
                self.requests.remove(index);
                split.requests.push(request);
                split.names.push(self.names.remove(index));
                split.rule_indices.push(self.rule_indices.remove(index));
            } else {
                index += 1;
            }
        }
        split
    }

    /// Returns them with those of the next rules.
    pub(super) fn then(mut self, next: Self) -> Self {
        self.requests.extend(next.requests);
        self.names.extend(next.names);
        self.rule_indices.extend(next.rule_indices);
        Self { settings: self.settings.then(next.settings), leases: next.leases, ..self }
    }
}

impl<'a> RuleRequests<'a> {
    pub(super) fn push(&mut self, rule: &RuleUse<'a, '_>, limit: Limit, cost: u32, limit_index: usize) {
        let role = Role::of_limit(rule.rule_index, limit_index);
        self.requests.push(Request { role, ..Request::new(rule.key, limit, cost) });
        self.names.push(rule.name);
        self.rule_indices.push(rule.rule_index);
    }

    /// Adds the requests of a rule: one for each of its limits.
    ///
    /// # Errors
    /// The first invalid limit. The requests then have the nearest valid limit in its place.
    pub(super) fn add(&mut self, rule: &RuleUse<'a, '_>, settings: &Settings) -> Result<(), Error> {
        self.settings = self.settings.then(SharedSettings::of(settings));
        let mut invalid = None;
        let mut add = |limit: LimitOrNearest, cost, limit_index| {
            let limit = limit.unwrap_or_else(|(error, nearest)| {
                invalid.get_or_insert(error);
                nearest
            });
            self.push(rule, limit, cost, limit_index);
            self.leases = leases(rule, settings);
        };
        let apply = |limit: Limit, own| settings.apply(limit, own).map_err(|error| (error, limit));
        match settings.limits() {
            [] => {
                let is_direct = matches!(rule.limits, OwnLimits::Items(_));
                for (index, (own, cost)) in rule.limits().enumerate() {
                    let limit_index = if is_direct { 0 } else { index };
                    add(own.and_then(|own| apply(own, None)), cost, limit_index);
                }
            }
            limits => {
                let own = rule.valid_limits().next();
                limits.iter().enumerate().for_each(|(index, limit)| add(apply(*limit, own), rule.cost, index));
            }
        }
        invalid.map_or(Ok(()), Err)
    }
}

/// Returns whether the calls of a rule may take leases. `None` leaves it to the limiter.
#[inline]
pub(super) fn leases(rule: &RuleUse<'_, '_>, settings: &Settings) -> Option<bool> {
    settings.leases.or(rule.leases).or(settings.default_leases)
}
