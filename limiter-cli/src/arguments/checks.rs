//! The command lines of `check`, `charge`, `peek` and `reset`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ValueEnum};
use rate_limited::{Algorithm, Limit};

use super::duration;

/// The arguments of `check`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter check nightly-report --limit 1/day -- ./report.sh
  limiter check backup --limit '1 concurrent' --wait 1h -- pg_dump shop
  limiter check user: --part 42 --limit 5/10s
  limiter check user:@42 --rule 'user:{user_id}' --wait 30s")]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    #[command(flatten)]
    pub(crate) count: CountArguments,
    /// Ends the program if its slots are lost, in place of a warning: SIGTERM, and SIGKILL after 10 s
    #[arg(long, requires = "program")]
    pub(crate) end_on_loss: bool,
    /// Program to run if the call is allowed, with its arguments; its exit code is that of the command
    #[arg(last = true, value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
}

/// The number of permits of a check, and the reaction to a denial.
#[derive(Args, Debug)]
pub(crate) struct CountArguments {
    /// Permits that the call takes
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) cost: u32,
    /// Longest time to wait for the permits, such as 30s [default: no wait]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Exit code of a denied call
    #[arg(long, value_name = "CODE", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) denied_code: u8,
}

/// The arguments of `charge`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter charge tokens: --part acme --limit 100000/day --cost 1234
  limiter charge tokens:@acme --rule 'tokens:{org}' --cost 1234")]
pub(crate) struct ChargeArguments {
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Permits to count, whether they fit or not
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cost: u32,
}

/// The arguments of `peek`, `usage` and `reset`.
#[derive(Args, Debug)]
pub(crate) struct PeekArguments {
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// The arguments of `why`.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  limiter why user:@42
  limiter why api:ip: --part 203.0.113.9 --rule api")]
pub(crate) struct WhyArguments {
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// Rule, in place of each one that fits the key
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,
    /// Plan of the customer
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<String>,
}

/// A key.
#[derive(Args)]
pub(crate) struct KeyArguments {
    /// Key in its encoding, as it is in Redis between the braces: `user:@42`
    ///
    /// A value begins with `@`. The key "user:{user_id}" of a service is `user:@42` for the value 42. So are
    /// `user: --part 42`, where --part escapes the value. A key without values is its text, such as `getId`.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Value after the text of KEY, escaped as needed; may be repeated
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) part: Vec<String>,
}

/// The key is not shown: it may be personal data.
impl std::fmt::Debug for KeyArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyArguments").finish_non_exhaustive()
    }
}

/// The limits of a call: given here, or those of a rule.
#[derive(Args, Debug)]
pub(crate) struct LimitArguments {
    /// Limit such as 5/10s, 100/min or '50 concurrent'; may be repeated: all must allow the call
    #[arg(
        long,
        value_name = "LIMIT",
        required_unless_present = "rule",
        conflicts_with = "rule",
        allow_hyphen_values = true
    )]
    pub(crate) limit: Vec<Limit>,
    /// Rule with the limits: one of the shared rules, or of --rules
    #[arg(long, value_name = "RULE")]
    pub(crate) rule: Option<String>,
    /// File with the rule, in place of the shared rules; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "rule", conflicts_with = "limit")]
    pub(crate) rules: Option<PathBuf>,
    /// Plan of the customer, one of those that the rule names
    #[arg(long, value_name = "PLAN", requires = "rule", conflicts_with = "limit")]
    pub(crate) plan: Option<String>,
    /// Algorithm of --limit, or of a rule that sets none [default: sliding_window]
    #[arg(long, value_name = "ALGORITHM", value_enum)]
    pub(crate) algorithm: Option<AlgorithmName>,
    /// Permits at once, for token_bucket and leaky_bucket [default: those of the limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) burst: Option<u32>,
}

/// Adds to the error of a command line without a limit that a rule has limits too.
pub(crate) fn with_advice(mut error: clap::Error) -> clap::Error {
    let lacks_limit = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|argument| argument.starts_with("--limit ")),
        _ => false,
    };
    if error.kind() == ErrorKind::MissingRequiredArgument && lacks_limit {
        let advice = "write `--rule RULE` instead: a shared rule, or one of a file with `--rules FILE`";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

/// The name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum AlgorithmName {
    /// Exact: at most LIMIT permits in any window
    SlidingWindow,
    /// Windows at multiples of their length
    FixedWindow,
    /// Two fixed windows, weighted
    SlidingCounter,
    /// A bucket that is refilled
    TokenBucket,
    /// Evenly spaced calls
    LeakyBucket,
}

impl AlgorithmName {
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::SlidingWindow => Algorithm::SlidingWindow,
            Self::FixedWindow => Algorithm::FixedWindow,
            Self::SlidingCounter => Algorithm::SlidingCounter,
            Self::TokenBucket => Algorithm::TokenBucket,
            Self::LeakyBucket => Algorithm::LeakyBucket,
        }
    }

    /// The name in a text of rules.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
            Self::SlidingCounter => "sliding_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
        }
    }
}
