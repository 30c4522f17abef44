//! The settings of one rule from all levels: for each key and each plan of a customer.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rule::customer_plan::{CustomerPlan, CustomerPlanOfRule, CustomerPlansOfRule};
use crate::rule::level_rule::LevelRule;
use crate::rule::settings::DefaultSettings;
use crate::rule::{Mode, Origin, Rule, Settings};
use crate::{Key, Limit};

/// The number of levels.
pub(super) const LEVELS: usize = 4;

/// The settings of a rule in one state of the levels.
#[derive(Debug, Default)]
pub(crate) struct ResolvedRule {
    /// The settings of keys without overrides.
    settings: Settings,
    /// Some calls have other settings: by an override or by their plan.
    has_variants: bool,
    has_overrides: bool,
    /// The plans of customers, if the rule names some.
    pub(super) plans: Option<Box<CustomerPlansOfRule>>,
    /// The rule in each level that has it, from the highest to the lowest.
    pub(super) levels: Vec<(Origin, Arc<LevelRule>)>,
    defaults: DefaultSettings,
    switch: Option<Mode>,
    is_shared_unread: bool,
    /// True once the log has a line about settings that a limit cannot use.
    is_logged: AtomicBool,
}

impl ResolvedRule {
    /// Creates the settings of a rule with these levels, from the highest to the lowest.
    pub(super) fn new(
        levels: Vec<(Origin, Arc<LevelRule>)>,
        defaults: DefaultSettings,
        switch: Option<Mode>,
        is_shared_unread: bool,
    ) -> Self {
        let has_overrides = levels.iter().any(|(_, rule)| rule.has_overrides());
        let has_variants = has_overrides;
        let resolved =
            Self { levels, defaults, switch, is_shared_unread, has_overrides, has_variants, ..Self::default() };
        Self { settings: resolved.compose(&[], &[]), ..resolved }
    }

    /// Adds the plans of customers.
    pub(super) fn with_plans(self, plans: CustomerPlansOfRule) -> Self {
        Self { plans: Some(Box::new(plans)), has_variants: true, ..self }
    }

    /// The settings of calls with this key and this plan. `has_limit` is about their caller: a call without any limit has
    /// that of the smallest plan.
    #[inline]
    pub(crate) fn settings_for(
        &self,
        key: &Key,
        plan: CustomerPlan,
        has_limit: impl FnOnce() -> bool,
    ) -> Cow<'_, Settings> {
        if !self.has_variants {
            return Cow::Borrowed(&self.settings);
        }
        match &self.plans {
            None => self.settings_with_overrides(key, None),
            Some(plans) => self.settings_of_plan(plans, key, plan, has_limit()),
        }
    }

    #[inline(never)]
    fn settings_with_overrides<'s>(&'s self, key: &Key, plan: Option<&'s CustomerPlanOfRule>) -> Cow<'s, Settings> {
        let mut found = [None; LEVELS];
        for (found, (_, rule)) in found.iter_mut().zip(&self.levels) {
            *found = rule.find(key);
        }
        if found.iter().any(Option::is_some) {
            return Cow::Owned(self.compose(&found, plan.map_or(&[], |plan| &plan.tables)));
        }
        Cow::Borrowed(plan.map_or(&self.settings, |plan| &plan.settings))
    }

    #[inline(never)]
    fn settings_of_plan<'s>(
        &'s self,
        plans: &'s CustomerPlansOfRule,
        key: &Key,
        plan: CustomerPlan,
        has_limit: bool,
    ) -> Cow<'s, Settings> {
        let plan = plans.find(plan);
        let settings = match plan {
            plan if self.has_overrides => self.settings_with_overrides(key, plan),
            Some(plan) => Cow::Borrowed(&plan.settings),
            None => Cow::Borrowed(&self.settings),
        };
        match plans.smallest() {
            Some(smallest) if settings.limits().is_empty() && !has_limit => {
                Cow::Owned(settings.into_owned().with_limits_of(smallest))
            }
            _ => settings,
        }
    }

    /// Composes the settings of all levels, with these overrides and these tables of a plan.
    pub(super) fn compose(&self, overrides: &[Option<&Rule>], plan: &[Option<Arc<Rule>>]) -> Settings {
        let mut settings = Settings::default();
        for (index, (origin, rule)) in self.levels.iter().enumerate() {
            if let Some(&Some(of_key)) = overrides.get(index) {
                settings.add_override(of_key, *origin);
            }
            if let Some(Some(of_plan)) = plan.get(index) {
                settings.add_override(of_plan, *origin);
            }
            settings.add(&rule.rule, *origin);
        }
        settings.add_defaults(&self.defaults);
        settings.switch_mode(self.switch);
        settings.is_shared_unread = self.is_shared_unread;
        settings
    }

    /// Returns whether the log has a line about settings that a limit cannot use.
    pub(crate) fn is_logged(&self) -> bool {
        self.is_logged.load(Ordering::Relaxed)
    }

    /// Returns true for the first call.
    pub(crate) fn log_once(&self) -> bool {
        !self.is_logged.swap(true, Ordering::Relaxed)
    }

    /// The settings of keys without overrides.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the level of a limit of calls with this key. `None` if it is not configured.
    pub(crate) fn origin_of(&self, limit: Limit, key: &Key) -> Option<Origin> {
        let of_key = self.settings_with_overrides(key, None);
        let of_plans = self.plans.iter().flat_map(|plans| plans.iter()).map(|plan| &plan.settings);
        let mut all = [&*of_key].into_iter().chain(of_plans);
        all.find(|settings| settings.limits().contains(&limit)).map(Settings::limits_origin)
    }

    /// The names of the plans of customers.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().flat_map(|plans| plans.iter()).map(CustomerPlanOfRule::name)
    }

    /// Returns whether a plan has limits, so that no call of the rule is without one.
    pub(super) fn has_limits_of_plans(&self) -> bool {
        self.plans.as_ref().is_some_and(|plans| plans.smallest().is_some())
    }

    /// The number of overrides in all levels.
    pub(crate) fn overrides(&self) -> usize {
        self.levels.iter().map(|(_, rule)| rule.rule.overrides.len()).sum()
    }
}
