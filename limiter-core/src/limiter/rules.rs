//! The rules of a limiter, which change at run time.

use crate::limiter::Limiter;
#[cfg(feature = "rules")]
use crate::rule::{FileWatch, OpenedFile, WatchIntervals};
use crate::{Error, ErrorKind, Origin, RuleInForce, RuleSet, metrics};

impl Limiter {
    /// Replaces the rules of this process that were set at run time, at once. An empty set undoes them.
    ///
    /// A setting comes from the first of these that has it: `RATE_LIMITED_MODE`, these rules, the [shared
    /// rules](crate::Builder::shared_rules), the file of rules, the builder, the attribute. The defaults of all sets come after the settings of all rules, in the same order.
    ///
    /// The rules hold for every call that begins after this one returned. Calls that wait read the rules again, at most
    /// ten times a second: they go on under their new limits, with their number and the end of their wait. One that a rule
    /// denies now is denied at once. One whose rules are off or in shadow mode now runs at once. A call that has its turn
    /// of a leaky bucket keeps it. A changed `max` keeps each key's history. A changed window or algorithm starts a new
    /// one.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, Rule, RuleSet};
    ///
    /// let limiter = Limiter::memory();
    /// limiter.set_rules(RuleSet::new().rule("getId", Rule::new().limit("50/10s".parse()?)))?;
    /// assert_eq!(limiter.rules()[0].limits(), ["50/10s".parse()?]);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for settings that [`Builder::build`](crate::Builder::build) would
    /// reject, and for settings that contradict those of the file or the builder. The rules then stay as they were. An
    /// empty set is never rejected.
    pub fn set_rules(&self, rules: RuleSet) -> Result<(), Error> {
        let inside = self.inside();
        let set = match rules.is_shared {
            true => Err(shared_at_run_time()),
            false => inside.set_rules(Origin::Runtime, rules),
        };
        metrics::rules_loaded(Origin::Runtime.as_str(), set.is_ok());
        inside.runtime_refused.set(set.is_err());
        set
    }

    /// Replaces the rules that the [builder](crate::Builder::rules) has set, at once: those below the file and the shared
    /// rules, which may change them. It is for a program whose own configuration has rules and changes.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, Rule, RuleSet};
    ///
    /// let limiter = Limiter::memory();
    /// let of_program = RuleSet::new().rule("getId", Rule::new().limit("50/10s".parse()?));
    /// limiter.set_builder_rules(of_program)?;
    /// limiter.set_rules(RuleSet::new().rule("getId", Rule::new().limit("80/10s".parse()?)))?;
    /// assert_eq!(limiter.rules()[0].limits(), ["80/10s".parse()?]);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`set_rules`](Self::set_rules), also for rules that contradict those of higher levels. The rules then stay as
    /// they were.
    pub fn set_builder_rules(&self, rules: RuleSet) -> Result<(), Error> {
        let set = match rules.is_shared {
            true => Err(shared_at_run_time()),
            false => self.inside().set_rules(Origin::Builder, rules),
        };
        metrics::rules_loaded(Origin::Builder.as_str(), set.is_ok());
        set
    }

    /// Lists the rules by name: those of annotated functions, those that the builder declares, and those with settings.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleInForce> {
        self.inside().rules.in_force()
    }

    /// Returns a number that changes with each change of the [rules](Limiter::rules), for a program that keeps what it has
    /// computed from them. 0 without any settings; otherwise no other limiter of the process has the number.
    #[must_use]
    pub fn rules_generation(&self) -> u64 {
        self.inside().rules.generation()
    }

    /// The number of calls under rules of `configured` limits that no set of rules gives any. They are unlimited. The log
    /// has a warning for the first call of each rule.
    #[must_use]
    pub fn unlimited_calls(&self) -> u64 {
        self.inside().rules.unlimited_calls()
    }
}

/// The error for a set that demands shared rules after the limiter was built.
fn shared_at_run_time() -> Error {
    Error::new(
        ErrorKind::Config,
        "`shared` must be left out of rules that are set at run time, got it: write it into the file of rules, or \
         call `Builder::shared_rules`",
    )
}

// The file of rules of a limiter.

#[cfg(feature = "rules")]
impl Limiter {
    /// Returns how often the file of rules became unusable since the limiter was built, for a metric with an alert. 0
    /// without a [file](crate::Builder::rules_file).
    ///
    /// It rises by one with each distinct mistake, as the log gets one error for each. The last good rules stay in
    /// force meanwhile. It does not rise while the same mistake persists, so look at
    /// [`rules_file_error`](Limiter::rules_file_error) for the present state. Needs the feature `rules`.
    #[must_use]
    pub fn rules_file_errors(&self) -> u64 {
        self.inside().rules_file.get().map_or(0, |watch| watch.status().errors())
    }

    /// Returns the error of the file of rules as it is now. `None` while the rules of the file are in force, or without
    /// a [file](crate::Builder::rules_file).
    ///
    /// The error has the file's path and the line and column of the mistake. It is seen about a second after the file
    /// changed. Needs the feature `rules`.
    #[must_use]
    pub fn rules_file_error(&self) -> Option<Error> {
        self.inside().rules_file.get()?.status().error()
    }

    /// Follows the changes of a file whose rules are in force, until the limiter is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn follow_rules(&self, file: OpenedFile) -> Result<(), Error> {
        // The thread must not keep the limiter alive.
        let limiter = self.downgrade();
        let is_shared = file.is_shared;
        let apply = move |rules: RuleSet| {
            if rules.is_shared != is_shared {
                let problem = format!(
                    "`shared` must stay as it was when the program started, got `shared = {}`: restart the program",
                    rules.is_shared
                );
                return Err(Error::new(ErrorKind::Config, problem));
            }
            limiter().map_or(Ok(()), |limiter| limiter.inside().set_rules(Origin::File, rules))
        };
        let watch: FileWatch = file.watch(WatchIntervals::default(), apply)?;
        // A limiter follows one file.
        let _ = self.inside().rules_file.set(watch);
        Ok(())
    }
}
