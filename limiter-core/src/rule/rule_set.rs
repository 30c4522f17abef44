//! A set of rules: one layer of a limiter's settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::rule::Rule;
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
    pub(crate) is_strict: bool,
    /// The limiter follows shared rules too. Only the text of a set has it.
    pub(crate) is_shared: bool,
    /// The file that the set was read from.
    pub(crate) file: Option<Arc<Path>>,
    /// The name of a rule that was added twice.
    duplicate: Option<String>,
}

impl RuleSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode, the failure policy, the deadline and the leases of all rules that have none of their own, in any
    /// set or attribute. They do not apply to direct calls without a rule, as [`Limiter::check`](crate::Limiter::check).
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

    /// Makes [`build`](crate::Builder::build) and [`set_rules`](crate::Limiter::set_rules) fail for a rule that no
    /// function has and that was not [declared](crate::Builder::declare), and for a rule of `configured` limits that no
    /// set gives any. Default: the log gets a warning.
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Returns the set as one that was read from this file.
    #[cfg(feature = "rules")]
    pub(crate) fn of_file(self, path: &Path) -> Self {
        Self { file: Some(Arc::from(path)), ..self }
    }

    /// Checks that no rule has a layout whose keys cannot be hashed, for a limiter that hashes keys.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for such a rule.
    pub(crate) fn check_hashed_layouts(&self) -> Result<(), Error> {
        let Some((name, rule)) = self.rules.iter().find(|(_, rule)| rule.has_layout(Layout::Zset)) else {
            return Ok(());
        };
        let problem = format!(
            "`hash_keys` must be left out with `layout = \"zset\"`, got the rule `{name}` of that layout: remove one of \
             them, because such a set is addressed by the plain key"
        );
        Err(Error::new(ErrorKind::Config, rule.place.locate(&problem)))
    }

    /// Returns whether the set has settings, or requires some.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.rules.is_empty() || !self.defaults.is_empty() || self.is_strict
    }

    /// Checks the settings of all rules.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a setting out of its range, a rule without a name, a rule that was added twice, and a
    /// default that is none.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = |problem: String| Err(Error::new(ErrorKind::Config, problem));
        if let Some(name) = &self.duplicate {
            return error(format!("`rule` must be set once for a name, got `{name}` twice: write one `Rule` for it"));
        }
        if let Some(setting) = self.defaults.setting_of_one_rule() {
            return error(format!(
                "`defaults` must have only `mode`, `on_error`, `deadline` and `leases`, got `{setting}`: set it for a rule"
            ));
        }
        self.defaults.check("the defaults")?;
        for (name, rule) in &self.rules {
            if name.is_empty() {
                return error(
                    "`rule` must have a name, got an empty text: write the attribute's `name`, or its key as written \
                     there"
                        .to_owned(),
                );
            }
            rule.check(&format!("the rule `{name}`"))?;
        }
        Ok(())
    }
}
