//! A rule in one layer, with its overrides indexed by the keys that they match.

use std::sync::Arc;

use crate::rule::override_index::OverrideIndex;
use crate::rule::{KeyText, Rule};
use crate::{Error, ErrorKind, Key, TARGET};

/// A rule in one layer.
#[derive(Debug)]
pub(crate) struct LayerRule {
    pub(crate) rule: Arc<Rule>,
    /// `None` without overrides.
    overrides: Option<OverrideIndex>,
    /// The template that the overrides' parts belong to; `None` for a key that is an expression.
    template: Option<Box<str>>,
}

impl LayerRule {
    /// Creates the rule of a name. `template` is its key; `None` for an expression.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an override that matches no key of the template, or the same keys as another one.
    pub(crate) fn new(name: &str, rule: Arc<Rule>, template: Option<&str>) -> Result<Self, Error> {
        let index = || OverrideIndex::new(template, rule.overrides.iter().map(|(keys, _)| keys));
        let overrides = (!rule.overrides.is_empty()).then(index).transpose().map_err(|invalid| {
            let place = rule.overrides.get(invalid.index).map(|(_, rule)| rule.place).unwrap_or_default();
            Error::new(ErrorKind::Config, place.locate(&invalid.in_rule(name)))
        })?;
        Ok(Self { rule, overrides, template: template.map(Into::into) })
    }

    /// Returns this rule for a function with this key, which may differ from the one that the rule was made for. The
    /// overrides that match no key of the function are left out, with a warning.
    pub(crate) fn for_key(self: &Arc<Self>, name: &str, key: KeyText) -> Arc<Self> {
        let template = match key {
            KeyText::Template(template) => Some(template),
            KeyText::Expression => None,
            KeyText::Unknown => return Arc::clone(self),
        };
        if self.overrides.is_none() || self.template.as_deref() == template {
            return Arc::clone(self);
        }
        let mut rule = Rule::clone(&self.rule);
        loop {
            match OverrideIndex::new(template, rule.overrides.iter().map(|(keys, _)| keys)) {
                Ok(overrides) => {
                    let template = template.map(Into::into);
                    return Arc::new(Self { rule: Arc::new(rule), overrides: Some(overrides), template });
                }
                Err(invalid) => {
                    tracing::warn!(target: TARGET, rule = name, problem = invalid.message, "an override does not apply");
                    drop(rule.overrides.remove(invalid.index));
                }
            }
        }
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
