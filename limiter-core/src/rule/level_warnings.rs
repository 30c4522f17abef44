//! Warnings about a rule in one level that does not suit the keys of the program. The log has each of them once.
//!
//! They name the set of rules, the line and the override, and not its values: those may be personal data.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::rule::override_index::InvalidOverride;
use crate::rule::{Origin, Rule, log_apart};
use crate::{KeyMatch, Site, TARGET};

/// The most overrides of one rule that are logged at once. The others are counted.
const MAX_LOGGED: usize = 20;

/// The mistakes of one rule that the log has.
#[derive(Debug)]
pub(crate) struct LoggedMistakes {
    /// A bit for each kind of calls, by the position of the override.
    overrides: Box<[AtomicU8]>,
    key: AtomicBool,
    unknown_plan: AtomicBool,
}

impl LoggedMistakes {
    pub(crate) fn new(overrides: &[(KeyMatch, Rule)]) -> Self {
        let overrides = overrides.iter().map(|_| AtomicU8::new(0)).collect();
        Self { overrides, key: AtomicBool::new(false), unknown_plan: AtomicBool::new(false) }
    }

    /// Returns true for the first mistake of the rule's stated key.
    fn add_key(&self) -> bool {
        !self.key.swap(true, Ordering::Relaxed)
    }

    /// Returns true for the first call with a plan that the rule does not name.
    pub(crate) fn add_unknown_plan(&self) -> bool {
        !self.unknown_plan.swap(true, Ordering::Relaxed)
    }

    /// Returns true for the first mistake of an override with such calls.
    fn add_override(&self, index: usize, calls: UnmatchedCalls) -> bool {
        let bit = match calls {
            UnmatchedCalls::KnownKey => 1,
            UnmatchedCalls::UnknownKey => 2,
        };
        self.overrides.get(index).is_some_and(|logged| logged.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

/// A rule of a level, with the mistakes of it that the log has.
#[derive(Clone, Copy)]
pub(crate) struct LoggedRule<'r> {
    pub(crate) name: &'r str,
    pub(crate) rule: &'r Rule,
    pub(crate) logged: &'r LoggedMistakes,
}

/// The set of rules of a level, as the log names it.
#[derive(Clone, Copy)]
pub(crate) struct SetName<'s> {
    pub(crate) origin: Origin,
    pub(crate) file: Option<&'s Path>,
}

/// Writes the path of the file, or the kind of the set.
impl fmt::Display for SetName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.origin, self.file) {
            (_, Some(file)) => return file.display().fmt(f),
            (Origin::Shared, None) => "the shared rules",
            (Origin::File, None) => "the file of rules",
            (Origin::Runtime, None) => "the rules of `set_rules`",
            (Origin::Attribute | Origin::Builder, None) => "the rules of the builder",
        };
        f.write_str(kind)
    }
}

/// The calls that overrides do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmatchedCalls {
    /// Those of a function or a layer, or with the key that a set states.
    KnownKey,
    /// Direct calls, whose key is unknown.
    UnknownKey,
}

/// Overrides of a rule that match no key of its calls.
#[derive(Clone, Copy)]
pub(crate) struct Unmatched<'o> {
    pub(crate) calls: UnmatchedCalls,
    pub(crate) overrides: &'o [InvalidOverride],
}

/// A function whose cost the limits of a rule never grant, in a set of rules.
pub(crate) struct ImpossibleCost {
    pub(crate) site: Site,
    pub(crate) cost: u32,
    /// The most permits that they grant.
    pub(crate) permits: u32,
    /// The rule or an override.
    pub(crate) part: &'static str,
    /// The line in the text of the set, if it has one.
    pub(crate) line: Option<u32>,
}

impl SetName<'_> {
    /// Logs that all calls of a function are denied for its cost.
    pub(crate) fn warn_of_cost(&self, ImpossibleCost { site, cost, permits, part, line }: ImpossibleCost) {
        let (origin, file) = (self.origin.as_str(), self.file.map(|file| file.display().to_string()));
        log_apart(move || {
            tracing::warn!(
                target: TARGET,
                rule = site.rule(),
                cost,
                permits,
                function = format!("{}:{} ({})", site.file(), site.line(), site.function()),
                part,
                origin,
                file,
                line,
                "the limits of a rule or of an override never grant the `cost` of a function, so all of its calls \
                 are denied: raise the limit, or lower `cost`"
            );
        });
    }

    /// Logs the overrides of a rule that match no key of its calls, one event each.
    pub(crate) fn warn_of_unmatched(
        &self,
        LoggedRule { name, rule, logged }: LoggedRule<'_>,
        unmatched: Unmatched<'_>,
    ) {
        let Unmatched { calls, overrides } = unmatched;
        let overrides: Vec<_> = overrides.iter().filter(|invalid| logged.add_override(invalid.index, calls)).collect();
        if overrides.is_empty() {
            return;
        }
        let more = overrides.len().saturating_sub(MAX_LOGGED);
        let problem = |invalid: &&InvalidOverride| {
            let place = rule.overrides.get(invalid.index).map(|(_, rule)| rule.place).unwrap_or_default();
            let needs_key = calls == UnmatchedCalls::UnknownKey && invalid.lacks_parts;
            let problem = if needs_key {
                format!("override {} of the rule `{name}`: the parts of its key are unknown", invalid.index + 1)
            } else {
                invalid.in_rule(name)
            };
            (needs_key, format!("{self}: {}", place.locate(&problem)))
        };
        let problems: Vec<_> = overrides.iter().take(MAX_LOGGED).map(problem).collect();
        let (rule, origin) = (name.to_owned(), self.origin.as_str());
        log_apart(move || {
            for (needs_key, problem) in problems {
                if needs_key {
                    tracing::warn!(
                        target: TARGET,
                        rule,
                        origin,
                        problem,
                        "an override matches no key of direct calls under its rule: write the `key` into the rule"
                    );
                } else {
                    tracing::warn!(
                        target: TARGET,
                        rule,
                        origin,
                        problem,
                        "an override matches no key of the calls under its rule"
                    );
                }
            }
            if more > 0 {
                tracing::warn!(target: TARGET, rule, origin, more, "more overrides match no key of the calls under their rule");
            }
        });
    }

    /// Logs what does not suit the plans of customers.
    pub(crate) fn warn_of_plans(&self, problems: Vec<String>) {
        let (set, origin) = (self.to_string(), self.origin.as_str());
        log_apart(move || {
            for problem in problems {
                tracing::warn!(target: TARGET, origin, "{set}: {problem}");
            }
        });
    }

    /// Logs that a rule states another key than those of its functions and layers, once.
    pub(crate) fn warn_of_key(&self, LoggedRule { name, rule, logged }: LoggedRule<'_>, problem: &str) {
        if !logged.add_key() {
            return;
        }
        let problem = format!("{self}: {}", rule.place.locate(problem));
        let (rule, origin) = (name.to_owned(), self.origin.as_str());
        log_apart(move || {
            tracing::warn!(
                target: TARGET,
                rule,
                origin,
                problem,
                "a rule states a key that no function and no layer of it has"
            );
        });
    }
}
