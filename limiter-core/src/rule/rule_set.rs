//! A set of rules: one level of a limiter's settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "rules")]
use crate::metrics::RulesRefused;
use crate::rule::Rule;
use crate::rule::customer_plan::PlanTables;
#[cfg(feature = "rules")]
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::{Error, ErrorKind, Layout};

/// Rules by name, with defaults: the settings of one [`Origin`](crate::Origin).
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Limiter, Mode, Rule, RuleSet};
///
/// let limiter = Limiter::memory();
/// limiter.set_rules(
///     RuleSet::new()
///         .defaults(Rule::new().mode(Mode::Shadow))
///         .rule("getId", Rule::new().limit("50/10s".parse()?).mode(Mode::Enforce)),
/// )?;
/// limiter.set_rules(RuleSet::new())?; // undoes it
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[must_use = "a set of rules has no effect until a builder or a limiter gets it"]
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub(crate) defaults: Rule,
    pub(crate) rules: BTreeMap<String, Rule>,
    /// The plans of customers.
    pub(crate) plans: PlanTables,
    pub(crate) is_strict: bool,
    /// The limiter follows shared rules too. Only the text of a set has it.
    pub(crate) is_shared: bool,
    /// The file that the set was read from.
    pub(crate) file: Option<Arc<Path>>,
    /// The name of a rule that was added twice.
    duplicate: Option<String>,
    duplicate_plan: Option<String>,
}

impl RuleSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode and the settings of calls, such as the failure policy, of all rules that have none of their own, in
    /// any set or attribute. They do not apply to direct calls without a rule, as
    /// [`Limiter::check`](crate::Limiter::check).
    pub fn defaults(mut self, rule: Rule) -> Self {
        self.defaults = rule;
        self
    }

    /// Adds the settings of the rule of this name: the attribute's `name`, or else its key as written there.
    pub fn rule(mut self, name: impl AsRef<str>, rule: Rule) -> Self {
        let name = name.as_ref();
        if self.rules.insert(name.to_owned(), rule).is_some() {
            self.duplicate = Some(name.to_owned());
        }
        self
    }

    /// Adds a plan of customers: limits and settings for the calls of those who have it, under the rules that
    /// [name it](Rule::plans).
    pub fn plan(mut self, name: impl AsRef<str>, rule: Rule) -> Self {
        let name = name.as_ref();
        if self.plans.insert(name.to_owned(), rule).is_some() {
            self.duplicate_plan = Some(name.to_owned());
        }
        self
    }

    /// Makes [`build`](crate::Builder::build) and [`set_rules`](crate::Limiter::set_rules) fail for a rule that no
    /// function has and that was not [declared](crate::Builder::declare), and for a rule of `configured` limits that no
    /// set gives any. Default: the log gets a warning.
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Returns the set as one that was read from this file.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        Self { file: Some(Arc::from(path)), ..self }
    }

    /// Checks that no rule has a layout whose keys cannot be hashed, for a limiter that hashes keys.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for such a rule.
    pub(crate) fn check_hashed_layouts(&self) -> Result<(), Error> {
        let of_rules = self.rules.iter().map(|rule| ("rule", rule));
        let mut all = of_rules.chain(self.plans.iter().map(|plan| ("plan", plan)));
        let Some((kind, (name, rule))) = all.find(|(_, (_, rule))| rule.has_layout(Layout::Zset)) else {
            return Ok(());
        };
        let problem = format!(
            "`hash_keys` must be left out with `layout = \"zset\"`, got the {kind} `{name}` of that layout: remove one of \
             them, because such a set is addressed by the plain key"
        );
        Err(Error::new(ErrorKind::Config, rule.place.locate(&problem)))
    }

    /// Returns whether the set has settings, or requires some.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.rules.is_empty() || !self.plans.is_empty() || !self.defaults.is_empty() || self.is_strict
    }

    /// Checks the settings of all rules.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a setting out of its range, a rule without a name, a rule or a plan that was added twice, a
    /// plan that a rule names and the set lacks, and a default that is none.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = |problem: String| Err(Error::new(ErrorKind::Config, problem));
        if let Some(name) = &self.duplicate {
            return error(format!("`rule` must be set once for a name, got `{name}` twice: write one `Rule` for it"));
        }
        if let Some(name) = &self.duplicate_plan {
            return error(format!("`plan` must be set once for a name, got `{name}` twice: write one `Rule` for it"));
        }
        self.defaults.check_as_defaults()?;
        self.plans.iter().try_for_each(|(name, plan)| plan.check_as_plan(name))?;
        for (name, rule) in &self.rules {
            if name.is_empty() {
                return error(
                    "`rule` must have a name, got an empty text: write the attribute's `name`, or its key as written \
                     there"
                        .to_owned(),
                );
            }
            rule.check(&format!("the rule `{name}`"))?;
            rule.check_plans(&self.plans)?;
        }
        Ok(())
    }
}

