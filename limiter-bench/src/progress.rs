//! The progress of a run, on standard error. If that is no terminal, only problems are printed.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over all cases, and the time for them. Its unit is one contestant in one round.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    time: Option<Duration>,
}

impl Progress {
    /// Creates a bar of a number of units, with a time limit if there is one.
    #[must_use]
    pub fn new(units: u64, time: Option<Duration>) -> Self {
        let bar = ProgressBar::new(units);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} % {elapsed} (about {eta} to go)  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, began: Instant::now(), time }
    }

    /// Shows the next piece of work.
    pub fn step(&self, case: &str, contestant: &str) {
        self.bar.set_message(format!("{case}: {contestant}"));
    }

    /// Advances the bar by units that are done or left out.
    pub fn done(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Returns whether a larger part of the time than of the work is over.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let done = self.bar.position() as f64 / self.bar.length().unwrap_or(1) as f64;
        self.time.is_some_and(|time| self.began.elapsed() > time.mul_f64(done.min(1.0)))
    }

    /// Prints a line above the bar.
    pub fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("limiter-bench: {line}"));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
