//! The layers of settings: sets of rules in their order of precedence.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Key;
use crate::rule::{Mode, Origin, Rule, RuleSet, Settings};

/// The sets of rules of a limiter. A setting comes from the first layer that has it, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    pub(crate) runtime: Arc<RuleSet>,
    pub(crate) file: Arc<RuleSet>,
    pub(crate) builder: Arc<RuleSet>,
}

impl Layers {
    /// The layers with their origins, from the highest to the lowest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Origin, &RuleSet)> + Clone {
        let Self { runtime, file, builder } = self;
        [(Origin::Runtime, runtime), (Origin::File, file), (Origin::Builder, builder)]
            .into_iter()
            .map(|(origin, set)| (origin, &**set))
    }

    /// Replaces the layer of an origin.
    pub(crate) fn set(&mut self, origin: Origin, rules: RuleSet) {
        let layer = match origin {
            Origin::Runtime => &mut self.runtime,
            Origin::File => &mut self.file,
            Origin::Attribute | Origin::Builder => &mut self.builder,
        };
        *layer = Arc::new(rules);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().all(|(_, set)| set.is_empty())
    }

    /// Returns whether a rule has settings of its own.
    pub(crate) fn have(&self, name: &str) -> bool {
        self.layers_of(name).next().is_some()
    }

    /// The names of all rules with settings.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.iter().flat_map(|(_, set)| set.rules.keys().map(String::as_str)).collect()
    }

    /// Composes the settings of a rule. `switch` is the value of `RATE_LIMITED_MODE`.
    pub(crate) fn resolve(&self, name: &str, switch: Option<Mode>) -> ResolvedRule {
        let mut settings = Settings::default();
        for (origin, rule) in self.layers_of(name) {
            settings.add(rule, origin);
        }
        self.complete(&mut settings, switch);
        ResolvedRule { settings }
    }

    fn layers_of(&self, name: &str) -> impl Iterator<Item = (Origin, &Rule)> {
        self.iter().filter_map(move |(origin, set)| Some((origin, set.rules.get(name)?)))
    }

    fn complete(&self, settings: &mut Settings, switch: Option<Mode>) {
        for (_, set) in self.iter() {
            settings.add_defaults(&set.defaults);
        }
        settings.switch_mode(switch);
    }
}

/// The settings of a rule in one state of the layers.
#[derive(Debug, Default)]
pub(crate) struct ResolvedRule {
    settings: Settings,
}

impl ResolvedRule {
    /// The settings of calls with this key.
    #[inline]
    pub(crate) fn settings_for(&self, _key: &Key) -> Cow<'_, Settings> {
        Cow::Borrowed(&self.settings)
    }

    /// The settings of keys without overrides.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}
