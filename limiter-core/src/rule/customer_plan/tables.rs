//! The tables of plans in a set of rules, and the messages about them.

use std::collections::BTreeMap;

use limiter_syntax::nearest;

use super::name::{CustomerPlan, MAX_NAME_BYTES};
use crate::rule::Rule;
use crate::rule::message_text::{cut, list};
use crate::{Error, ErrorKind};

/// The plans of a set of rules, by name.
pub(crate) type PlanTables = BTreeMap<String, Rule>;

/// The most plans that a rule names. A call compares its plan with each.
const MAX_PLANS_OF_RULE: usize = 100;

impl Rule {
    /// Checks the table of a plan.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that no plan can have, for a plan without settings or with those that only a rule
    /// has, and as for [`check`](Rule::check).
    pub(crate) fn check_as_plan(&self, name: &str) -> Result<(), Error> {
        let error = |problem: String| Err(Error::new(ErrorKind::Config, self.place.locate(&problem)));
        if let Some(problem) = name_problem(name) {
            return error(problem);
        }
        if self.is_empty() {
            return error(no_settings_problem(name));
        }
        let of_rules =
            [("key", self.key.is_some()), ("overriding", !self.overrides.is_empty()), ("plans", self.plans.is_some())];
        if let Some((setting, _)) = of_rules.into_iter().find(|(_, is_set)| *is_set) {
            let name = cut(name);
            return error(format!("`{setting}` must be left out of the plan `{name}`, got it: set it for a rule"));
        }
        self.check(&format!("the plan `{name}`"))
    }

    /// Checks that a set of rules has a table for each plan that the rule names, and that the process has room for its name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for the first that has none.
    pub(crate) fn check_plans(&self, tables: &PlanTables) -> Result<(), Error> {
        let unknown = self.plans.iter().flatten().find(|name| !tables.contains_key(*name));
        if let Some(name) = unknown {
            return Err(Error::new(ErrorKind::Config, self.place.locate(&unknown_name_problem(name, tables))));
        }
        self.plans.iter().flatten().try_for_each(|name| CustomerPlan::reserve(name))
    }
}

/// Returns the message for a mistake in the names of a rule's plans, with the index of the name if one is the culprit.
/// `of_name` follows the word `plans`.
pub(crate) fn names_problem(names: &[String], of_name: &str) -> Option<(Option<usize>, String)> {
    if names.is_empty() {
        let problem = format!(
            "`plans`{of_name} must name at least one plan, got an empty list: write one such as `[\"free\", \"pro\"]`, or \
             remove it"
        );
        return Some((None, problem));
    }
    let count = names.len();
    if count > MAX_PLANS_OF_RULE {
        let problem =
            format!("`plans`{of_name} must name at most {MAX_PLANS_OF_RULE} plans, got {count}: remove the others");
        return Some((None, problem));
    }
    let index = (0..count).find(|index| names[..*index].contains(&names[*index]))?;
    let name = cut(&names[index]);
    Some((Some(index), format!("`plans`{of_name} must name each plan once, got `{name}` twice: remove one of them")))
}

/// Returns the message for a plan that a rule names and the set of rules lacks.
pub(crate) fn unknown_name_problem(name: &str, tables: &PlanTables) -> String {
    let known: Vec<_> = tables.keys().map(String::as_str).collect();
    let fix = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("`{}`", cut(meant)),
        None if known.is_empty() => format!("its table `[plans.{}]`", cut(name)),
        None => format!("one of {}, or its table `[plans.{}]`", list(&known), cut(name)),
    };
    let name = cut(name);
    format!("`plans` must name plans of the same set of rules, got `{name}`, which has no table: write {fix}")
}

/// Returns the message for a name that no plan can have.
fn name_problem(name: &str) -> Option<String> {
    let found = match name {
        "" => "an empty text".to_owned(),
        _ if name.len() > MAX_NAME_BYTES || name.contains(char::is_control) => format!("`{}`", cut(name)),
        _ => return None,
    };
    Some(format!(
        "the name of a plan must have 1 to {MAX_NAME_BYTES} bytes and no control characters, got {found}: write one such \
         as `pro`"
    ))
}

/// Returns the message for a plan that changes nothing.
fn no_settings_problem(name: &str) -> String {
    let name = cut(name);
    format!(
        "the plan `{name}` must have a limit or another setting, got none: write one such as `limit = \"1000/day\"`, or \
         remove it"
    )
}
