//! The files of this workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the workspace").to_owned()
}

/// Files under a directory or the file itself, by extension, in the order of their paths.
pub(crate) fn files(place: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join(place), &mut found);
    found.retain(|file| file.extension().is_some_and(|end| extensions.iter().any(|extension| end == *extension)));
    found.sort();
    assert!(!found.is_empty(), "no such file: {place}");
    found
}

pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn collect(place: &Path, found: &mut Vec<PathBuf>) {
    if place.is_file() {
        return found.push(place.to_owned());
    }
    let entries = fs::read_dir(place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.file_name().is_some_and(|name| name != "target") {
            collect(&path, found);
        }
    }
}
