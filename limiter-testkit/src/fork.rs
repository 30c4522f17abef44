//! Processes that fork, without unsafe code.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::preload;

/// A library that lets a program fork by [`fork`], when it is loaded into it by `LD_PRELOAD`.
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

    /// The variable that the program's process has to have in its environment.
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

/// The end of a [`Child`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It returned this.
    Returned(u8),
    /// It panicked.
    Panicked,
    /// It did not end in time, and was killed.
    Hung,
    /// By a signal.
    Killed,
}

const PANICKED: u8 = 101;

/// Forks this process, which has the [`ForkLibrary`] loaded. The child runs `work` on its only thread and ends with what that
/// returns, at most 100; nothing else of it is dropped or flushed.
///
/// # Panics
///
/// The library is not loaded, or the system makes no process.
pub fn fork(work: impl FnOnce() -> u8) -> Child {
    let id: i64 = say("fork").parse().expect("a process's id");
    if id > 0 {
        return Child { id: u32::try_from(id).expect("a process's id") };
    }
    assert!(id == 0, "the system makes no process");
    let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
    unreachable!("the process ends here: {}", say(&format!("exit/{code}")))
}

impl Child {
    /// Waits for the child. One that does not end in time is killed.
    ///
    /// # Panics
    ///
    /// There is no such child.
    #[must_use]
    pub fn ended_within(self, limit: Duration) -> Ended {
        let ended = say(&format!("wait/{}/{}", self.id, limit.as_millis()));
        match ended.strip_prefix("exited ").map(|code| code.parse().expect("an exit code")) {
            Some(PANICKED) => Ended::Panicked,
            Some(code) => Ended::Returned(code),
            None if ended == "hung" => Ended::Hung,
            None => Ended::Killed,
        }
    }
}

/// Has the library do something.
fn say(words: &str) -> String {
    let path = format!("/limiter-testkit/{words}");
    fs::read_to_string(path).expect("the library is loaded into this process")
}
