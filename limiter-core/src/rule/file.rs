//! The file of rules: read when a limiter is built, and again while the program runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::rule::RulesStatus;
use crate::sync::process::DroppedAtHome;
use crate::{Error, ErrorKind, Origin, RuleSet};

mod reading;
mod watcher;

#[cfg(all(test, not(limiter_loom)))]
mod tests;

use reading::Reading;
use watcher::Watcher;

/// The times between two looks at a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchIntervals {
    /// The time between two checks of its length, time and inode.
    pub(crate) check: Duration,
    /// The time between two readings that must agree.
    pub(crate) settle: Duration,
    /// The number of checks after which the bytes are read, whatever the length, time and inode are.
    pub(crate) checks_per_read: u32,
}

impl Default for WatchIntervals {
    fn default() -> Self {
        Self { check: Duration::from_secs(1), settle: Duration::from_millis(200), checks_per_read: 30 }
    }
}

/// A file of rules that was read once.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) path: PathBuf,
    reading: Reading,
    pub(crate) rules: RuleSet,
    /// The rules make the limiter follow the shared ones.
    pub(crate) is_shared: bool,
}

impl OpenedFile {
    /// Reads the file. It blocks for as long as the file system does.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an empty path, and for a file that cannot be read, or that is no text of rules.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        if path.as_os_str().is_empty() {
            return Err(Error::new(
                ErrorKind::Config,
                "`rules_file` must be the path of a file, got an empty one: write one, or leave it out",
            ));
        }
        // The program may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let reading = Reading::of(&path);
        let rules = reading.rules().map_err(|error| file_error(&path, &error))?;
        let rules = rules.of_file(&path);
        let is_shared = rules.is_shared;
        Ok(Self { path, reading: reading.without_bytes(), rules, is_shared })
    }

    /// Reads the file on a thread of its own.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    ///
    /// # Cancel safety
    /// The thread of a dropped future ends when the file system replies.
    pub(crate) async fn read_on_a_thread(path: PathBuf) -> Result<Self, Error> {
        let (sender, result) = tokio::sync::oneshot::channel();
        let read = move || drop(sender.send(Self::read(&path)));
        thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(read).map_err(no_thread)?;
        // Tokio's budget does not apply: an executor that blocks inside of a task would poll in vain for ever.
        tokio::task::unconstrained(result)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the thread of the file of rules ended")))
    }

    /// Starts the thread that reads the file again. `apply` gets the rules of each new version.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn watch(
        self,
        intervals: WatchIntervals,
        apply: impl FnMut(RuleSet) -> Result<(), Error> + Send + 'static,
    ) -> Result<FileWatch, Error> {
        let (stop, stopped) = mpsc::channel();
        let status = Arc::new(RulesStatus::new(Origin::File));
        let watcher = Watcher::new(self.path, self.reading, intervals, Arc::clone(&status), Box::new(apply));
        let run = move || run(watcher, &stopped);
        thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(run).map_err(no_thread)?;
        Ok(FileWatch { _stop: DroppedAtHome::new(stop), status })
    }
}

const THREAD_NAME: &str = "rate-limited-rules";

/// A file that a thread reads until this value is dropped. A child of `fork` has no such thread.
#[derive(Debug)]
pub(crate) struct FileWatch {
    _stop: DroppedAtHome<Sender<()>>,
    status: Arc<RulesStatus>,
}

impl FileWatch {
    pub(crate) fn status(&self) -> &RulesStatus {
        &self.status
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.status.refused().withdraw();
    }
}

fn run(mut watcher: Watcher, stopped: &Receiver<()>) {
    // The first reading was that of the start, so the second one is due.
    let mut wait = watcher.settle();
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
        wait = watcher.check();
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::with_source(ErrorKind::Unavailable, "the thread of the file of rules could not be started", error)
}

/// Returns an error with the path of the file in front.
pub(crate) fn file_error(path: &Path, error: &Error) -> Error {
    let in_file = ErrorInFile { path, error };
    Error::new(error.kind(), in_file.to_string())
}

struct ErrorInFile<'e> {
    path: &'e Path,
    error: &'e Error,
}

impl fmt::Display for ErrorInFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}
