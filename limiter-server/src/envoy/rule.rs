//! The rule of a descriptor.

use std::time::Duration;

use rate_limited::{Limit, Rule};

use super::rate_limit::{RateLimitField, RateLimitKind};
use super::yaml::Place;

/// The rule of a descriptor with a limit.
#[derive(Debug)]
pub(crate) struct EnvoyRule {
    name: Box<str>,
    /// The place of the descriptor.
    pub(super) place: Place,
    pub(super) settings: Rule,
    rate_limit: RateLimitField,
    is_quota: bool,
}

impl EnvoyRule {
    pub(super) fn new(
        name: Box<str>,
        place: Place,
        rate_limit: RateLimitField,
        is_quota: bool,
        settings: Rule,
    ) -> Self {
        Self { name, place, settings, rate_limit, is_quota }
    }

    /// Its name: the domain, and the key and the value of each descriptor down to it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The `name` of its limit.
    pub(crate) fn limit_name(&self) -> Option<&str> {
        self.rate_limit.name.as_deref()
    }

    /// Returns whether it replaces another rule of a request.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let name = other.limit_name();
        name.is_some_and(|name| self.rate_limit.replaces.iter().any(|replaced| **replaced == *name))
    }

    /// Returns whether it is reported as metadata instead of enforced.
    pub(crate) fn is_quota(&self) -> bool {
        self.is_quota
    }

    /// The limit whose window a rule of 0 requests has.
    pub(crate) fn denied_limit(&self) -> Option<Limit> {
        match self.rate_limit.kind {
            RateLimitKind::Denied(limit) => Some(limit),
            RateLimitKind::Limited(_) | RateLimitKind::Unlimited => None,
        }
    }

    /// Returns whether later requests may give its permits back.
    pub(crate) fn has_refunds(&self) -> bool {
        self.rate_limit.has_refunds
    }

    /// The longest time for which its hits can be given back, and a slot is held.
    pub(crate) fn hold(&self) -> Duration {
        self.rate_limit.hold
    }
}

/// The names of the parts of a key's template, each of another entry.
#[derive(Clone, Debug, Default)]
pub(super) struct PartNames(Vec<String>);

impl PartNames {
    /// Returns the name of the part of an entry's value: its key, with `_` for what no name has, and with a number if an
    /// entry above has the name.
    pub(super) fn name_of(&mut self, key: &str) -> String {
        let mut name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            name.insert(0, '_');
        }
        let mut number = 2;
        let first = name.clone();
        while self.0.contains(&name) {
            name = format!("{first}{number}");
            number += 1;
        }
        self.0.push(name.clone());
        name
    }
}
