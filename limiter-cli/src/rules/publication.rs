//! The way of a changed text into the store: checks, confirmation, and the answer to a conflict.

use std::time::Duration;

use rate_limited::{Change, ErrorKind, Limiter, Published, SharedRules};
use serde_json::{Value, json};

use super::in_force::InForce;
use super::rule_text::RuleText;
use super::{author, confirmation, diff_text, in_force, live_names, reading, validity};
use crate::arguments::ChangeArguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, Style, visible};
use crate::time_text;
use limiter_inspect::{Fleet, NewCounts, new_counts};

/// The largest number of changed lines that are shown after a change.
const MAX_SHOWN_LINES: usize = 60;

/// The longest wait for the limiters that live, unless another one is given.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The largest number of rules with new counts that are named.
const MAX_NOTES: usize = 10;

/// The text in force, and the options of a change to it.
pub(super) struct Publication<'p> {
    limiter: &'p Limiter,
    pub(super) shared: &'p SharedRules,
    pub(super) published: &'p Published,
    pub(super) change: &'p ChangeArguments,
    pub(super) output: &'p Output,
    /// The limiters that live. `None` if they cannot be listed.
    pub(super) fleet: Option<Fleet>,
}

impl<'p> Publication<'p> {
    pub(super) async fn new(
        limiter: &'p Limiter,
        shared: &'p SharedRules,
        published: &'p Published,
        change: &'p ChangeArguments,
        output: &'p Output,
    ) -> Self {
        let fleet = Fleet::read(limiter).await.ok();
        Self { limiter, shared, published, change, output, fleet }
    }
}

