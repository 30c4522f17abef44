//! One look at a file: its stamp and its bytes.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::rule::text::{MAX_BYTES, too_long};
use crate::{Error, ErrorKind, RuleSet};

/// The length, time and identity of a file. Another stamp means that the file may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
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
pub(super) struct Reading {
    /// The stamp from before the bytes were read. `None` for a path without a file.
    pub(super) stamp: Option<FileStamp>,
    pub(super) digest: [u8; 32],
    content: Result<Vec<u8>, Error>,
}

impl Reading {
    pub(super) fn of(path: &Path) -> Self {
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
    pub(super) fn stamp_of(path: &Path) -> Option<FileStamp> {
        FileStamp::of(path).ok()
    }

    /// Parses the bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a file that could not be read, or that is no text of rules.
    pub(super) fn rules(&self) -> Result<RuleSet, Error> {
        RuleSet::from_bytes(self.content.as_ref().map_err(Error::clone)?)
    }

    /// Returns the rules of a file that was replaced. An empty one is more likely half written than meant.
    ///
    /// # Errors
    /// As for [`rules`](Self::rules), and for a file without any text.
    pub(super) fn new_rules(&self) -> Result<RuleSet, Error> {
        let is_empty = |bytes: &[u8]| bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii().is_empty();
        if matches!(&self.content, Ok(bytes) if is_empty(bytes)) {
            return Err(config_error(
                "`rules_file` must have a text, got an empty file: write `#` for a set without rules",
            ));
        }
        self.rules()
    }

    /// Returns the reading without its bytes, to be compared with others.
    pub(super) fn without_bytes(self) -> Self {
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
