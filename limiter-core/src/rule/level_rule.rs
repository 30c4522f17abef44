//! A rule in one level, with its overrides indexed by the keys that they match.

use std::sync::Arc;

use crate::rule::Rule;
use crate::rule::level_warnings::{LoggedMistakes, LoggedRule};
use crate::rule::override_index::{InvalidOverride, OverrideIndex};
use crate::{Error, ErrorKind, Key};

/// A rule in one level.
#[derive(Debug)]
pub(crate) struct LevelRule {
    pub(crate) rule: Arc<Rule>,
    /// `None` without overrides.
    overrides: Option<OverrideIndex>,
    /// The template that the overrides' parts belong to; `None` for a key that is an expression.
    template: Option<Box<str>>,
    /// False if the template is only a guess.
    is_key_known: bool,
    /// The overrides that match no key of the guessed template.
    unmatched: Vec<InvalidOverride>,
    logged: LoggedMistakes,
}

impl LevelRule {
    /// Creates the rule of a name. `template` is its key; `None` for an expression.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an override that matches no key of the template, or the same keys as another one.
    pub(crate) fn new(name: &str, rule: Arc<Rule>, template: Option<&str>) -> Result<Self, Error> {
        let index = || OverrideIndex::new(template, rule.overrides.iter().map(|(keys, _)| keys));
        let overrides = (!rule.overrides.is_empty()).then(index).transpose();
        let overrides = overrides.map_err(|invalid| invalid_override_error(name, &rule, &invalid))?;
        let (template, logged) = (template.map(Into::into), LoggedMistakes::new(&rule.overrides));
        Ok(Self { rule, overrides, template, is_key_known: true, unmatched: Vec::new(), logged })
    }

    /// Checks that each override matches keys of one of these templates. Without templates nothing is known.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for the first override that matches none. Its text is that of a template which has the
    /// override's parts, or else of the first template.
    pub(crate) fn check_forms(&self, name: &str, templates: &[&str]) -> Result<(), Error> {
        for (index, (keys, _)) in self.rule.overrides.iter().enumerate() {
            let invalid = templates.iter().map(|template| OverrideIndex::new(Some(template), [keys]).err());
            // None if it matches keys of one of them.
            let Some(invalid) = invalid.collect::<Option<Vec<_>>>() else { continue };
            let by_value = invalid.iter().find(|invalid| invalid.is_by_value);
            if let Some(invalid) = by_value.or(invalid.first()).cloned() {
                let invalid = InvalidOverride { index, ..invalid };
                return Err(invalid_override_error(name, &self.rule, &invalid));
            }
        }
        Ok(())
    }

    /// Returns this rule for calls with this key, which may differ from the one that the rule was made for. `None` is an
    /// expression. The overrides that match no such key are left out: the second value has them.
    pub(crate) fn for_template(self: &Arc<Self>, template: Option<&str>) -> (Arc<Self>, Vec<InvalidOverride>) {
        if self.overrides.is_none() || self.template.as_deref() == template {
            return (Arc::clone(self), Vec::new());
        }
        let (overrides, unmatched) =
            OverrideIndex::of_valid(template, self.rule.overrides.iter().map(|(keys, _)| keys));
        let (rule, template) = (Arc::clone(&self.rule), template.map(Into::into));
        let (overrides, logged) = (Some(overrides), LoggedMistakes::new(&[]));
        let for_key = Self { rule, overrides, template, is_key_known: true, unmatched: Vec::new(), logged };
        (Arc::new(for_key), unmatched)
    }

    /// Creates the rule of a name whose function's key is unknown. Overrides of parts that its name does not have match
    /// nothing before [`for_template`](Self::for_template).
    pub(crate) fn of_unknown_key(name: &str, rule: Arc<Rule>) -> Self {
        let index = || OverrideIndex::of_valid(Some(name), rule.overrides.iter().map(|(keys, _)| keys));
        let (overrides, unmatched) = (!rule.overrides.is_empty()).then(index).unzip();
        let (unmatched, logged) = (unmatched.unwrap_or_default(), LoggedMistakes::new(&rule.overrides));
        Self { rule, overrides, template: Some(name.into()), is_key_known: false, unmatched, logged }
    }

    /// Returns the rule for events about it. One that [`for_template`](Self::for_template) returned has none.
    pub(crate) fn to_log<'r>(&'r self, name: &'r str) -> LoggedRule<'r> {
        LoggedRule { name, rule: &self.rule, logged: &self.logged }
    }

    /// The overrides that match no key of a direct call, if the rule's name stands for an unknown key.
    pub(crate) fn unmatched(&self) -> &[InvalidOverride] {
        &self.unmatched
    }

    /// Returns whether the overrides, if there are any, are those of the key that a set of rules states, or else of a key
    /// that is known.
    pub(crate) fn belongs_to(&self, stated: Option<&str>) -> bool {
        match stated {
            _ if self.overrides.is_none() => true,
            Some(stated) => self.template.as_deref() == Some(stated),
            None => self.is_key_known,
        }
    }

    /// Returns true for the first call with a plan that the rule does not name.
    pub(crate) fn add_unknown_plan(&self) -> bool {
        self.logged.add_unknown_plan()
    }

    pub(crate) fn has_overrides(&self) -> bool {
        self.overrides.is_some()
    }

    /// Returns the override that applies to a key.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<&Rule> {
        let index = self.overrides.as_ref()?.find(key)?;
        self.rule.overrides.get(index).map(|(_, rule)| rule)
    }
}

fn invalid_override_error(name: &str, rule: &Rule, invalid: &InvalidOverride) -> Error {
    let place = rule.overrides.get(invalid.index).map(|(_, rule)| rule.place).unwrap_or_default();
    Error::new(ErrorKind::Config, place.locate(&invalid.in_rule(name)))
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;
    use crate::{KeyMatch, Mode};

    #[test]
    fn overrides_that_match_no_direct_call_are_found() {
        let by_part = || Rule::new().overriding(KeyMatch::parts([("user_id", "42")]), Rule::new().mode(Mode::Deny));
        let rule = by_part().overriding(KeyMatch::key(&Key::new("upload:").part(42)), Rule::new().mode(Mode::Deny));
        for (name, rule, expected) in [("upload", rule, 1), ("upload:{user_id}", by_part(), 0)] {
            let rule = LevelRule::of_unknown_key(name, Arc::new(rule));
            assert_eq!((rule.unmatched().len(), rule.is_key_known), (expected, false), "{name}");
        }
    }
}
