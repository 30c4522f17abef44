//! The command lines of `rules`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rate_limited::Limit;

use super::checks::AlgorithmName;
use super::duration;

/// A command of `rules`.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum RulesCommand {
    /// List the shared rules
    List,
    /// Show a rule
    Get(NameArguments),
    /// Change settings of a rule
    Set(SetArguments),
    /// Remove a rule, an override, or settings of one
    Unset(UnsetArguments),
    /// Edit the text of the shared rules in VISUAL or EDITOR
    Edit(EditArguments),
    /// Compare the shared rules with a file
    Diff(FileArguments),
    /// List the latest versions
    History(HistoryArguments),
    /// Publish an earlier version again
    Rollback(RollbackArguments),
    /// Publish a text without rules; a deleted key comes back
    Clear(ClearArguments),
    /// Write the text of the shared rules to standard output
    Export,
    /// Replace the shared rules by a file
    Import(ImportArguments),
    /// Check a file of rules, without a store and without the costs in the source
    Lint(FileArguments),
}

/// A rule.
#[derive(Args, Debug)]
pub(crate) struct NameArguments {
    /// Name of the rule: the attribute's `name`, or else its key as written there, such as 'user:{user_id}'
    #[arg(value_name = "RULE")]
    pub(crate) rule: String,
}

/// The arguments of `rules set`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter rules set getId 50/10s --why 'slow database'
  limiter rules set search --mode shadow
  limiter rules set 'user:{user_id}' 1000/min --match user_id=42")]
pub(crate) struct SetArguments {
    #[command(flatten)]
    pub(crate) name: NameArguments,
    /// Limits such as 50/10s; they replace all limits of the rule
    #[arg(value_name = "LIMIT")]
    pub(crate) limits: Vec<Limit>,
    /// Mode
    #[arg(long, value_name = "MODE", value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// Policy for failures of the store
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) on_error: Option<PolicyName>,
    /// Time in which the store must reply, 1ms to 60s
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) deadline: Option<Duration>,
    /// Algorithm of the limits
    #[arg(long, value_name = "ALGORITHM", value_enum)]
    pub(crate) algorithm: Option<AlgorithmName>,
    /// Permits at once, for token_bucket and leaky_bucket
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) burst: Option<u32>,
    #[command(flatten)]
    pub(crate) keys: KeysArguments,
    /// Publish a new rule although its name is nearly that of a rule which lives
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// The arguments of `rules unset`.
#[derive(Args, Debug)]
#[command(after_long_help = "Without an option that names a setting, the whole rule or override is removed.")]
pub(crate) struct UnsetArguments {
    #[command(flatten)]
    pub(crate) name: NameArguments,
    /// Remove the limits
    #[arg(long)]
    pub(crate) limit: bool,
    /// Remove the mode
    #[arg(long)]
    pub(crate) mode: bool,
    /// Remove the policy for failures
    #[arg(long)]
    pub(crate) on_error: bool,
    /// Remove the deadline
    #[arg(long)]
    pub(crate) deadline: bool,
    /// Remove the algorithm
    #[arg(long)]
    pub(crate) algorithm: bool,
    /// Remove the burst
    #[arg(long)]
    pub(crate) burst: bool,
    #[command(flatten)]
    pub(crate) keys: KeysArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// The keys of an override.
#[derive(Args, Debug)]
pub(crate) struct KeysArguments {
    /// Part of the keys of an override, such as user_id=42; may be repeated
    #[arg(long = "match", value_name = "PART=VALUE", value_parser = part, conflicts_with = "key")]
    pub(crate) matches: Vec<(String, String)>,
    /// Encoded key of an override, such as user:@42
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// The arguments of all commands that publish a version.
#[derive(Args, Debug)]
pub(crate) struct ChangeArguments {
    /// Reason, for the history
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) why: Option<String>,
    /// Author, for the history [default: $USER and the host]
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,
    /// Version that must be in force
    #[arg(long, value_name = "VERSION", allow_negative_numbers = true)]
    pub(crate) if_version: Option<u64>,
    /// Show the change and publish nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Publish without confirmation, even if the change starts new counts
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Longest wait until the limiters that live follow the change; 0s for none [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
}

/// The arguments of `rules edit`.
#[derive(Args, Debug)]
pub(crate) struct EditArguments {
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// The arguments of `rules clear`.
#[derive(Args, Debug)]
pub(crate) struct ClearArguments {
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// A file of rules.
#[derive(Args, Debug)]
pub(crate) struct FileArguments {
    /// File of rules, at most 1 MB (`lint`: 16 MB); `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// The arguments of `rules import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) file: FileArguments,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// The arguments of `rules history`.
#[derive(Args, Debug)]
pub(crate) struct HistoryArguments {
    /// Number of versions
    #[arg(short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) entries: u16,
}

/// The arguments of `rules rollback`.
#[derive(Args, Debug)]
pub(crate) struct RollbackArguments {
    /// Version to publish again, of `limiter rules history`
    #[arg(value_name = "VERSION")]
    pub(crate) version: u64,
    #[command(flatten)]
    pub(crate) change: ChangeArguments,
}

/// The name of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ModeName {
    /// Calls above the limit are denied
    Enforce,
    /// Denials are reported alone
    Shadow,
    /// Every call runs, and nothing is counted
    Off,
    /// Every call is denied
    Deny,
}

impl ModeName {
    /// The name in a text of rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Deny => "deny",
        }
    }
}

/// The name of a failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PolicyName {
    /// Calls run
    Open,
    /// Calls are denied
    Closed,
    /// A limiter of each process decides
    Standby,
    /// Calls return the error
    Raise,
}

impl PolicyName {
    /// The name in a text of rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Standby => "standby",
            Self::Raise => "raise",
        }
    }
}

fn part(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a match must be PART=VALUE: write one such as `user_id=42`".to_owned()),
    }
}
