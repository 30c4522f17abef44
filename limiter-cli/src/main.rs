//! The command `limiter`: the limits and the shared rules of `rate-limited`, for shell scripts and operators.

use std::env;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime;

#[expect(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]
mod arguments;
mod exit;
mod failure;
mod output;
mod bounded_input;
mod duration_text;
mod time_text;
mod suggestion;
mod connection;
mod client_network;
mod key_argument;
mod decide;
mod rules;
mod instances;
mod activity;
mod dashboard;
mod doctor;
mod bench;
mod completions;
mod manual;

use arguments::{Arguments, Subcommand};
use connection::Connection;
use exit::Exit;
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let early = Output::before_parsing(env::args_os());
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return early.report_parse_error(&arguments::with_advice(error)).code(),
    };
    let mut output = Output::new(&arguments.global);
    match run(arguments, &mut output) {
        Ok(exit) => exit.code(),
        Err(failure) => output.report(&failure).code(),
    }
}

fn run(arguments: Arguments, output: &mut Output) -> Result<Exit, Failure> {
    let runtime =
        runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| Failure::runtime(&error))?;
    let result = runtime.block_on(dispatch(arguments, output));
    // A thread that reads a terminal does not end.
    runtime.shutdown_background();
    result
}

async fn dispatch(Arguments { global, command }: Arguments, output: &mut Output) -> Result<Exit, Failure> {
    match command {
        Subcommand::Check(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::check(&arguments, &connection, output).await
        }
        Subcommand::Charge(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::charge(&arguments, &connection, output).await
        }
        Subcommand::Peek(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::peek(&arguments, &connection, output).await
        }
        Subcommand::Usage(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::usage(&arguments, &connection, output).await
        }
        Subcommand::Why(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::why(&arguments, &connection, output).await
        }
        Subcommand::Reset(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            decide::reset(&arguments, &connection, output).await
        }
        Subcommand::Rules(arguments) => rules::run(arguments, &global, output).await,
        Subcommand::Instances => {
            let connection = Connection::from_arguments(&global, output)?;
            instances::run(&connection, output).await
        }
        Subcommand::Top(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            activity::top(&arguments, &connection, output).await
        }
        Subcommand::Watch(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            activity::watch(&arguments, &connection, output).await
        }
        Subcommand::Dashboard(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            dashboard::run(&arguments, &connection, output).await
        }
        Subcommand::Doctor(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            doctor::run(&arguments, &connection, output).await
        }
        Subcommand::Bench(arguments) => {
            let connection = Connection::from_arguments(&global, output)?;
            bench::run(&arguments, &connection, output).await
        }
        Subcommand::Completions(arguments) => completions::run(&arguments, output),
        Subcommand::Man => manual::run(output),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
        assert!(Arguments::try_parse_from(["limiter", "rules", "list"]).is_ok());
    }
}
