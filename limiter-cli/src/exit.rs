//! Exit codes.

use std::process::ExitCode;

/// The exit code of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Done, or allowed.
    pub(crate) const SUCCESS: Self = Self(0);
    /// The call was denied.
    pub(crate) const DENIED: Self = Self(1);
    /// The command line, a file or an option is wrong, or this machine refuses an output, a process or a terminal.
    pub(crate) const USAGE: Self = Self(2);
    /// The store failed.
    pub(crate) const STORE: Self = Self(3);
    /// The shared rules have changed meanwhile.
    pub(crate) const CONFLICT: Self = Self(4);
    /// The program exists and cannot be run, as in a shell.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// The program was not found, as in a shell.
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// SIGINT ended the command, as in a shell.
    pub(crate) const INTERRUPTED: Self = Self(130);

    /// Returns the exit with this code.
    pub(crate) const fn with_code(code: u8) -> Self {
        Self(code)
    }

    /// Returns the value for `main`.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self.0)
    }
}
