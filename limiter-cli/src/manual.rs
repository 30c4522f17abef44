//! `limiter man`: the manual page.

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Writes the pages of all commands, one after the other, to standard output.
pub(crate) fn run(output: &Output) -> Result<Exit, Failure> {
    let mut command = Arguments::command();
    command.build();
    let mut pages = Vec::new();
    write_pages(&command, &mut pages)?;
    output.text(&String::from_utf8_lossy(&pages))?;
    Ok(Exit::SUCCESS)
}

fn write_pages(command: &Command, pages: &mut Vec<u8>) -> Result<(), Failure> {
    Man::new(command.clone()).render(pages).map_err(|error| Failure::output(&error))?;
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        write_pages(command, pages)?;
    }
    Ok(())
}
