//! Failures of the command, each with its exit code.

use std::fmt;
use std::io;

use rate_limited::{Error, ErrorKind};

use crate::exit::Exit;

/// The reason why the command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line, a file or an option is wrong.
    Usage(String),
    /// The library reported it: the store failed, or the configuration is wrong.
    Library(Error),
    /// The shared rules have changed since they were read.
    Conflict { message: String, diff: String },
    /// The program after `--` was not started.
    Program { exit: Exit, message: String },
    /// The machine refused a file, a process or a terminal.
    System(String),
    /// SIGINT ended a question, and nothing was published.
    Interrupted,
    /// The reader of the output has closed the pipe.
    ClosedPipe,
}

impl Failure {
    /// Creates the failure of a wrong command line, file or option.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Creates the failure of a runtime that did not start.
    pub(crate) fn runtime(error: &io::Error) -> Self {
        Self::System(format!("threads cannot be started: {error}"))
    }

    /// Creates the failure of a write to an output.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::System(format!("the output cannot be written: {error}")),
        }
    }

    /// The exit code. That of a failed store is for the store alone.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::System(_) => Exit::USAGE,
            Self::Library(error) => match error.kind() {
                ErrorKind::Config | ErrorKind::InvalidLimit => Exit::USAGE,
                ErrorKind::Conflict => Exit::CONFLICT,
                _ => Exit::STORE,
            },
            Self::Conflict { .. } => Exit::CONFLICT,
            Self::Program { exit, .. } => *exit,
            Self::Interrupted => Exit::INTERRUPTED,
            Self::ClosedPipe => Exit::SUCCESS,
        }
    }

    /// The kind, for `--json`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Library(error) => error.kind().as_str(),
            Self::Conflict { .. } => "conflict",
            Self::Program { .. } => "program",
            Self::System(_) => "system",
            Self::Interrupted => "interrupted",
            Self::ClosedPipe => "closed_pipe",
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message)
            | Self::System(message)
            | Self::Conflict { message, .. }
            | Self::Program { message, .. } => f.write_str(message),
            Self::Library(error) => error.fmt(f),
            Self::Interrupted => f.write_str("nothing was published: it was interrupted"),
            Self::ClosedPipe => f.write_str("the output was closed"),
        }
    }
}
