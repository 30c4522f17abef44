//! The file of rules: read when a limiter is built, and again while the program runs.
//!
//! Changes are found by `stat`, not by inotify, which misses the symlink swap of a `ConfigMap` and changes on NFS. The
//! file has a thread of its own, because NFS can hang.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};
use std::{fmt, thread};

use sha2::{Digest, Sha256};

use crate::rule::RulesStatus;
use crate::rule::text::{MAX_BYTES, too_long};
use crate::run::run_contained;
use crate::{Error, ErrorKind, Origin, RuleSet, TARGET, metrics};

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
        Ok(FileWatch { _stop: stop, status })
    }
}

const THREAD_NAME: &str = "rate-limited-rules";

/// A file that a thread reads until this value is dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    _stop: Sender<()>,
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

fn no_thread(error: io::Error) -> Error {
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

// One look at a file: its stamp and its bytes.

/// The length, time and identity of a file. Another stamp means that the file may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    is_file: bool,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device and inode, where the system has them.
    identity: (u64, u64),
}

impl FileStamp {
    /// Returns the stamp of the file at the end of all symbolic links.
    fn of(path: &Path) -> Result<Self, io::Error> {
        let metadata = fs::metadata(path)?;
        let (is_file, bytes, modified) = (metadata.is_file(), metadata.len(), metadata.modified().ok());
        Ok(Self { is_file, bytes, modified, identity: identity(&metadata) })
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// The content of a file at a time, or the reason why it could not be read.
#[derive(Debug)]
struct Reading {
    /// The stamp from before the bytes were read. `None` for a path without a file.
    stamp: Option<FileStamp>,
    digest: [u8; 32],
    content: Result<Vec<u8>, Error>,
}

impl Reading {
    fn of(path: &Path) -> Self {
        let stamp = FileStamp::of(path);
        let content = match &stamp {
            // The open of a pipe would wait for a writer.
            Ok(stamp) if !stamp.is_file => Err(config_error(
                "`rules_file` must be a file, got a directory or a device: write the path of a file of rules",
            )),
            Ok(_) => read(path),
            Err(error) => Err(unreadable(error)),
        };
        let digest = match &content {
            Ok(bytes) => Sha256::new().chain_update([0]).chain_update(bytes),
            Err(error) => Sha256::new().chain_update([1]).chain_update(error.to_string()),
        };
        Self { stamp: stamp.ok(), digest: digest.finalize().into(), content }
    }

    /// Returns the present stamp of a file. `None` for a path without a file.
    fn stamp_of(path: &Path) -> Option<FileStamp> {
        FileStamp::of(path).ok()
    }

    /// Parses the bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a file that could not be read, or that is no text of rules.
    fn rules(&self) -> Result<RuleSet, Error> {
        RuleSet::from_bytes(self.content.as_ref().map_err(Error::clone)?)
    }

    /// Returns the rules of a file that was replaced. An empty one is more likely half written than meant.
    ///
    /// # Errors
    /// As for [`rules`](Self::rules), and for a file without any text.
    fn new_rules(&self) -> Result<RuleSet, Error> {
        let is_empty = |bytes: &[u8]| bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii().is_empty();
        if matches!(&self.content, Ok(bytes) if is_empty(bytes)) {
            return Err(config_error(
                "`rules_file` must have a text, got an empty file: write `#` for a set without rules",
            ));
        }
        self.rules()
    }

    /// Returns the reading without its bytes, to be compared with others.
    fn without_bytes(self) -> Self {
        Self { content: self.content.map(|_| Vec::new()), ..self }
    }
}

/// The start of a text by some editors, also of an empty one.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() > MAX_BYTES => Err(too_long().locate("")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> Error {
    config_error(format!("`rules_file` must be a file that can be read, got {error}: check its path and permissions"))
}

fn config_error(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, problem)
}

// The checks of a file of rules while the program runs.

/// Applies the rules of a new version of the file.
type Apply = Box<dyn FnMut(RuleSet) -> Result<(), Error> + Send>;

/// The state between two checks. A new content is used when two readings of it agree.
struct Watcher {
    path: PathBuf,
    intervals: WatchIntervals,
    status: Arc<RulesStatus>,
    apply: Apply,
    /// The content that was used or rejected last.
    judged: Reading,
    /// A new content that was read once.
    pending: Option<Reading>,
    /// The rules of the last content are correct, and other levels contradict them. Those may change.
    is_contradicted: bool,
    checks_without_read: u32,
}

impl Watcher {
    /// Creates the watcher of a file whose rules are in force.
    fn new(
        path: PathBuf,
        in_force: Reading,
        intervals: WatchIntervals,
        status: Arc<RulesStatus>,
        apply: Apply,
    ) -> Self {
        // The file may have been written while it was read at the start.
        let checks_without_read = intervals.checks_per_read;
        let (pending, is_contradicted) = (None, false);
        Self { path, intervals, status, apply, judged: in_force, pending, is_contradicted, checks_without_read }
    }

    fn settle(&self) -> Duration {
        self.intervals.settle
    }

    /// Checks the file once. Returns the time until the next check.
    fn check(&mut self) -> Duration {
        self.checks_without_read = self.checks_without_read.saturating_add(1);
        let is_due = self.checks_without_read >= self.intervals.checks_per_read;
        if self.pending.is_none() && !is_due && Reading::stamp_of(&self.path) == self.judged.stamp {
            return self.intervals.check;
        }
        self.checks_without_read = 0;
        let reading = Reading::of(&self.path);
        let pending = self.pending.take();
        if reading.digest == self.judged.digest {
            if self.is_contradicted {
                self.judge(&reading);
            }
            self.judged.stamp = reading.stamp;
            return self.intervals.check;
        }
        match pending {
            Some(pending) if pending.digest == reading.digest => {
                self.judge(&reading);
                self.judged = reading.without_bytes();
                self.intervals.check
            }
            _ => {
                self.pending = Some(reading.without_bytes());
                self.intervals.settle
            }
        }
    }

    /// Uses the rules of a new content, or reports its mistake.
    fn judge(&mut self, reading: &Reading) {
        let rules = reading.new_rules();
        let is_correct = rules.is_ok();
        let result = rules.and_then(|rules| {
            let count = rules.rules.len();
            (self.apply)(rules.of_file(&self.path)).map(|()| count)
        });
        self.is_contradicted = is_correct && result.is_err();
        // A panic of the log's subscriber must not end this thread.
        run_contained(|| self.report(result));
    }

    fn report(&self, result: Result<usize, Error>) {
        match result {
            Ok(rules) => {
                self.status.succeed();
                self.status.refused().set(false);
                metrics::rules_loaded(Origin::File.as_str(), true);
                let path = self.path.display();
                tracing::info!(target: TARGET, file = %path, rules, "the file of rules has changed and is in force");
            }
            Err(error) => {
                let error = file_error(&self.path, &error);
                self.status.refused().set(true);
                if self.status.fail(&error) {
                    metrics::rules_loaded(Origin::File.as_str(), false);
                    tracing::error!(
                        target: TARGET,
                        %error,
                        "the file of rules cannot be used: its last good rules stay in force"
                    );
                }
            }
        }
    }
}

#[cfg(all(test, not(limiter_loom)))]
mod tests;
