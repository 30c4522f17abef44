//! Questions on a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use tokio::{signal, task};

use crate::failure::Failure;

/// Returns whether a person can read a question and answer it.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Returns the error of a command that needs a terminal, if there is none.
pub(super) fn require_terminal(command: &str) -> Result<(), Failure> {
    if has_terminal() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "`{command}` must have a terminal, got none: use `rules export`, an editor, and `rules import`"
    )))
}

/// Takes SIGINT over from the system: it does not end this process from now on. The result receives those that follow.
#[cfg(unix)]
pub(super) fn take_interrupts() -> io::Result<signal::unix::Signal> {
    signal::unix::signal(signal::unix::SignalKind::interrupt())
}

/// Takes Ctrl-C over from the system: it does not end this process from now on. The result receives those that follow.
#[cfg(windows)]
pub(super) fn take_interrupts() -> io::Result<signal::windows::CtrlC> {
    signal::windows::ctrl_c()
}

/// Writes a question and reads a line. `None` at the end of the input.
///
/// # Errors
/// [`Failure::Interrupted`] if SIGINT ends the question.
pub(super) async fn answer(question: &str) -> Result<Option<String>, Failure> {
    // Before the question is shown, so that none is lost.
    let mut interrupts = take_interrupts().map_err(|error| Failure::System(format!("no signals: {error}")))?;
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{question} ").and_then(|()| stderr.flush());
    let line = task::spawn_blocking(|| {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        read.ok().filter(|bytes| *bytes > 0).map(|_| line.trim().to_owned())
    });
    tokio::select! {
        line = line => Ok(line.ok().flatten()),
        _ = interrupts.recv() => {
            let _ = writeln!(stderr);
            Err(Failure::Interrupted)
        }
    }
}
