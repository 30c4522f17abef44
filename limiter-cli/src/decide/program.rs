//! The program that runs after an allowed check.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, ExitStatus};

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
    Err(NotStarted::new(program, error))
}

/// Runs a program and waits for its end.
#[cfg(not(unix))]
pub(super) fn run(program: &OsStr, arguments: &[OsString]) -> Result<Exit, NotStarted> {
    let status = Command::new(program).args(arguments).status();
    status.map(exit_of).map_err(|error| NotStarted::new(program, error))
}

/// Returns the exit of a program that has ended, as a shell does: 128 and the number of the signal that ended it.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    #[cfg(unix)]
    let code =
        status.code().or_else(|| std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal));
    #[cfg(not(unix))]
    let code = status.code();
    Exit::with_code(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

impl NotStarted {
    pub(super) fn new(program: &OsStr, error: io::Error) -> Self {
        Self { program: program.to_string_lossy().into_owned(), error }
    }

    /// Returns the failure, with the exit code of a shell. `kept` is what became of the permits.
    pub(super) fn failure(&self, kept: &str) -> Failure {
        let Self { program, error } = self;
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NOT_FOUND,
            _ => Exit::NOT_EXECUTABLE,
        };
        Failure::Program { exit, message: format!("`{program}` was not started, and {kept}: {error}") }
    }
}
