//! A wall clock of a server that a test can set, as an operator, NTP or a failover to another host does.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::preload;

const LIBRARY_SOURCE: &str = include_str!("clock.c");

/// A library that sets the clock of the process that loads it, by the content of a file.
#[derive(Debug)]
pub(super) struct ShiftedClock {
    library: PathBuf,
    setting: PathBuf,
}

impl ShiftedClock {
    /// Builds the library into a server's directory.
    ///
    /// # Panics
    ///
    /// There is no C compiler `cc`, or it fails. The message has the compiler's output.
    pub(super) fn build(directory: &Path) -> Self {
        let library = preload::build(directory, "clock", LIBRARY_SOURCE);
        let setting = directory.join("clock.setting");
        let clock = Self { library, setting };
        fs::write(&clock.setting, [0; 16]).expect("writing to the server's own directory");
        clock
    }

    /// Returns the environment variables that load the library into the server's process.
    pub(super) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("LIMITER_TESTKIT_CLOCK", &self.setting)]
    }

    /// Sets the offset from the real clock in microseconds: ahead of it if positive, behind it if negative.
    pub(super) fn set(&self, micros: i64) {
        self.write(micros, 0);
    }

    /// Stops the clock at an instant, in microseconds since 1970.
    pub(super) fn stop(&self, micros: i64) {
        self.write(micros, 8);
    }

    fn write(&self, number: i64, offset: u64) {
        let file = fs::OpenOptions::new().write(true).open(&self.setting).expect("the clock's file");
        file.write_all_at(&number.to_ne_bytes(), offset).expect("writing to the clock's file");
    }
}