impl Publication<'_> {
    /// Returns the text in force, to change single settings of it.
    ///
    /// # Errors
    /// A wrong usage for a text that this version cannot read, such as one for a newer version.
    pub(super) fn text(&self) -> Result<RuleText, Failure> {
        let Published { version, toml, .. } = self.published;
        validity::check(toml).map_err(|failure| {
            Failure::usage(format!(
                "version {version} of the shared rules cannot be changed by this version of `limiter`: {failure}: use a \
                 newer one, `rules edit`, or `rules rollback`"
            ))
        })?;
        RuleText::parse(toml)
    }

    /// Publishes a text.
    pub(super) async fn publish(&self, text: &str) -> Result<Exit, Failure> {
        self.publish_after(text, None).await
    }

    /// Publishes a text, after a confirmation if the change has this risk, or starts new counts.
    pub(super) async fn publish_after(&self, text: &str, risk: Option<&str>) -> Result<Exit, Failure> {
        self.check_version().await?;
        validity::check(text)?;
        let Published { version, toml: old, .. } = self.published;
        if text == old {
            return self.unchanged();
        }
        let (before, after) = (RuleText::parse(old).unwrap_or_else(|_| RuleText::empty()), RuleText::parse(text)?);
        let notes = new_counts(self.fleet.as_ref(), before.document(), after.document());
        if let Some(fleet) = &self.fleet {
            let is_changed = |name: &str| before.excerpt(name) != after.excerpt(name);
            let changed = after.rules().into_iter().map(|(name, _)| name).filter(|name| is_changed(name));
            live_names::warn_of_unknown(fleet, changed, self.output);
            live_names::warn_of_packed(fleet, old, text, self.output);
        }
        for note in notes.iter().take(MAX_NOTES) {
            self.output.note(&note.message);
        }
        if notes.len() > MAX_NOTES {
            self.output.note(format_args!("… and {} more rules", notes.len() - MAX_NOTES));
        }
        if self.change.dry_run {
            self.write_change(text, usize::MAX)?;
            if self.output.is_json() {
                self.output.json(&self.result_json(text, *version, &notes, None))?;
            } else {
                self.output.note("nothing was published: this is a dry run");
            }
            return Ok(Exit::SUCCESS);
        }
        let risk = risk.or_else(|| notes.iter().any(|note| note.is_certain).then_some("starts new counts"));
        let risk = risk.filter(|_| !self.change.yes);
        if let Some(risk) = risk {
            self.confirm(text, risk).await?;
        }
        let change = Change {
            based_on: *version,
            who: self.change.who.clone().unwrap_or_else(author::here),
            why: self.change.why.clone().unwrap_or_default(),
        };
        let new_version = match self.shared.publish(text, change).await {
            Ok(new_version) => new_version,
            Err(error) if error.kind() == ErrorKind::Conflict => return Err(self.conflict().await),
            Err(error) => return Err(error.into()),
        };
        Ok(self.output.settle(self.write_result(text, new_version, &notes, risk.is_some()).await, Exit::SUCCESS))
    }

    async fn write_result(
        &self,
        text: &str,
        version: u64,
        notes: &[NewCounts],
        was_shown: bool,
    ) -> Result<(), Failure> {
        if self.output.is_json() {
            let in_force = self.in_force(version).await;
            return self.output.json(&self.result_json(text, version, notes, in_force.as_ref()));
        }
        if !was_shown {
            self.write_change(text, MAX_SHOWN_LINES)?;
        }
        self.output.line(self.output.paint(Style::Green, format_args!("version {version} is published")))?;
        let prefix = self.limiter.prefix().unwrap_or_default();
        self.in_force(version).await.map_or(Ok(()), |in_force| in_force.write(prefix, self.output))
    }

    /// Waits until a version is in force. `None` if that cannot be known.
    async fn in_force(&self, version: u64) -> Option<InForce> {
        let max_wait = self.change.wait.unwrap_or(MAX_WAIT);
        let found = in_force::wait(self.limiter, version, max_wait, self.output).await;
        found.map_err(|error| in_force::note_unknown(&error, self.output)).ok()
    }

    fn result_json(&self, text: &str, version: u64, notes: &[NewCounts], in_force: Option<&InForce>) -> Value {
        let diff = diff_text::plain(&self.published.toml, text);
        let mut result = json!({ "version": version, "changed": true, "dry_run": self.change.dry_run, "diff": diff });
        if let Some(in_force) = in_force {
            result["in_force"] = in_force.as_json();
        }
        if !notes.is_empty() {
            result["notes"] = notes.iter().map(|note| note.message.clone()).collect();
        }
        result
    }

    /// Reports that there is nothing to publish.
    pub(super) fn unchanged(&self) -> Result<Exit, Failure> {
        let version = self.published.version;
        let written = if self.output.is_json() {
            self.output.json(&json!({ "version": version, "changed": false, "dry_run": self.change.dry_run }))
        } else if version == 0 {
            self.output.line("nothing changes: no shared rules are published")
        } else {
            self.output.line(format_args!("nothing changes: version {version} has this already"))
        };
        Ok(self.output.settle(written, Exit::SUCCESS))
    }

    fn write_change(&self, text: &str, max_lines: usize) -> Result<(), Failure> {
        if self.output.is_json() {
            return Ok(());
        }
        self.change_lines(text, max_lines, self.output).iter().try_for_each(|line| self.output.line(line))
    }

    fn change_lines(&self, text: &str, max_lines: usize, output: &Output) -> Vec<String> {
        let mut lines = diff_text::lines(&self.published.toml, text, output);
        if lines.len() > max_lines {
            let more = lines.len() - max_lines;
            lines.truncate(max_lines);
            lines.push(format!("… and {more} more lines"));
        }
        lines
    }

    async fn check_version(&self) -> Result<(), Failure> {
        let version = self.published.version;
        match self.change.if_version {
            Some(wanted) if wanted != version => {
                let history = reading::history(self.shared, usize::MAX).await?;
                let old = history.iter().find(|entry| entry.version == wanted);
                let message = format!(
                    "the shared rules must be at version {wanted} by `--if-version`, got {}",
                    now(self.published)
                );
                let diff = old.map(|old| diff_text::plain(&old.toml, &self.published.toml));
                Err(Failure::Conflict { message, diff: diff.unwrap_or_default() })
            }
            _ => Ok(()),
        }
    }

    /// Requests a confirmation on the terminal. `risk` completes "a change that".
    async fn confirm(&self, text: &str, risk: &str) -> Result<(), Failure> {
        if !confirmation::has_terminal() {
            return Err(Failure::usage(format!(
                "`--yes` must be given for a change that {risk}, since there is no terminal to confirm it: add `--yes`"
            )));
        }
        // Where the question is, which is a terminal: standard output need not be one.
        for line in self.change_lines(text, MAX_SHOWN_LINES, &self.output.painted_for_errors()) {
            self.output.show(line);
        }
        let answer = confirmation::answer("Publish this? [y/N]").await?;
        if answer.is_some_and(|answer| ["y", "yes"].contains(&&*answer.to_lowercase())) {
            return Ok(());
        }
        Err(Failure::usage("nothing was published: the change was not confirmed"))
    }

    /// Returns the failure with the difference between the text that was read and the one that is there now. If that
    /// cannot be read, it is a conflict all the same.
    async fn conflict(&self) -> Failure {
        let (got, diff) = match reading::read(self.shared).await {
            Ok(current) => (now(&current), diff_text::plain(&self.published.toml, &current.toml)),
            Err(failure) => (format!("another one, which cannot be read ({failure})"), String::new()),
        };
        let message = format!(
            "the shared rules must be at version {} to be changed, got {got}: nothing was published, repeat the command",
            self.published.version,
        );
        Failure::Conflict { message, diff }
    }
}

fn now(published: &Published) -> String {
    let Published { version, who, when, why, .. } = published;
    if *version == 0 {
        return "none".to_owned();
    }
    let why = if why.is_empty() { String::new() } else { format!(", {}", visible(why)) };
    format!("version {version} of {}, {}{why}", visible(who), time_text::with_age(*when))
}
