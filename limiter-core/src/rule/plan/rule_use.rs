//! The input of a plan: the rules of a call, with what their caller sets.

use std::borrow::Cow;
use std::time::Duration;

use crate::block::BlockRef;
use crate::limit::LimitOrNearest;
use crate::request::CallSettings;
use crate::rule::{CustomerPlan, ResolvedRule, Settings};
use crate::{Key, Limit, Mode, OnError};

/// The caller's part of the failure policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPolicy {
    /// The policy of calls whose rules set none.
    pub(crate) on_error: Option<OnError>,
    /// The caller can return an error. Otherwise [`OnError::Raise`] counts as [`OnError::Closed`].
    pub(crate) returns_errors: bool,
    /// The longest deadline of the call, whatever the rules set. A shorter one of a rule or of the limiter applies.
    pub(crate) max_deadline: Option<Duration>,
}

impl OwnPolicy {
    /// The policy of a caller that sets none, and returns errors.
    pub(crate) const NONE: Self = Self { on_error: None, returns_errors: true, max_deadline: None };

    /// Returns the policy that applies: of the rules, of the caller, of the defaults of all rules, or of the limiter.
    #[inline]
    pub(super) fn resolve(
        self,
        of_rules: Option<OnError>,
        of_defaults: Option<OnError>,
        of_limiter: OnError,
    ) -> OnError {
        match of_rules.or(self.on_error).or(of_defaults).unwrap_or(of_limiter) {
            OnError::Raise if !self.returns_errors => OnError::Closed,
            policy => policy,
        }
    }
}

/// A rule of a call, before its settings are read.
#[derive(Clone, Copy)]
pub(crate) struct RuleUse<'a, 'l> {
    /// Its place among the rules of the call.
    pub(crate) rule_index: usize,
    /// The name in decisions.
    pub(crate) name: &'static str,
    pub(crate) key: &'a Key,
    pub(crate) limits: OwnLimits<'a, 'l>,
    /// The cost of a configured limit.
    pub(crate) cost: u32,
    /// The settings of the rule's attribute.
    pub(crate) own: CallSettings,
    pub(crate) customer_plan: CustomerPlan,
}

/// The limits that a caller has for a rule. Configured limits replace them.
#[derive(Clone, Copy)]
pub(crate) enum OwnLimits<'a, 'l> {
    /// Those of an attribute. On one counter the call counts once.
    Attribute(&'l [LimitOrNearest]),
    /// Those of a layer, as of an attribute.
    Layer(&'l [Limit]),
    /// The items of a direct call with the key of the rule; those with another key are not used. On one counter their costs
    /// add up.
    Items(&'l [(&'a Key, &'l Limit, u32)]),
}

impl<'a, 'l> RuleUse<'a, 'l> {
    /// The items of a direct call with one key, under a rule. A configured limit has the largest of their costs.
    #[inline]
    pub(crate) fn direct(
        rule_index: usize,
        name: &'static str,
        key: &'a Key,
        items: &'l [(&'a Key, &'l Limit, u32)],
    ) -> Self {
        let limits = OwnLimits::Items(items);
        let (own, customer_plan) = (CallSettings::NONE, CustomerPlan::NONE);
        let rule = Self { rule_index, name, key, limits, cost: 0, own, customer_plan };
        Self { cost: rule.limits().map(|(_, cost)| cost).max().unwrap_or(0), ..rule }
    }

    /// Returns it for a call of a customer who has this plan.
    pub(crate) fn with_customer_plan(self, customer_plan: CustomerPlan) -> Self {
        Self { customer_plan, ..self }
    }

    /// The settings of the call, for its key and its plan.
    #[inline]
    pub(super) fn settings<'r>(&self, resolved: &'r ResolvedRule) -> Cow<'r, Settings> {
        resolved.settings_for(self.key, self.customer_plan, || self.limits().next().is_some())
    }

    /// Returns it for a call that is charged once its cost is known.
    pub(crate) fn with_postpaid(self, is_postpaid: bool) -> Self {
        Self { own: CallSettings { postpaid: is_postpaid.then_some(true), ..self.own }, ..self }
    }

    /// Returns it for a call that nothing can charge afterwards. It takes its cost, also if the settings make it postpaid:
    /// otherwise nothing would limit it.
    pub(crate) fn never_settled(self) -> Self {
        Self { own: CallSettings { postpaid: Some(false), ..self.own }, ..self }
    }

    /// Returns whether its calls need one free permit and take none: by its caller, or by its settings.
    #[inline]
    pub(super) fn is_postpaid(&self, settings: &Settings) -> bool {
        self.own.postpaid.or(settings.call.postpaid) == Some(true)
    }

    /// Returns the block that a denial of the rule begins.
    #[inline]
    pub(super) fn block(&self, settings: &Settings) -> Option<BlockRef> {
        settings.call.block.or(self.own.block).map(|block| BlockRef::of_rule(self.name, block))
    }

    /// Returns what the rule does not get, although its settings demand it: to be postpaid.
    pub(super) fn unused_postpaid(&self, settings: &Settings) -> Option<&'static str> {
        let is_unused = settings.call.postpaid == Some(true) && self.own.postpaid == Some(false);
        (is_unused && !matches!(settings.mode(), Mode::Off | Mode::Deny)).then_some(
            "has calls that nothing settles, which take their cost although it is postpaid: add `settle` or `permit` to the \
             attribute, or `charge_if` to the layer, or remove `postpaid`",
        )
    }

    /// The limits of its caller, each with its cost.
    #[inline]
    pub(super) fn limits(&self) -> impl Iterator<Item = (LimitOrNearest, u32)> + Clone {
        let (attribute, layer, items): (&[LimitOrNearest], &[Limit], &[_]) = match self.limits {
            OwnLimits::Attribute(limits) => (limits, &[], &[]),
            OwnLimits::Layer(limits) => (&[], limits, &[]),
            OwnLimits::Items(items) => (&[], &[], items),
        };
        let Self { key, cost, .. } = *self;
        let attribute = attribute.iter().map(move |limit| (limit.clone(), cost));
        let layer = layer.iter().map(move |limit| (Ok(*limit), cost));
        let items = items.iter().filter(move |(of, ..)| *of == key).map(|&(_, limit, cost)| (Ok(*limit), cost));
        attribute.chain(layer).chain(items)
    }

    /// Returns the caller's limit, or `None` in it if the caller has none. `None` for several, and for an invalid one.
    #[inline]
    pub(super) fn lone_limit(&self) -> Option<Option<Limit>> {
        match self.limits {
            OwnLimits::Attribute([]) | OwnLimits::Layer([]) => Some(None),
            OwnLimits::Attribute([Ok(limit)]) | OwnLimits::Layer([limit]) => Some(Some(*limit)),
            // The items of a direct call have one key in most calls.
            OwnLimits::Items([(_, limit, _)]) => Some(Some(**limit)),
            _ => None,
        }
    }

    /// The caller's valid limits.
    #[inline]
    pub(super) fn valid_limits(&self) -> impl Iterator<Item = Limit> + Clone {
        self.limits().filter_map(|(limit, _)| limit.ok())
    }

    /// The limit that describes a call without any request.
    #[inline]
    pub(super) fn described_limit(&self, settings: &Settings) -> Limit {
        let own = || self.limits().next().map(|(limit, _)| limit.unwrap_or_else(|(_, nearest)| nearest));
        settings.limits().first().copied().or_else(own).unwrap_or(Limit::WIDEST)
    }
}
