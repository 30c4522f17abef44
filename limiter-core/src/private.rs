//! The items that the attribute's expansion uses. They are not part of the public API and may change with any version.

mod rules;
mod values;
mod calendar;
mod plan;
mod call;
mod outcome;
mod permit;

use crate::ErrorKind;
pub use crate::concurrency::{HeldSlots, SlotHolder};
pub use crate::convert::{FromDenied, FromFailure};
pub use crate::current::{LimiterHandle, current};
use crate::request::CallSettings;
use crate::rule::{KeyText, RuleId, RuleRef};
#[cfg(feature = "sites")]
pub use crate::site::Registration;
pub use crate::site::RuleSite;
pub use crate::{
    __register_sites as register_sites, __require_calendar as require_calendar, __require_leases as require_leases,
    Algorithm, Block, Denied, Error, Key, Limit, Limiter, OnError,
};
pub use calendar::CalendarLimit;
pub use call::{decide, decide_blocking, denied, denied_blocking};
#[cfg(feature = "sites")]
pub use inventory;
pub use outcome::{Fallible, FutureValue, PlainValue, Resolvable, Resolving, call, resolve, run};
pub use permit::{actual_cost, allowed, allowed_blocking, settle, try_allowed, try_allowed_blocking};
pub use plan::{PlanName, PlanOfCall, plan};
pub use rules::{KeyRef, RuleRequest};
pub use values::{
    LimitOrNearest, LimitRef, LimiterRef, StaticKey, ToKey, block, captured_value, concurrent, concurrent_of,
    counted_by, key, limit, limit_from, limit_of, limiter,
};

/// Returns the error of an option that is out of its range.
#[must_use]
pub fn config_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// The rules of an annotated function and its failure policy, in a static inside the function.
#[derive(Debug)]
pub struct AnnotatedFunction {
    names: &'static [&'static str],
    rules: &'static [RuleSite],
    on_error: Option<OnError>,
    /// The `leases` of the first rule, which most functions have alone, and of the others.
    leases: Option<bool>,
    leases_of_others: &'static [Option<bool>],
    /// The rules that may be charged after a call, as flags. Empty if all may.
    settled: &'static [bool],
    /// The blocks that its rules begin, in their order. Empty if none does.
    blocks: &'static [Option<Block>],
    /// The position of the first rule in the caches of threads.
    first_rule: RuleId,
}

impl AnnotatedFunction {
    /// Creates it from the names and the descriptions of its rules, in the same order.
    #[must_use]
    pub const fn new(names: &'static [&'static str], rules: &'static [RuleSite]) -> Self {
        Self {
            names,
            rules,
            on_error: None,
            leases: None,
            leases_of_others: &[],
            settled: &[],
            blocks: &[],
            first_rule: RuleId::new(),
        }
    }

    #[must_use]
    pub const fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// Sets the `leases` of its rules, in their order.
    #[must_use]
    pub const fn leases(mut self, leases: &'static [Option<bool>]) -> Self {
        if let [first, others @ ..] = leases {
            self.leases = *first;
            self.leases_of_others = others;
        }
        self
    }

    /// Sets which of its rules may be charged after a call, in their order. Without it all may.
    #[must_use]
    pub const fn settled(mut self, settled: &'static [bool]) -> Self {
        self.settled = settled;
        self
    }

    /// Sets the blocks that its rules begin, in their order.
    #[must_use]
    pub const fn blocks(mut self, blocks: &'static [Option<Block>]) -> Self {
        self.blocks = blocks;
        self
    }

    /// Returns the descriptions of its rules.
    #[must_use]
    pub fn rules(&self) -> &'static [RuleSite] {
        self.rules
    }

    /// The settings of a rule beside the failure policy, which is that of all rules.
    #[inline]
    fn settings_of(&self, index: usize) -> CallSettings {
        let leases = match index.checked_sub(1) {
            None => self.leases,
            Some(other) => self.leases_of_others.get(other).copied().flatten(),
        };
        let block = self.blocks.get(index).copied().flatten();
        CallSettings { leases, block, ..CallSettings::NONE }
    }

    /// Returns whether a rule may be charged after a call.
    fn settles(&self, index: usize) -> bool {
        self.settled.get(index).copied().unwrap_or(true)
    }

    /// The rule of an index.
    #[inline]
    fn rule(&'static self, index: usize) -> FunctionRule {
        FunctionRule { function: self, index }
    }
}

/// A rule of an annotated function.
#[derive(Clone, Copy)]
struct FunctionRule {
    function: &'static AnnotatedFunction,
    index: usize,
}

impl RuleRef for FunctionRule {
    #[inline]
    fn position(&self) -> u32 {
        let length = u32::try_from(self.function.names.len()).unwrap_or(u32::MAX);
        self.function.first_rule.position(length) + u32::try_from(self.index).unwrap_or(0)
    }

    fn name_and_key(&self) -> (&str, KeyText) {
        let name = self.function.names.get(self.index).copied().unwrap_or_default();
        let key = self.function.rules.get(self.index).and_then(|rule| rule.key);
        (name, key.map_or(KeyText::Expression, KeyText::Template))
    }
}
