//! `limiter completions`: scripts for shells.

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Writes the script of a shell to standard output.
pub(crate) fn run(arguments: &CompletionsArguments, output: &Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "limiter", &mut script);
    output.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::SUCCESS)
}
