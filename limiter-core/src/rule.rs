//! Settings of rules by name, with which a program's configuration overrides its attributes.

use std::collections::HashMap;
use std::time::Duration;

use crate::limit::layout_problem;
use crate::{Error, ErrorKind, Layout, Limit, OnError};

/// Settings for the annotated functions whose rule has a given name: see [`Builder::rule`](crate::Builder::rule).
///
/// A setting overrides the one of the attribute. Without a setting the attribute's applies.
///
/// ```
/// # use limiter_core as rate_limited;
/// use std::time::Duration;
/// use rate_limited::{Limiter, OnError, Rule};
///
/// # let from_configuration = "20/s".to_owned();
/// let limiter = Limiter::builder()
///     .rule("getId", Rule::new().limit(from_configuration.parse()?))
///     .rule("user:{user_id}", Rule::new().on_error(OnError::Open).deadline(Duration::from_millis(20)))
///     .build()?;
/// # Ok::<(), rate_limited::Error>(())
/// ```
#[must_use = "a rule has no effect until it is added to a builder"]
#[derive(Clone, Debug, Default)]
pub struct Rule {
    pub(crate) limits: Vec<Limit>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) deadline: Option<Duration>,
    layout: Option<Layout>,
}

impl Rule {
    /// Creates a rule without settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit. The limits added here apply instead of the attribute's. Several limits make one decision: all or
    /// none.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Sets the failure policy. It replaces the attribute's policy or handler.
    ///
    /// [`Raise`](OnError::Raise) passes the error to the attribute's handler. Without a handler it counts as
    /// [`Closed`](OnError::Closed).
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// Sets the time in which the store must reply, 1 ms to 60 s, instead of the [limiter's own
    /// deadline](crate::Builder::deadline). If a function has several rules, the shortest deadline applies.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the layout in Redis for the rule's limits, or else for those of the attribute.
    ///
    /// [`Layout::Zset`] allows only one limit in the rule, and only a sliding window. If a limit of the rule does not
    /// fit, [`build`](crate::Builder::build) fails. If one of the attribute does not fit, each call fails.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// Returns a limit of the rule or of the attribute with the layout that the rule sets, if it sets one.
    ///
    /// # Errors
    /// The limit's algorithm does not support the layout.
    pub(crate) fn with_layout_of(&self, limit: Limit) -> Result<Limit, Error> {
        self.layout.map_or(Ok(limit), |layout| limit.with_layout(layout))
    }
}

/// The rules of a limiter, by name.
#[derive(Debug, Default)]
pub(crate) struct RuleOverrides {
    rules: HashMap<String, Rule>,
    /// The name of a rule that was added twice.
    duplicate: Option<String>,
}

impl RuleOverrides {
    pub(crate) fn add(&mut self, name: &str, rule: Rule) {
        if self.rules.insert(name.to_owned(), rule).is_some() {
            self.duplicate = Some(name.to_owned());
        }
    }

    /// Checks the settings of all rules.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a setting out of its range, a rule without a name, and a rule that was added twice.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = |problem: String| Err(Error::new(ErrorKind::Config, problem));
        if let Some(name) = &self.duplicate {
            return error(format!("`rule` must be set once for a name, got `{name}` twice: write one `Rule` for it"));
        }
        for (name, rule) in &self.rules {
            if name.is_empty() {
                return error(
                    "`rule` must have a name, got an empty text: write the attribute's `name`, or its key as written \
                     there"
                        .to_owned(),
                );
            }
            if let Some(deadline) = rule.deadline.filter(|deadline| !is_valid_deadline(*deadline)) {
                return error(deadline_problem(&format!("`deadline` of the rule `{name}`"), deadline));
            }
            if rule.layout == Some(Layout::Zset) && rule.limits.len() > 1 {
                let count = rule.limits.len();
                return error(format!(
                    "`limit` of the rule `{name}` must be set once with `Layout::Zset`, got {count} limits: write one"
                ));
            }
            if let Some(limit) = rule.limits.iter().find(|limit| rule.with_layout_of(**limit).is_err()) {
                return error(layout_problem(&format!("`layout` of the rule `{name}`"), limit.algorithm()));
            }
        }
        Ok(())
    }

    /// Returns the name of a rule that sets this layout or has a limit with it.
    #[cfg(feature = "redis")]
    pub(crate) fn rule_with_layout(&self, layout: Layout) -> Option<&str> {
        let uses_layout = |rule: &Rule| match rule.layout {
            Some(rule_layout) => rule_layout == layout,
            None => rule.limits.iter().any(|limit| limit.layout() == layout),
        };
        self.rules.iter().find(|(_, rule)| uses_layout(rule)).map(|(name, _)| name.as_str())
    }

    /// Returns the limit of a rule whose attribute has one limit. `None` if the settings have several, or a layout that
    /// the limit does not support.
    #[cold]
    pub(crate) fn single_limit(&self, name: &str, attribute_limit: Limit) -> Option<Limit> {
        let Some(rule) = self.get(name) else { return Some(attribute_limit) };
        let limit = match rule.limits[..] {
            [] => attribute_limit,
            [limit] => limit,
            _ => return None,
        };
        rule.with_layout_of(limit).ok()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Rule> {
        self.rules.get(name)
    }

    /// Returns these rules; `None` if there are none, as in most limiters.
    pub(crate) fn unless_empty(self) -> Option<Self> {
        (!self.rules.is_empty()).then_some(self)
    }
}

/// Returns the message for a deadline out of its range.
pub(crate) fn deadline_problem(option: &str, deadline: Duration) -> String {
    format!("{option} must be between 1 ms and 60 s, got {deadline:?}: write one such as `Duration::from_millis(100)`")
}

/// Returns whether a deadline is within its range.
pub(crate) fn is_valid_deadline(deadline: Duration) -> bool {
    (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&deadline)
}
