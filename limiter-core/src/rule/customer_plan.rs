//! The plans of customers: what a customer has bought, such as `free` and `pro`, with limits and settings for it.
//!
//! A set of rules has a table for each plan, and a rule names the plans that apply to it. A call brings the name of one.
//! The name chooses settings and is no part of the key, so a customer who changes the plan keeps what was used.
//!
//! These are not the [`Plan`](crate::rule::Plan) of a call, which is what is decided about it.

mod name;
mod of_rule;
mod tables;

pub(crate) use name::CustomerPlan;
pub(crate) use of_rule::{CustomerPlanOfRule, CustomerPlansOfRule};
#[cfg(feature = "rules")]
pub(crate) use tables::unknown_name_problem;
pub(crate) use tables::{PlanTables, names_problem};

#[cfg(all(test, not(limiter_loom)))]
mod tests;
