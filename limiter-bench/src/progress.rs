//! How far the comparison is, on standard error; nothing but problems where that is no terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over all cases, and the time there is for them. Its unit is what one contestant takes for one round.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    time: Option<Duration>,
}

impl Progress {
    /// So many units, to be done in so much time if that is limited.
    #[must_use]
    pub fn new(units: u64, time: Option<Duration>) -> Self {
        let bar = ProgressBar::new(units);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} % {elapsed} (about {eta} to go)  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, began: Instant::now(), time }
    }

    /// The next piece of work begins.
    pub fn step(&self, case: &str, contestant: &str) {
        self.bar.set_message(format!("{case}: {contestant}"));
    }

    /// So many units are done, or will not be.
    pub fn done(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Whether more of the time is over than of the work.
    #[must_use]
    pub fn is_late(&self) -> bool {
        let done = self.bar.position() as f64 / self.bar.length().unwrap_or(1) as f64;
        self.time.is_some_and(|time| self.began.elapsed() > time.mul_f64(done.min(1.0)))
    }

    /// One line that stays.
    pub fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("limiter-bench: {line}"));
    }

    /// All is done.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
