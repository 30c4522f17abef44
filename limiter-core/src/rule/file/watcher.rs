//! The checks of a file of rules while the program runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::reading::Reading;
use super::{WatchIntervals, file_error};
use crate::rule::RulesStatus;
use crate::run::run_contained;
use crate::{Error, Origin, RuleSet, TARGET, metrics};

/// Applies the rules of a new version of the file.
type Apply = Box<dyn FnMut(RuleSet) -> Result<(), Error> + Send>;

/// The state between two checks. A new content is used when two readings of it agree.
pub(super) struct Watcher {
    path: PathBuf,
    intervals: WatchIntervals,
    status: Arc<RulesStatus>,
    apply: Apply,
    /// The content that was used or rejected last.
    judged: Reading,
    /// A new content that was read once.
    pending: Option<Reading>,
    /// The rules of the last content are correct, and other layers contradict them. Those may change.
    is_contradicted: bool,
    checks_without_read: u32,
}

impl Watcher {
    /// Creates the watcher of a file whose rules are in force.
    pub(super) fn new(
        path: PathBuf,
        in_force: Reading,
        intervals: WatchIntervals,
        status: Arc<RulesStatus>,
        apply: Apply,
    ) -> Self {
        // The file may have been written while it was read at the start.
        let checks_without_read = intervals.checks_per_read;
        let (pending, is_contradicted) = (None, false);
        Self { path, intervals, status, apply, judged: in_force, pending, is_contradicted, checks_without_read }
    }

    pub(super) fn settle(&self) -> Duration {
        self.intervals.settle
    }

    /// Checks the file once. Returns the time until the next check.
    pub(super) fn check(&mut self) -> Duration {
        self.checks_without_read = self.checks_without_read.saturating_add(1);
        let is_due = self.checks_without_read >= self.intervals.checks_per_read;
        if self.pending.is_none() && !is_due && Reading::stamp_of(&self.path) == self.judged.stamp {
            return self.intervals.check;
        }
        self.checks_without_read = 0;
        let reading = Reading::of(&self.path);
        let pending = self.pending.take();
        if reading.digest == self.judged.digest {
            if self.is_contradicted {
                self.judge(&reading);
            }
            self.judged.stamp = reading.stamp;
            return self.intervals.check;
        }
        match pending {
            Some(pending) if pending.digest == reading.digest => {
                self.judge(&reading);
                self.judged = reading.without_bytes();
                self.intervals.check
            }
            _ => {
                self.pending = Some(reading.without_bytes());
                self.intervals.settle
            }
        }
    }

    /// Uses the rules of a new content, or reports its mistake.
    fn judge(&mut self, reading: &Reading) {
        let rules = reading.new_rules();
        let is_correct = rules.is_ok();
        let result = rules.and_then(|rules| {
            let count = rules.rules.len();
            (self.apply)(rules.of_file(&self.path)).map(|()| count)
        });
        self.is_contradicted = is_correct && result.is_err();
        // A panic of the log's subscriber must not end this thread.
        run_contained(|| self.report(result));
    }

    fn report(&self, result: Result<usize, Error>) {
        match result {
            Ok(rules) => {
                self.status.succeed();
                self.status.refused().set(false);
                metrics::rules_loaded(Origin::File.as_str(), true);
                let path = self.path.display();
                tracing::info!(target: TARGET, file = %path, rules, "the file of rules has changed and is in force");
            }
            Err(error) => {
                let error = file_error(&self.path, &error);
                self.status.refused().set(true);
                if self.status.fail(&error) {
                    metrics::rules_loaded(Origin::File.as_str(), false);
                    tracing::error!(
                        target: TARGET,
                        %error,
                        "the file of rules cannot be used: its last good rules stay in force"
                    );
                }
            }
        }
    }
}