// The state of rules that a limiter reads again while the program runs.

/// The present error of a source of rules, and the number of all of them.
#[cfg(feature = "rules")]
#[derive(Debug)]
pub(crate) struct RulesStatus {
    errors: AtomicU64,
    error: Mutex<Option<Error>>,
    refused: RulesRefused,
}

#[cfg(feature = "rules")]
impl RulesStatus {
    pub(crate) fn new(origin: Origin) -> Self {
        let refused = RulesRefused::new(origin.as_str());
        Self { errors: AtomicU64::new(0), error: Mutex::new(None), refused }
    }

    /// The last set of rules, for the gauge. The limiter withdraws it.
    pub(crate) fn refused(&self) -> &RulesRefused {
        &self.refused
    }

    /// The number of errors since the start.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The present error. `None` if the rules in force are those of the source.
    pub(crate) fn error(&self) -> Option<Error> {
        self.lock().clone()
    }

    /// Sets the error. Returns true if it is another one than before.
    pub(crate) fn fail(&self, error: &Error) -> bool {
        let mut present = self.lock();
        let is_new = present.as_ref().is_none_or(|present| present.to_string() != error.to_string());
        *present = Some(error.clone());
        if is_new {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Removes the error. Returns true if there was one.
    pub(crate) fn succeed(&self) -> bool {
        self.lock().take().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Error>> {
        lock(&self.error)
    }
}

// The levels that settings come from.

/// The level that a rule's limits come from.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The attribute, or the limit of a layer or of a direct call.
    Attribute,
    /// [`Builder::rule`](crate::Builder::rule) or [`Builder::rules`](crate::Builder::rules).
    Builder,
    /// The file of rules.
    File,
    /// The [shared rules](crate::Builder::shared_rules), which all processes read from the store.
    Shared,
    /// [`Limiter::set_rules`](crate::Limiter::set_rules).
    Runtime,
}

impl Origin {
    /// The text for logs and metrics: `attribute`, `builder`, `file`, `shared` or `runtime`. It stays the same in later
    /// versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::Builder => "builder",
            Self::File => "file",
            Self::Shared => "shared",
            Self::Runtime => "runtime",
        }
    }
}

/// Writes [`as_str`](Origin::as_str).
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// The place of a rule in a text.

/// Line and column of a rule in its text, from 1. Without a text there is none.
///
/// Rules are equal wherever they are, so all places are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextPlace {
    line: u32,
    column: u32,
}

impl TextPlace {
    pub(crate) fn new(line: usize, column: usize) -> Self {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column) }
    }

    /// The line. 0 without a text.
    pub(crate) fn line(self) -> u32 {
        self.line
    }

    /// Returns a message about the rule, with the place in front.
    pub(crate) fn locate(self, problem: &str) -> String {
        format!("{self}{problem}")
    }
}

impl PartialEq for TextPlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { line: 0, .. } => Ok(()),
            Self { line, column } => write!(f, "line {line}, column {column}: "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_has_a_stable_text() {
        let cases = [
            (Origin::Attribute, "attribute"),
            (Origin::Builder, "builder"),
            (Origin::File, "file"),
            (Origin::Shared, "shared"),
            (Origin::Runtime, "runtime"),
        ];
        for (origin, text) in cases {
            assert_eq!((origin.as_str(), origin.to_string()), (text, text.to_owned()));
        }
    }
}
