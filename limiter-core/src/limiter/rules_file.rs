//! The file of rules of a limiter.

use std::sync::Arc;

use crate::limiter::Limiter;
use crate::rule::{FileWatch, OpenedFile, WatchIntervals};
use crate::{Error, ErrorKind, Origin, RuleSet};

impl Limiter {
    /// Returns how often the file of rules became unusable since the limiter was built, for a metric with an alert. 0
    /// without a [file](crate::Builder::rules_file).
    ///
    /// It rises by one with each distinct mistake, as the log gets one error for each. The last good rules stay in
    /// force meanwhile. It does not rise while the same mistake persists, so look at
    /// [`rules_file_error`](Limiter::rules_file_error) for the present state. Needs the feature `rules`.
    #[must_use]
    pub fn rules_file_errors(&self) -> u64 {
        self.inner.rules_file.get().map_or(0, |watch| watch.status().errors())
    }

    /// Returns the error of the file of rules as it is now. `None` while the rules of the file are in force, or without
    /// a [file](crate::Builder::rules_file).
    ///
    /// The error has the file's path and the line and column of the mistake. It is seen about a second after the file
    /// changed. Needs the feature `rules`.
    #[must_use]
    pub fn rules_file_error(&self) -> Option<Error> {
        self.inner.rules_file.get()?.status().error()
    }

    /// Follows the changes of a file whose rules are in force, until the limiter is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn follow_rules(&self, file: OpenedFile) -> Result<(), Error> {
        // The thread must not keep the limiter alive.
        let limiter = Arc::downgrade(&self.inner);
        let is_shared = file.is_shared;
        let apply = move |rules: RuleSet| {
            if rules.is_shared != is_shared {
                let problem = format!(
                    "`shared` must stay as it was when the program started, got `shared = {}`: restart the program",
                    rules.is_shared
                );
                return Err(Error::new(ErrorKind::Config, problem));
            }
            limiter.upgrade().map_or(Ok(()), |limiter| limiter.set_rules(Origin::File, rules))
        };
        let watch: FileWatch = file.watch(WatchIntervals::default(), apply)?;
        // A limiter follows one file.
        let _ = self.inner.rules_file.set(watch);
        Ok(())
    }
}
