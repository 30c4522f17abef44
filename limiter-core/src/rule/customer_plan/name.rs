//! The name of a customer's plan, as a number that a call compares without its text.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::sync::process::{ForChildren, PerProcess};
use crate::sync::{RwLock, read, write};
use crate::{Error, ErrorKind};

/// The plan of a call's customer, by its name.
///
/// Names of rules are kept until the process ends, and so are the first of other names that calls bring. Further names
/// are one plan, which no rule has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CustomerPlan(u16);

/// The most names of calls that no rule has.
const MAX_UNKNOWN: usize = 1_000;

/// The longest name that is kept.
pub(crate) const MAX_NAME_BYTES: usize = 100;

static NAMES: PerProcess<Names> = PerProcess::new();

/// The names so far.
struct Names {
    known: RwLock<Known>,
    for_children: ForChildren<Known>,
}

#[derive(Clone, Default)]
struct Known {
    plans: HashMap<&'static str, CustomerPlan>,
    /// The number of those that a call brought first.
    of_calls: usize,
}

/// The source that brings a name first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameOrigin {
    Rules,
    Call,
}

thread_local! {
    /// The plans that this thread has read, each at the slot of its name.
    static RECENT: RefCell<[Option<(&'static str, CustomerPlan)>; SLOTS]> = const { RefCell::new([None; SLOTS]) };
}

const SLOTS: usize = 16;

impl CustomerPlan {
    /// No plan.
    pub(crate) const NONE: Self = Self(0);
    /// A plan that no rule has.
    const OTHER: Self = Self(1);
    const FIRST: usize = 2;

    /// Returns the plan that a call names. An empty name is none.
    pub(crate) fn of_call(name: &str) -> Self {
        let Some(slot) = slot_of(name) else { return Self::NONE };
        let recent = RECENT.try_with(|recent| recent.borrow()[slot].filter(|(of, _)| *of == name)).ok().flatten();
        recent.map_or_else(|| Self::read(name, slot), |(_, plan)| plan)
    }

    /// Makes room for the plan that a set of rules has under a name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for one name more than a process may have: its plan would have no effect.
    pub(crate) fn reserve(name: &str) -> Result<(), Error> {
        Names::here().reserve(name)
    }

    /// Returns the plan that a set of rules has under a name.
    pub(crate) fn of_rules(name: &str) -> Self {
        Names::here().add(name, NameOrigin::Rules)
    }

    /// Returns whether the name is that of a rule's plan, or may be.
    pub(crate) fn may_be_of_rule(self) -> bool {
        self != Self::NONE && self != Self::OTHER
    }

    /// The name. `None` without one, or if it was not kept.
    pub(crate) fn name(self) -> Option<&'static str> {
        let known = read(&Names::here().known);
        known.plans.iter().find(|(_, plan)| **plan == self).map(|(name, _)| *name)
    }

    #[cold]
    fn read(name: &str, slot: usize) -> Self {
        let names = Names::here();
        let known = {
            let known = read(&names.known);
            let found = known.plans.get_key_value(name).map(|(name, plan)| (*name, *plan));
            // Names that clients choose take no lock for writing once there is no room for them.
            if found.is_none() && !known.has_room_for(name) {
                return Self::OTHER;
            }
            found
        };
        let Some(known) = known else {
            return names.add(name, NameOrigin::Call);
        };
        let _ = RECENT.try_with(|recent| recent.borrow_mut()[slot] = Some(known));
        known.1
    }
}

/// Returns the slot of a name. `None` for an empty one.
fn slot_of(name: &str) -> Option<usize> {
    let (first, last) = (name.as_bytes().first()?, name.as_bytes().last()?);
    Some((usize::from(*first) * 7 + usize::from(*last) * 3 + name.len()) % SLOTS)
}

impl Known {
    /// Returns whether a call may add a name.
    fn has_room_for(&self, name: &str) -> bool {
        self.of_calls < MAX_UNKNOWN && name.len() <= MAX_NAME_BYTES
    }
}

impl Names {
    fn new(known: Known) -> Self {
        Self { known: RwLock::new(known.clone()), for_children: ForChildren::new(known) }
    }

    /// The names of this process, and of its parents before they forked.
    fn here() -> &'static Self {
        NAMES.get(|parent| Self::new(parent.map_or_else(Known::default, |parent| parent.for_children.get())))
    }

    fn reserve(&self, name: &str) -> Result<(), Error> {
        if self.add(name, NameOrigin::Rules).may_be_of_rule() {
            return Ok(());
        }
        let most = usize::from(u16::MAX) + 1 - CustomerPlan::FIRST;
        let problem = format!(
            "`plans` must have at most {most} names in the life of a process, got one more: restart the \
             program, and use the same names again"
        );
        Err(Error::new(ErrorKind::Config, problem))
    }

    /// Returns the plan of a name, which is added if there is room.
    fn add(&self, name: &str, origin: NameOrigin) -> CustomerPlan {
        let mut known = write(&self.known);
        if let Some(plan) = known.plans.get(name) {
            return *plan;
        }
        let has_room = match origin {
            NameOrigin::Rules => true,
            NameOrigin::Call => known.has_room_for(name),
        };
        let number = u16::try_from(known.plans.len() + CustomerPlan::FIRST);
        let (Ok(number), true) = (number, has_room) else { return CustomerPlan::OTHER };
        known.of_calls += usize::from(origin == NameOrigin::Call);
        known.plans.insert(Box::leak(name.into()), CustomerPlan(number));
        self.for_children.set(&known);
        CustomerPlan(number)
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_plan_whoever_brings_it_first() {
        let [of_call, again, of_rules] = [
            CustomerPlan::of_call("name of a call"),
            CustomerPlan::of_call("name of a call"),
            CustomerPlan::of_rules("name of a call"),
        ];
        assert!(of_call == again && of_call == of_rules && of_call.may_be_of_rule());
        assert_eq!(of_call.name(), Some("name of a call"));
        assert_ne!(CustomerPlan::of_call("name of another"), of_call);
        assert_eq!(CustomerPlan::of_call(""), CustomerPlan::NONE);
    }

    #[test]
    fn a_set_with_more_names_than_a_process_may_have_is_rejected() {
        let first = u16::try_from(CustomerPlan::FIRST).expect("small");
        let known = (first..u16::MAX).map(|plan| (&*Box::leak(plan.to_string().into()), CustomerPlan(plan)));
        let names = Names::new(Known { plans: known.collect(), of_calls: 0 });
        assert!(names.reserve("the last one").is_ok() && names.reserve("the last one").is_ok());
        let error = names.reserve("one more").expect_err("no room").to_string();
        assert!(error.starts_with("`plans` must have at most 65534 names"), "{error}");
        assert!(names.reserve("77").is_ok(), "a known one");
    }

    #[test]
    fn names_beyond_the_bounds_are_a_plan_that_no_rule_has() {
        let names = Names::new(Known { of_calls: MAX_UNKNOWN, ..Known::default() });
        assert!(!names.add("of a call", NameOrigin::Call).may_be_of_rule());
        let of_rules = names.add("of a call", NameOrigin::Rules);
        assert!(of_rules.may_be_of_rule(), "rules have room");
        assert_eq!(names.add("of a call", NameOrigin::Call), of_rules);
        assert!(!CustomerPlan::of_call(&"a".repeat(MAX_NAME_BYTES + 1)).may_be_of_rule());
        assert!(!CustomerPlan::NONE.may_be_of_rule());
    }
}
