//! The progress bar.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error, if that is a terminal and the output is for people.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(total: Duration, is_shown: bool) -> Self {
        let is_shown = is_shown && io::stderr().is_terminal();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(millis(total)), target);
        let style = ProgressStyle::with_template("{bar:30} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar.with_style(style))
    }

    /// Shows the time since the start, and the decisions so far.
    pub(super) fn show(&self, elapsed: Duration, decisions: u64) {
        self.0.set_position(millis(elapsed));
        self.0.set_message(format!("{} s, {decisions} decisions", elapsed.as_secs()));
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        self.0.finish_and_clear();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
