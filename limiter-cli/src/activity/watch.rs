//! `limiter watch`: a line for the denials of each entry, as it comes.

use std::time::Duration;

use limiter_inspect::{denial_json, rule_names};
use rate_limited::{ActivityLog, DenialBurst};

use super::bursts::{place, time_of_day};
use super::top::unknown_rule;
use crate::arguments::WatchArguments;
use crate::connection::Connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, visible};

/// The time between two readings. A limiter writes at most one entry a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// Writes denials until the program is ended. A store that fails is waited for.
pub(crate) async fn watch(
    arguments: &WatchArguments,
    connection: &Connection,
    output: &Output,
) -> Result<Exit, Failure> {
    connection.require_shared("watch")?;
    let (limiter, mut log) = (connection.limiter().await?, ActivityLog::new());
    limiter.activity(&mut log).await?;
    let number = log.limiters().count();
    output.note(format_args!("{number} limiters have written activity in the last 15 min; their denials from now on:"));
    let rule = arguments.rule.as_deref().map(ActivityLog::name_of_rule);
    if let (Some(rule), true) = (&rule, number > 0)
        && !rule_names(&log).contains(&**rule)
    {
        output.warn(unknown_rule(rule, &log));
    }
    let mut has_failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        match limiter.activity(&mut log).await {
            Ok(bursts) => {
                has_failed = false;
                let is_shown = |burst: &&DenialBurst| rule.as_ref().is_none_or(|rule| *rule == burst.rule);
                bursts.iter().filter(is_shown).try_for_each(|burst| write(burst, output))?;
            }
            Err(error) if !has_failed => {
                has_failed = true;
                output.warn(format_args!("the store has failed, and is read again: {error}"));
            }
            Err(_) => {}
        }
    }
}

fn write(burst: &DenialBurst, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&denial_json(burst));
    }
    let (time, rule, place) = (time_of_day(burst.at), visible(&burst.rule), place(burst));
    let key = burst.key.as_deref().map_or("other keys".to_owned(), visible);
    output.line(format_args!("{time}  {rule}  {key}  {} denials  {place}", burst.denials))
}
