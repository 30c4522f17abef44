//! The plans that a rule names, with the settings that each of them leads to.

use std::sync::Arc;

use super::CustomerPlan;
use crate::algorithm::CounterKind;
use crate::rule::level_rule::LevelRule;
use crate::rule::{Mode, Rule, Settings, log_apart};
use crate::{Limit, TARGET};

/// The plans of one rule, in one state of the levels.
#[derive(Debug)]
pub(crate) struct CustomerPlansOfRule {
    rule: Box<str>,
    /// The rule in the level that names the plans.
    named_by: Arc<LevelRule>,
    plans: Vec<CustomerPlanOfRule>,
    /// The plan with the lowest limit. `None` if no plan has one.
    smallest: Option<usize>,
}

/// A plan of a rule.
#[derive(Debug)]
pub(crate) struct CustomerPlanOfRule {
    plan: CustomerPlan,
    name: Box<str>,
    /// Its tables in the levels of the rule. A level may lack it.
    pub(crate) tables: Vec<Option<Arc<Rule>>>,
    /// The settings of keys without overrides.
    pub(crate) settings: Settings,
}

impl CustomerPlanOfRule {
    /// Creates the plan of a name. `compose` returns its settings from its tables.
    pub(crate) fn new(
        name: &str,
        tables: Vec<Option<Arc<Rule>>>,
        compose: impl FnOnce(&[Option<Arc<Rule>>]) -> Settings,
    ) -> Self {
        let settings = compose(&tables);
        Self { plan: CustomerPlan::of_rules(name), name: name.into(), tables, settings }
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name with the limits.
    pub(crate) fn described(&self) -> String {
        let limits: Vec<_> = self.settings.limits().iter().map(Limit::to_string).collect();
        format!("`{}` ({})", self.name, limits.join(", "))
    }
}

impl CustomerPlansOfRule {
    pub(crate) fn new(rule: &str, named_by: Arc<LevelRule>, plans: Vec<CustomerPlanOfRule>) -> Self {
        let smallest = index_of_smallest(&plans);
        Self { rule: rule.into(), named_by, plans, smallest }
    }

    /// The plans, in the order of the rule.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomerPlanOfRule> {
        self.plans.iter()
    }

    /// Returns the plan of a call. `None` for a call without one, and for one that the rule does not name: the log has the
    /// first of those.
    #[inline]
    pub(crate) fn find(&self, plan: CustomerPlan) -> Option<&CustomerPlanOfRule> {
        let found = self.plans.iter().find(|of_rule| of_rule.plan == plan).filter(|_| plan.may_be_of_rule());
        if found.is_none() && plan != CustomerPlan::NONE {
            self.warn_of_unknown(plan);
        }
        found
    }

    /// The settings of the plan with the lowest limit, for calls that would have none. `None` if no plan has a limit.
    #[inline]
    pub(crate) fn smallest(&self) -> Option<&Settings> {
        self.smallest.and_then(|index| self.plans.get(index)).map(|of_rule| &of_rule.settings)
    }

    /// Returns two plans whose limits have other counters, so that a change between them starts new counts.
    pub(crate) fn with_other_counters(&self) -> Option<(&CustomerPlanOfRule, &CustomerPlanOfRule)> {
        let counters = |of_rule: &CustomerPlanOfRule| {
            let limits = of_rule.settings.limits().iter().filter_map(|limit| of_rule.settings.apply(*limit, None).ok());
            limits.map(|limit| (CounterKind::from(limit), limit.layout())).collect::<Vec<_>>()
        };
        let is_part = |one: &[_], other: &[_]| one.iter().all(|counter| other.contains(counter));
        let mut with_limits = self.plans.iter().filter(|of_rule| !of_rule.settings.limits().is_empty());
        let first = with_limits.next()?;
        let of_first = counters(first);
        let differs = |other: &&CustomerPlanOfRule| {
            let of_other = counters(other);
            !is_part(&of_first, &of_other) || !is_part(&of_other, &of_first)
        };
        with_limits.find(differs).map(|other| (first, other))
    }

    /// Logs once that a call has a plan that the rule does not name.
    #[cold]
    fn warn_of_unknown(&self, plan: CustomerPlan) {
        if !self.named_by.add_unknown_plan() {
            return;
        }
        let (rule, plan) = (self.rule.clone(), plan.name().unwrap_or("?"));
        log_apart(move || {
            tracing::warn!(
                target: TARGET,
                rule = &*rule,
                plan,
                "a call has a plan that its rule does not name: it has the rule's own limit, or else that of the \
                 smallest plan"
            );
        });
    }
}

/// Returns the plan whose slowest limit has the fewest permits in a time, and then the fewest at once. One that is off limits
/// nothing.
fn index_of_smallest(plans: &[CustomerPlanOfRule]) -> Option<usize> {
    let slowest = |of_rule: &CustomerPlanOfRule| of_rule.settings.limits().iter().map(rate).min();
    let is_counted = |(_, of_rule): &(usize, &CustomerPlanOfRule)| !matches!(of_rule.settings.mode(), Mode::Off);
    let with_limits = plans.iter().enumerate().filter(is_counted);
    with_limits.filter_map(|(index, of_rule)| Some((slowest(of_rule)?, index))).min().map(|(_, index)| index)
}

/// The permits of a limit in a time, and at once. Calls at once have no such bound.
fn rate(limit: &Limit) -> (u128, u32) {
    let in_time = match limit.is_concurrent() {
        true => u128::MAX,
        false => (u128::from(limit.max()) << u64::BITS) / u128::from(limit.window_millis()),
    };
    (in_time, limit.max_cost())
}
