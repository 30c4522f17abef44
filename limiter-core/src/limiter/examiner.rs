//! Limiters beside another one: for operators who examine its store by rules that this process does not have.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::limiter::Limiter;
use crate::request::CallOptions;
use crate::rule::{CallDefaults, RuleTable};
use crate::{Error, ErrorKind, Mode, OnError, RuleSet};

/// The time in which the store must reply. A person waits for it.
const DEADLINE: Duration = Duration::from_secs(2);

impl Limiter {
    /// Creates a limiter with the store, the prefix and the secret of this one, and with other rules. For the front ends of
    /// this project. Needs the feature `redis`.
    ///
    /// It connects at its first call, and each failure of the store is an error: no policy applies. Its decisions have their
    /// keys. It writes neither heartbeats nor activity, and calls no observer of this limiter.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for rules that the builder would reject, and for a limiter in memory.
    #[doc(hidden)]
    pub fn examiner(&self, rules: RuleSet) -> Result<Self, Error> {
        let inside = self.inside();
        let store = inside.redis().ok_or_else(|| {
            let problem =
                "the store must be one that processes share, got one in this process: write the `url` of a Redis";
            Error::new(ErrorKind::Config, problem)
        })?;
        let table = RuleTable::new(rules, BTreeSet::new(), store.hashes_keys(), Mode::from_environment()?)?;
        table.check()?;
        let options = CallOptions { on_error: OnError::Raise, deadline: Some(DEADLINE), ..CallOptions::default() };
        let table = table.with_defaults(CallDefaults { options, deadline: DEADLINE, is_guarded: true });
        Ok(Self::from_inside((inside.make_examiner)(table)))
    }

    /// Returns the prefix of its keys. `None` for a limiter in memory. For the front ends of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        Some(self.inside().redis()?.prefix())
    }
}
