//! Settings of rules by their names: what a program's configuration says, before what its source says.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Error, ErrorKind, Layout, Limit, OnError};

/// Settings of the annotated functions whose rule has a name: see [`Builder::rule`](crate::Builder::rule).
///
/// What is set here takes the place of what the attribute says; what is not, stays the attribute's.
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
#[must_use = "a rule does nothing until a builder has it"]
#[derive(Clone, Debug, Default)]
pub struct Rule {
    limits: Vec<Limit>,
    on_error: Option<OnError>,
    deadline: Option<Duration>,
    layout: Option<Layout>,
}

impl Rule {
    /// No settings yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A limit instead of the attribute's own; several hold together, all or nothing.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// What a call gets when the store fails, instead of what the attribute says, a handler of its own included.
    /// [`Raise`](OnError::Raise) gives the error to that handler; without one it counts as
    /// [`Closed`](OnError::Closed).
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = Some(policy);
        self
    }

    /// How long a decision may take in the store, 1 ms to 60 s, instead of the
    /// [limiter's own deadline](crate::Builder::deadline). Of several rules of one function the shortest holds.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How Redis keeps the count: of the limit that is set here, which can be but one for a sorted set, or else of the
    /// attribute's own. What cannot be kept so, as a bucket in a sorted set, is a failure of each call, or of
    /// [`build`](crate::Builder::build) where it is set here.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// A limit of this rule, as it is laid out.
    fn laid_out(&self, limit: Limit) -> Result<Limit, Error> {
        self.layout.map_or(Ok(limit), |layout| limit.with_layout(layout))
    }
}

/// Every rule that a limiter has settings for.
#[derive(Debug, Default)]
pub(crate) struct RuleOverrides {
    rules: HashMap<String, Rule>,
    /// The name of one that was added twice.
    twice: Option<String>,
}

impl RuleOverrides {
    pub(crate) fn add(&mut self, name: &str, rule: Rule) {
        if self.rules.insert(name.to_owned(), rule).is_some() {
            self.twice = Some(name.to_owned());
        }
    }

    /// # Errors
    /// [`ErrorKind::Config`] for a setting out of its range, a rule without a name, and one that was added twice.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |problem: String| Err(Error::new(ErrorKind::Config, problem));
        if let Some(name) = &self.twice {
            return wrong(format!("the rule `{name}` is set twice"));
        }
        for (name, rule) in &self.rules {
            if name.is_empty() {
                return wrong("a rule has a name: an attribute's `name`, or its key as it is written there".to_owned());
            }
            if rule.deadline.is_some_and(|deadline| !is_deadline(deadline)) {
                return wrong(format!("the rule `{name}` has a deadline that is not between 1 ms and 60 s"));
            }
            if rule.layout == Some(Layout::Zset) && rule.limits.len() > 1 {
                return wrong(format!("the rule `{name}` has several limits, and a sorted set keeps one"));
            }
            if let Some(error) = rule.limits.iter().find_map(|limit| rule.laid_out(*limit).err()) {
                return wrong(format!("the rule `{name}`: {error}"));
            }
        }
        Ok(())
    }

    /// A limit of this rule as it is to be kept, one of `limits` or the attribute's own.
    ///
    /// # Errors
    /// It cannot be kept so.
    pub(crate) fn laid_out(&self, name: &str, limit: Limit) -> Result<Limit, Error> {
        self.get(name).map_or(Ok(limit), |rule| rule.laid_out(limit))
    }

    /// Whether the settings of any rule keep a limit so.
    pub(crate) fn has_layout(&self, layout: Layout) -> bool {
        let keeps = |rule: &Rule| match rule.layout {
            Some(set) => set == layout,
            None => rule.limits.iter().any(|limit| limit.layout() == layout),
        };
        self.rules.values().any(keeps)
    }

    pub(crate) fn limits(&self, name: &str) -> &[Limit] {
        self.get(name).map_or(&[], |rule| &rule.limits)
    }

    pub(crate) fn on_error(&self, name: &str) -> Option<OnError> {
        self.get(name)?.on_error
    }

    pub(crate) fn deadline(&self, name: &str) -> Option<Duration> {
        self.get(name)?.deadline
    }

    /// Whether no rule has settings, as in most limiters.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn get(&self, name: &str) -> Option<&Rule> {
        // Most limiters have none, and need not hash the name to know.
        if self.rules.is_empty() { None } else { self.rules.get(name) }
    }
}

/// Whether a decision may have so long.
pub(crate) fn is_deadline(deadline: Duration) -> bool {
    (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&deadline)
}
