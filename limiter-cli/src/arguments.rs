//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use clap_complete::Shell;
use rate_limited::Limit;

use crate::duration_text;

mod activity;
mod checks;
mod dashboard;
mod rules;

pub(crate) use activity::{TopArguments, WatchArguments};
pub(crate) use checks::{
    AlgorithmName, ChargeArguments, CheckArguments, KeyArguments, LimitArguments, PeekArguments, WhyArguments,
    with_advice,
};
pub(crate) use dashboard::DashboardArguments;
pub(crate) use rules::{
    ChangeArguments, FileArguments, HistoryArguments, KeysArguments, NameArguments, RollbackArguments, RulesCommand,
    SetArguments, UnsetArguments,
};

/// Rate limits from the command line: check a limit, change the shared rules, examine the store.
///
/// The URL of the store is read from RATE_LIMITED_URL, or from a file by --url-file, or is given by --url.
///
/// Exit codes: 0 done or allowed, 1 denied, 2 a wrong command line or configuration, 3 the store failed, 4 the shared
/// rules have changed meanwhile. With `check … -- CMD`, an allowed call has the code of CMD.
#[derive(Debug, Parser)]
#[command(name = "limiter", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Subcommand,
}

/// The options that all commands have.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct GlobalArguments {
    /// URL of the store, such as redis://127.0.0.1:6379 [default: RATE_LIMITED_URL]
    ///
    /// Other users can read a password here: use RATE_LIMITED_URL or --url-file.
    #[arg(long, global = true, value_name = "URL", hide_short_help = false)]
    pub(crate) url: Option<String>,
    /// File with the URL of the store
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
    /// Prefix of all keys in the store, as the service has it [default: rl]
    #[arg(long, global = true, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,
    /// File with the secret by which the service hashes its keys
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) hash_keys: Option<PathBuf>,
    /// Write results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Colours of the output; NO_COLOR and TERM=dumb are obeyed too
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

/// The use of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    /// Even into a pipe
    Always,
    /// Nowhere
    Never,
}

/// A command.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Subcommand {
    /// Take a permit, and run a program if there is one
    Check(CheckArguments),
    /// Count permits whether they fit or not, for a cost that is known afterwards
    Charge(ChargeArguments),
    /// Show the decision that `check` would make, and take nothing
    Peek(PeekArguments),
    /// Show what a key has used of each limit, and take nothing
    Usage(PeekArguments),
    /// Show the state of a key under each rule that fits it: limit and its origin, use, next call
    Why(WhyArguments),
    /// Delete the count of a key
    Reset(PeekArguments),
    /// Show and change the shared rules
    #[command(subcommand)]
    Rules(RulesCommand),
    /// List the limiters that share the store, by their heartbeats
    Instances,
    /// Show the rates of each rule, and the keys that are denied and allowed most often
    Top(TopArguments),
    /// Write denials as limiters report them
    Watch(WatchArguments),
    /// Serve a page with rates, denied keys, limiters, and edits of the shared rules
    Dashboard(DashboardArguments),
    /// Examine the store: connection, permissions, eviction, clock, latency
    Doctor(DoctorArguments),
    /// Measure decisions per second and their latencies
    Bench(BenchArguments),
    /// Write the completions of a shell to standard output
    Completions(CompletionsArguments),
    /// Write the manual page to standard output
    Man,
}

/// The arguments of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Check the permissions of an operator alone, who publishes rules and reads what limiters write
    #[arg(long)]
    pub(crate) operator: bool,
}

/// The arguments of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// Tasks that make decisions at the same time
    #[arg(long, value_name = "TASKS", default_value_t = 64, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tasks: u32,
    /// Distinct keys
    #[arg(
        long,
        value_name = "KEYS",
        default_value_t = 1000,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000)
    )]
    pub(crate) keys: u32,
    /// Limit of each key
    #[arg(long, value_name = "LIMIT", default_value = "5/10s", allow_hyphen_values = true)]
    pub(crate) limit: Limit,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
}

/// The arguments of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// Shell
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// Parses a duration, for clap.
fn duration(text: &str) -> Result<Duration, String> {
    duration_text::parse(text)
}
