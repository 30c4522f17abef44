//! Files and standard input, read up to a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str;

use crate::failure::Failure;

/// The largest text of shared rules.
pub(crate) const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The largest file of rules of one program.
pub(crate) const MAX_FILE_BYTES: u64 = 16 << 20;

/// The largest file with a URL or a secret.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Reads a text of rules: a file, or standard input for `-`.
///
/// It reads at most one byte more than the bound.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Result<String, Failure> {
    let bytes = read(path, max_bytes, "remove rules that are not used")?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let valid = str::from_utf8(&bytes[..at]).unwrap_or_default();
        let line = valid.matches('\n').count() + 1;
        let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Failure::usage(format!(
            "{}: line {line}, column {column}: the text must be UTF-8, got the byte {:#04x}: use UTF-8 in the editor",
            name(path),
            bytes[at]
        ))
    })
}

/// Reads a file of one line, such as a URL.
pub(crate) fn read_line(path: &Path) -> Result<String, Failure> {
    let bytes = read(path, MAX_LINE_BYTES, "write one line")?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!("{} must be UTF-8, got other bytes: use UTF-8 in the editor", name(path)))
    })?;
    Ok(text.trim().to_owned())
}

/// Reads a file with a secret, without the newline at its end.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = read(path, MAX_LINE_BYTES, "write the secret alone")?;
    while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        bytes.pop();
    }
    Ok(bytes)
}

/// Returns the name of an input for messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn read(path: &Path, max_bytes: u64, remedy: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let failed = |error: io::Error| Failure::usage(format!("{} cannot be read: {error}", name(path)));
    let reader: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(failed)?) };
    reader.take(max_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max_bytes {
        let bound = match max_bytes {
            MAX_TEXT_BYTES => "1 MB",
            MAX_FILE_BYTES => "16 MB",
            _ => "64 kB",
        };
        return Err(Failure::usage(format!("{} must have at most {bound}, got more: {remedy}", name(path))));
    }
    Ok(bytes)
}
