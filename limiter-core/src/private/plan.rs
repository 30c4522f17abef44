//! The plan of a call's customer, in an expansion.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use crate::rule::CustomerPlan;

/// The plan of a call's customer.
#[derive(Clone, Copy, Debug)]
pub struct PlanOfCall(CustomerPlan);

impl PlanOfCall {
    /// No plan.
    pub const NONE: Self = Self(CustomerPlan::NONE);

    /// Returns the plan of a name. An empty name is none.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(CustomerPlan::of_call(name))
    }

    pub(crate) fn customer_plan(self) -> CustomerPlan {
        self.0
    }
}

/// Returns the plan that an expression names.
pub fn plan<P: PlanName + ?Sized>(plan: &P) -> PlanOfCall {
    plan.plan_name().map_or(PlanOfCall::NONE, PlanOfCall::new)
}

/// A value of `plan = <expression>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a plan",
    label = "expected a text such as `&str` or `String`, or an `Option` of one",
    note = "write the name that the rules have, such as `customer.plan().name()` for `[plans.pro]`"
)]
pub trait PlanName {
    /// Returns the name. `None` is no plan.
    fn plan_name(&self) -> Option<&str>;
}

impl PlanName for str {
    fn plan_name(&self) -> Option<&str> {
        Some(self)
    }
}

impl PlanName for String {
    fn plan_name(&self) -> Option<&str> {
        Some(self)
    }
}

impl PlanName for Cow<'_, str> {
    fn plan_name(&self) -> Option<&str> {
        Some(self)
    }
}

impl<P: PlanName> PlanName for Option<P> {
    fn plan_name(&self) -> Option<&str> {
        self.as_ref().and_then(PlanName::plan_name)
    }
}

macro_rules! through_pointers {
    ($($pointer:ty),+) => {
        $(#[diagnostic::do_not_recommend]
        impl<P: PlanName + ?Sized> PlanName for $pointer {
            fn plan_name(&self) -> Option<&str> {
                (**self).plan_name()
            }
        })+
    };
}

through_pointers!(&P, &mut P, Box<P>, Rc<P>, Arc<P>);

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_text_of_any_kind_or_none() {
        let pro = CustomerPlan::of_call("pro of a test");
        let (text, owned) = ("pro of a test", "pro of a test".to_owned());
        let shared: Arc<str> = text.into();
        let all = [
            plan(text),
            plan(&text),
            plan(&owned),
            plan(&&owned),
            plan(&Some(text)),
            plan(&Some(&owned)),
            plan(&Cow::Borrowed(text)),
            plan(&Some(shared)),
        ];
        assert!(all.iter().all(|plan| plan.0 == pro));
        assert_eq!(plan(&None::<&str>).0, CustomerPlan::NONE);
    }
}
