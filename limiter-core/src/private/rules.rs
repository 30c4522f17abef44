//! The rules of an annotated call.

use std::slice;

use crate::private::{LimitOrNearest, PlanOfCall, StaticKey, limit};
use crate::rule::CustomerPlan;
use crate::{Key, Limit};

/// The requests of one rule of a call: a key, its limits and a cost.
#[derive(Debug)]
pub struct RuleRequest {
    key: KeyRef,
    limits: Limits,
    pub(super) cost: u32,
    /// The call takes nothing and is charged once its cost is known.
    pub(super) is_postpaid: bool,
    pub(super) customer_plan: CustomerPlan,
}

/// The key of a rule.
#[derive(Debug)]
pub enum KeyRef {
    Owned(Key),
    Static(&'static StaticKey),
}

impl From<Key> for KeyRef {
    #[inline]
    fn from(key: Key) -> Self {
        Self::Owned(key)
    }
}

impl From<&'static StaticKey> for KeyRef {
    #[inline]
    fn from(key: &'static StaticKey) -> Self {
        Self::Static(key)
    }
}

#[derive(Debug)]
enum Limits {
    One(LimitOrNearest),
    /// One limit of a call that is always planned.
    Planned(LimitOrNearest),
    Several(Vec<LimitOrNearest>),
    /// The limits are those of the settings by name. Without them the rule has none.
    Configured,
}

impl RuleRequest {
    /// Creates the request of a rule with one limit.
    #[inline]
    #[must_use]
    pub fn with_limit(key: impl Into<KeyRef>, limit: LimitOrNearest, cost: u32) -> Self {
        Self {
            key: key.into(),
            limits: Limits::One(limit),
            cost,
            is_postpaid: false,
            customer_plan: CustomerPlan::NONE,
        }
    }

    /// Creates the request of a rule with several limits.
    #[must_use]
    pub fn with_limits<const N: usize>(key: impl Into<KeyRef>, limits: [LimitOrNearest; N], cost: u32) -> Self {
        Self {
            key: key.into(),
            limits: Limits::Several(limits.into()),
            cost,
            is_postpaid: false,
            customer_plan: CustomerPlan::NONE,
        }
    }

    /// Creates the most common request: one permit of one limit whose numbers are literals.
    #[inline]
    #[must_use]
    pub fn one_permit(key: impl Into<KeyRef>, max: u32, window_millis: u64) -> Option<Self> {
        Some(Self::with_limit(key, Ok(limit(max, window_millis)), 1))
    }

    /// Creates the request of a rule that is known at compile time. It can be in a `static`, so a call neither builds
    /// nor moves it.
    #[must_use]
    pub const fn one_permit_static(key: &'static StaticKey, max: u32, window_millis: u64) -> Option<Self> {
        let limits = Limits::One(Ok(limit(max, window_millis)));
        Some(Self { key: KeyRef::Static(key), limits, cost: 1, is_postpaid: false, customer_plan: CustomerPlan::NONE })
    }

    /// Creates the request of a rule whose limits are in the settings by name alone.
    #[must_use]
    pub fn configured(key: impl Into<KeyRef>, cost: u32) -> Option<Self> {
        Some(Self {
            key: key.into(),
            limits: Limits::Configured,
            cost,
            is_postpaid: false,
            customer_plan: CustomerPlan::NONE,
        })
    }

    /// Creates the request of such a rule, of one permit and with a key without values, in a `static`.
    #[must_use]
    pub const fn configured_static(key: &'static StaticKey) -> Option<Self> {
        Some(Self {
            key: KeyRef::Static(key),
            limits: Limits::Configured,
            cost: 1,
            is_postpaid: false,
            customer_plan: CustomerPlan::NONE,
        })
    }

    /// Returns a request for a call of a customer who has this plan.
    #[must_use]
    pub fn of_plan(request: Option<Self>, plan: PlanOfCall) -> Option<Self> {
        request.map(|request| Self { customer_plan: plan.customer_plan(), ..request })
    }

    /// Returns it for a call that its function or its permit settles. A cost of 0 is then that of a postpaid call: otherwise
    /// a caller whose estimate is 0 would never be denied.
    #[must_use]
    pub fn settled(self) -> Self {
        match self.limits {
            Limits::One(limit) if self.cost == 0 => Self { limits: Limits::Planned(limit), is_postpaid: true, ..self },
            _ => Self { is_postpaid: self.cost == 0, ..self },
        }
    }

    /// Returns it for a call whose rule has settings that only a plan knows, such as a block.
    #[must_use]
    pub fn planned(self) -> Self {
        match self.limits {
            Limits::One(limit) => Self { limits: Limits::Planned(limit), ..self },
            _ => self,
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        match &self.key {
            KeyRef::Owned(key) => key,
            KeyRef::Static(key) => key.key(),
        }
    }

    /// The limit of the attribute, if it is valid and the only one.
    #[inline]
    pub(super) fn own_limit(&self) -> Option<&Limit> {
        if let Limits::One(Ok(limit)) = &self.limits { Some(limit) } else { None }
    }

    pub(super) fn limits(&self) -> &[LimitOrNearest] {
        match &self.limits {
            Limits::One(limit) | Limits::Planned(limit) => slice::from_ref(limit),
            Limits::Several(limits) => limits,
            Limits::Configured => &[],
        }
    }
}
