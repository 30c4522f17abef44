//! Builds C libraries that replace system calls in a process, loaded by `LD_PRELOAD`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library of this name into a directory, and returns its path.
///
/// # Panics
///
/// There is no C compiler `cc`, or it fails. The message has the compiler's output.
pub(crate) fn build(directory: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (directory.join(format!("{name}.c")), directory.join(format!("{name}.so")));
    fs::write(&file, source).expect("writing to a temporary directory");
    let output = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .args([&library, &file])
        .arg("-ldl")
        .output()
        .unwrap_or_else(|error| panic!("cannot run `cc` ({error}): the library `{name}` is written in C"));
    assert!(output.status.success(), "cc failed: {}", String::from_utf8_lossy(&output.stderr));
    library
}
