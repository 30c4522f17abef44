//! The arguments of `top` and `watch`.

use std::time::Duration;

use clap::Args;

use super::duration;

/// The arguments of `top`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter top
  limiter top --denied --rule search -n 50
  limiter top --key @42
  limiter top --json | jq '.denied[0]'")]
pub(crate) struct TopArguments {
    /// Show the denied keys alone, and the rules that deny most first
    #[arg(long)]
    pub(crate) denied: bool,
    /// Rule, in place of all
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,
    /// Part of a key, as Redis has it: keys without it are left out
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Most rows of each table
    #[arg(
        short = 'n',
        long,
        value_name = "ROWS",
        default_value_t = 20,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) rows: u32,
    /// Time between two readings on a terminal, 100 ms to 1 h
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    pub(crate) every: Duration,
    /// Read once, on a terminal too
    #[arg(long)]
    pub(crate) once: bool,
}

/// The arguments of `watch`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter watch
  limiter watch --rule search --json | jq -r .key")]
pub(crate) struct WatchArguments {
    /// Rule, in place of all
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,
}

/// Parses the time between two readings, for clap.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        return Ok(interval);
    }
    Err("it must be from 100 ms to 1 h: write one such as `2s`".to_owned())
}
