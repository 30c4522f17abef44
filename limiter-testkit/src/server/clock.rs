//! A server's wall clock that a test can set, as an operator, NTP or a failover to another host does.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::preload;

const SOURCE: &str = include_str!("clock.c");

/// A library that shifts the clock of the process it is loaded into, by what a file says.
#[derive(Debug)]
pub(super) struct ShiftedClock {
    library: PathBuf,
    shift: PathBuf,
}

impl ShiftedClock {
    /// Builds the library into a server's directory.
    ///
    /// # Panics
    ///
    /// There is no C compiler `cc`, or it fails: with what it says.
    pub(super) fn build(directory: &Path) -> Self {
        let library = preload::build(directory, "clock", SOURCE);
        let shift = directory.join("clock.shift");
        let clock = Self { library, shift };
        fs::write(&clock.shift, 0_i64.to_ne_bytes()).expect("writing to the server's own directory");
        clock
    }

    /// What the server's process has to find in its environment.
    pub(super) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("LIMITER_TESTKIT_CLOCK", &self.shift)]
    }

    /// Sets how far the clock is ahead of the real one, in microseconds; negative: behind.
    pub(super) fn set(&self, micros: i64) {
        let file = fs::OpenOptions::new().write(true).open(&self.shift).expect("the clock's file");
        file.write_all_at(&micros.to_ne_bytes(), 0).expect("writing to the clock's file");
    }
}
