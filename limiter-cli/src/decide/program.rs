//! The program that runs after an allowed check.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

use crate::exit::Exit;
use crate::failure::Failure;

/// A program that was not started, with the reason.
#[derive(Debug)]
pub(super) struct NotStarted {
    program: String,
    error: io::Error,
}

/// Runs a program. On Unix it replaces this process, so signals reach it and its exit is that of the command.
#[cfg(unix)]
pub(super) fn run(program: &OsStr, arguments: &[OsString]) -> Result<Exit, NotStarted> {
    use std::os::unix::process::CommandExt;

    let error = Command::new(program).args(arguments).exec();
    Err(NotStarted { program: program.to_string_lossy().into_owned(), error })
}

/// Runs a program and waits for its end.
#[cfg(not(unix))]
pub(super) fn run(program: &OsStr, arguments: &[OsString]) -> Result<Exit, NotStarted> {
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|error| NotStarted { program: program.to_string_lossy().into_owned(), error })?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Exit::with_code(code.unwrap_or(u8::MAX)))
}

impl NotStarted {
    /// Returns the failure, with the exit code of a shell.
    pub(super) fn failure(&self, has_refund: bool) -> Failure {
        let Self { program, error } = self;
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NOT_FOUND,
            _ => Exit::NOT_EXECUTABLE,
        };
        let permits = if has_refund { "its permits were given back" } else { "its permits are taken" };
        Failure::Program { exit, message: format!("`{program}` was not started, and {permits}: {error}") }
    }
}
