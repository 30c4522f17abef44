//! Host names whose look-up never ends.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::preload;

/// A library that makes look-ups of host names under `hangs.test` hang in the process that loads it. Dropping this
/// value removes the library's file.
#[derive(Debug)]
pub struct HangingNames {
    library: PathBuf,
    _directory: TempDir,
}

impl HangingNames {
    /// Builds the library.
    ///
    /// # Panics
    ///
    /// There is no C compiler `cc`, or it fails. The message has the compiler's output.
    #[must_use]
    pub fn build() -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let library = preload::build(directory.path(), "names", include_str!("names.c"));
        Self { library, _directory: directory }
    }

    /// Returns the environment variable that loads the library into a process.
    #[must_use]
    pub fn environment(&self) -> (&'static str, &Path) {
        ("LD_PRELOAD", &self.library)
    }
}
