//! The settings of a call that do not belong to its limits: as each level sets them, and as they are resolved.

use std::time::Duration;

use crate::block::Block;
use crate::error::OnError;

/// The settings that each level may have: a rule, its caller and the defaults of all rules. `None` leaves a setting to
/// the next level, and the last level is the limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallSettings {
    pub(crate) on_error: Option<OnError>,
    /// The time that the store has for its reply.
    pub(crate) deadline: Option<Duration>,
    /// The call may take a lease.
    pub(crate) leases: Option<bool>,
    /// Calls need one free permit and take none. Each rule of a call has its own.
    pub(crate) postpaid: Option<bool>,
    /// A denial blocks the key. Each rule of a call has its own.
    pub(crate) block: Option<Block>,
}

/// The options of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallOptions {
    pub(crate) on_error: OnError,
    /// The longest wait for a turn. Only a leaky bucket gives turns.
    pub(crate) max_wait: Duration,
    /// The time that the store has for its reply; `None` for the limiter's own deadline.
    pub(crate) deadline: Option<Duration>,
    /// The call may take a lease.
    pub(crate) leases: bool,
    /// True if the decision must have a report of each of several requests. Such a call waits for no turn.
    pub(crate) wants_reports: bool,
}

impl CallSettings {
    pub(crate) const NONE: Self = Self { on_error: None, deadline: None, leases: None, postpaid: None, block: None };

    /// Returns it with the settings of the next level that this one lacks.
    #[inline]
    pub(crate) fn or(self, next: Self) -> Self {
        Self {
            on_error: self.on_error.or(next.on_error),
            deadline: self.deadline.or(next.deadline),
            leases: self.leases.or(next.leases),
            postpaid: self.postpaid.or(next.postpaid),
            block: self.block.or(next.block),
        }
    }

    /// Returns the settings of rules that decide together: the first policy and the shortest deadline. A decision about
    /// several requests takes no lease, so the setting of the last rule is of use for one request alone.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            on_error: self.on_error.or(next.on_error),
            deadline: self.deadline.into_iter().chain(next.deadline).min(),
            leases: next.leases.or(self.leases),
            postpaid: None,
            block: None,
        }
    }

    /// Returns the settings of a rule without a request, which leases nothing.
    pub(crate) fn without_request(self) -> Self {
        let Self { on_error, deadline, leases: _, postpaid: _, block: _ } = self;
        Self { on_error, deadline, ..Self::NONE }
    }

    /// Returns the options of a call, whose last level are those of the limiter.
    #[inline]
    pub(crate) fn resolve(self, limiter: &CallOptions) -> CallOptions {
        // All fields are named: a new setting that is missing here does not compile.
        let Self { on_error, deadline, leases, postpaid: _, block: _ } = self;
        CallOptions {
            on_error: on_error.unwrap_or(limiter.on_error),
            deadline: deadline.or(limiter.deadline),
            leases: leases.unwrap_or(limiter.leases),
            max_wait: limiter.max_wait,
            wants_reports: limiter.wants_reports,
        }
    }

    /// Returns the message about a setting that is out of its range. Messages call its owner `of`, such as ` of a rule`.
    pub(crate) fn problem(&self, of: &str) -> Option<String> {
        if let Some(deadline) = self.deadline.filter(|deadline| !is_valid_deadline(*deadline)) {
            return Some(deadline_problem(&format!("`deadline`{of}"), deadline));
        }
        if let (Some(true), Some(block)) = (self.leases, self.block) {
            return Some(format!(
                "`block`{of} must be left out with `leases`, got `{block}`: a lease admits calls without a look at blocks; \
                 remove one of them"
            ));
        }
        leases_problem(self.leases == Some(true), &format!("`leases`{of}"))
    }
}

/// Returns the message for leases that are demanded in a build without their feature.
pub(crate) fn leases_problem(is_demanded: bool, option: &str) -> Option<String> {
    (is_demanded && !cfg!(feature = "leases"))
        .then(|| format!("{option} must be `false`, got `true`: turn on the feature `leases` of `rate-limited`"))
}

/// The shortest deadline.
pub(crate) const MIN_DEADLINE: Duration = Duration::from_millis(1);

/// Returns the message for a deadline out of its range.
pub(crate) fn deadline_problem(option: &str, deadline: Duration) -> String {
    format!("{option} must be between 1 ms and 60 s, got {deadline:?}: write one such as `Duration::from_millis(100)`")
}

/// Returns whether a deadline is within its range.
pub(crate) fn is_valid_deadline(deadline: Duration) -> bool {
    (MIN_DEADLINE..=Duration::from_secs(60)).contains(&deadline)
}
