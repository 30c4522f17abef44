//! Forks a process without unsafe code.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::preload;

/// A library that enables [`fork`] in a program that loads it by `LD_PRELOAD`.
#[derive(Debug)]
pub struct ForkLibrary {
    path: PathBuf,
    _directory: TempDir,
}

impl ForkLibrary {
    /// Builds the library.
    ///
    /// # Panics
    ///
    /// There is no C compiler `cc`, or it fails.
    #[must_use]
    pub fn build() -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        Self { path: preload::build(directory.path(), "fork", include_str!("fork.c")), _directory: directory }
    }

    /// Returns the environment variable that loads the library into a process.
    #[must_use]
    pub fn variable(&self) -> (&'static str, PathBuf) {
        ("LD_PRELOAD", self.path.clone())
    }
}

/// A child made by [`fork`].
#[derive(Debug)]
#[must_use]
pub struct Child {
    id: u32,
}

/// The way in which a [`Child`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The child's work returned this number.
    Returned(u8),
    /// The child panicked.
    Panicked,
    /// The child did not end in time and was killed.
    Hung,
    /// A signal killed the child.
    Killed,
}

const PANICKED: u8 = 101;

/// Forks this process, which must have the [`ForkLibrary`] loaded.
///
/// The child runs `work` on its only thread and exits with the number that `work` returns, at most 100. The child drops
/// and flushes nothing else.
///
/// # Panics
///
/// The library is not loaded, or the system cannot create a process.
pub fn fork(work: impl FnOnce() -> u8) -> Child {
    let id: i64 = send_to_library("fork").parse().expect("a process's id");
    if id > 0 {
        return Child { id: u32::try_from(id).expect("a process's id") };
    }
    assert!(id == 0, "the system cannot create a process");
    let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
    unreachable!("the process ends here: {}", send_to_library(&format!("exit/{code}")))
}

impl Child {
    /// Waits for the child to end, and kills it after `limit`.
    ///
    /// # Panics
    ///
    /// There is no such child.
    #[must_use]
    pub fn wait_timeout(self, limit: Duration) -> Ended {
        let ended = send_to_library(&format!("wait/{}/{}", self.id, limit.as_millis()));
        match ended.strip_prefix("exited ").map(|code| code.parse().expect("an exit code")) {
            Some(PANICKED) => Ended::Panicked,
            Some(code) => Ended::Returned(code),
            None if ended == "hung" => Ended::Hung,
            None => Ended::Killed,
        }
    }
}

/// Sends a command to the library and returns its reply.
fn send_to_library(command: &str) -> String {
    let path = format!("/limiter-testkit/{command}");
    fs::read_to_string(path).expect("the library is loaded into this process")
}
