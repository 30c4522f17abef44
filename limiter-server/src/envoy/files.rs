//! The files of a configuration: those that are named, and those of directories that are named.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::mistake::Mistake;

/// The most bytes of a file.
const MAX_BYTES: u64 = 16 << 20;

/// A file and its text.
pub(super) struct ReadFile {
    pub(super) path: Arc<Path>,
    pub(super) text: String,
}

/// The state of the files, which changes when one of them is written, or replaced by another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Signature(Vec<(PathBuf, Option<FileState>)>);

#[derive(Debug, PartialEq, Eq)]
struct FileState {
    len: u64,
    modified: Option<SystemTime>,
    /// The number of the file: that of another one after a swap of symbolic links, as in Kubernetes.
    number: u64,
}

impl Signature {
    /// Looks at the files, and at those of directories.
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let (files, _) = list(paths);
        let state = |file: PathBuf| {
            let state = fs::metadata(&file).ok().map(|metadata| FileState::of(&metadata));
            (file, state)
        };
        Self(files.into_iter().map(state).collect())
    }
}

impl FileState {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let number = 0;
        Self { len: metadata.len(), modified: metadata.modified().ok(), number }
    }
}

/// Reads the files, with a mistake for each that cannot be read.
pub(super) fn read(paths: &[PathBuf]) -> (Vec<ReadFile>, Vec<Mistake>) {
    let (files, mut mistakes) = list(paths);
    let mut read = Vec::new();
    for file in files {
        match read_text(&file) {
            Ok(text) => read.push(ReadFile { path: file.into(), text }),
            Err(message) => mistakes.push(Mistake::of_file(&file, message)),
        }
    }
    (read, mistakes)
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("must have at most 16 MB, got more: write several files".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("must be UTF-8, got another byte at {}: save it as UTF-8", error.utf8_error().valid_up_to())
    })
}

/// Lists the files, those of a directory by name: `*.yaml` and `*.yml` that do not begin with a dot.
fn list(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<Mistake>) {
    let (mut files, mut mistakes) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        match fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        {
            Ok(mut entries) => {
                entries.retain(|entry| is_configuration(entry));
                entries.sort();
                if entries.is_empty() {
                    let message = "must have files, got none: write one that ends with `.yaml`";
                    mistakes.push(Mistake::of_file(path, message));
                }
                files.extend(entries);
            }
            Err(error) => mistakes.push(Mistake::of_file(path, format!("cannot be read: {error}"))),
        }
    }
    (files, mistakes)
}

fn is_configuration(path: &Path) -> bool {
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    is_yaml && !is_hidden && path.is_file()
}
