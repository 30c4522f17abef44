//! `limiter rules`: the shared rules in the store.

use rate_limited::SharedRules;

use crate::arguments::{GlobalArguments, RulesCommand};
use crate::connection::Connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

mod rule_text;
mod rule_edit;
mod diff_text;
mod validity;
mod idle_overrides;
mod author;
mod confirmation;
mod reading;
mod in_force;
mod live_names;
mod publication;
mod list;
mod get;
mod set;
mod unset;
mod edit;
mod history;
mod transfer;
mod lint;

use publication::Publication;

/// Runs a command of `rules`.
pub(crate) async fn run(command: RulesCommand, global: &GlobalArguments, output: &Output) -> Result<Exit, Failure> {
    // Files are read before the store is used: their mistakes are found without one.
    let file = match &command {
        RulesCommand::Lint(arguments) => return lint::run(arguments, output),
        RulesCommand::Edit(_) => {
            confirmation::require_terminal("rules edit")?;
            None
        }
        RulesCommand::Import(arguments) => Some(transfer::read(&arguments.file)?),
        RulesCommand::Diff(arguments) => Some(transfer::read(arguments)?),
        RulesCommand::Set(arguments) => {
            set::check(arguments)?;
            None
        }
        _ => None,
    };
    let file = file.unwrap_or_default();
    let connection = Connection::from_arguments(global, output)?;
    connection.require_shared("rules")?;
    let limiter = connection.limiter().await?;
    let shared = SharedRules::new(&limiter);
    match command {
        RulesCommand::History(arguments) => return history::list(&arguments, &shared, output).await,
        RulesCommand::Rollback(arguments) => return history::rollback(&arguments, &limiter, output).await,
        _ => {}
    }
    let published = reading::read(&shared).await?;
    let publication = async |change| Publication::new(&limiter, &shared, &published, change, output).await;
    match command {
        RulesCommand::List => list::run(&published, output),
        RulesCommand::Get(arguments) => get::run(&arguments, &published, output),
        RulesCommand::Set(arguments) => set::run(&arguments, &publication(&arguments.change).await).await,
        RulesCommand::Unset(arguments) => unset::run(&arguments, &publication(&arguments.change).await).await,
        RulesCommand::Edit(arguments) => edit::run(&publication(&arguments.change).await).await,
        RulesCommand::Clear(arguments) => transfer::clear(&publication(&arguments.change).await).await,
        RulesCommand::Export => transfer::export(&published, output),
        RulesCommand::Import(arguments) => publication(&arguments.change).await.publish(&file).await,
        RulesCommand::Diff(_) => transfer::diff(&published, &file, output),
        RulesCommand::History(_) | RulesCommand::Rollback(_) | RulesCommand::Lint(_) => Ok(Exit::SUCCESS),
    }
}
