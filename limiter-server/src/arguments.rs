//! The command line and the environment. Values are texts here: `settings` reads them, and reports every mistake.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};

/// The decision service of `rate-limited`: exact limits for gateways, scripts and every language.
#[derive(Debug, Default, Parser)]
#[command(name = "limiter-server", version, about, max_term_width = 120)]
pub(crate) struct Arguments {
    /// URL of the store, such as `redis://127.0.0.1:6379`. Without one, and without `RATE_LIMITED_URL`, this process alone counts.
    #[arg(long, env = "LIMITER_URL", hide_env_values = true)]
    pub(crate) url: Option<String>,

    /// File of rules, which may change while the server runs.
    #[arg(long, env = "LIMITER_RULES", value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,

    /// Follow the rules in the store, which come before the file.
    #[arg(long, env = "LIMITER_SHARED_RULES", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) shared_rules: bool,

    /// File in which the shared rules are kept, for a start without the store.
    #[arg(long, env = "LIMITER_SHARED_RULES_CACHE", value_name = "FILE")]
    pub(crate) shared_rules_cache: Option<PathBuf>,

    /// Address of HTTP: an IP address with a port, or `unix:` and a path. The default is `127.0.0.1:8080`.
    #[arg(long, env = "LIMITER_HTTP", value_name = "ADDRESS")]
    pub(crate) http: Option<String>,

    /// Address of RESP, for clients of Redis, as that of HTTP; or `off`. The default is `127.0.0.1:6390`.
    #[arg(long, env = "LIMITER_RESP", value_name = "ADDRESS")]
    pub(crate) resp: Option<String>,

    /// File or directory of Envoy's rate limit service: its YAML, each file with a `domain`. May be repeated; in the environment
    /// several are separated by commas. They may change while the server runs.
    #[arg(long, env = "LIMITER_ENVOY_CONFIG", value_name = "FILE|DIR", value_delimiter = ',')]
    pub(crate) envoy_config: Vec<PathBuf>,

    /// Address of gRPC for Envoy, or `off`. The default is `127.0.0.1:8081` with an `--envoy-config`, and else `off`.
    #[arg(long, env = "LIMITER_GRPC", value_name = "ADDRESS")]
    pub(crate) grpc: Option<String>,

    /// File with the token that each call needs. Others must not be able to read it.
    #[arg(long, env = "LIMITER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// File with the secret that signs receipts. Servers that settle each other's calls share it.
    #[arg(long, env = "LIMITER_RECEIPT_SECRET_FILE", value_name = "FILE")]
    pub(crate) receipt_secret_file: Option<PathBuf>,

    /// Header that has a part of the key for `/v1/auth`, such as `user_id=x-user-id`, or `search/user_id=x-user-id` for one
    /// rule. May be repeated; in the environment several are separated by commas.
    #[arg(long, env = "LIMITER_HEADER", value_name = "[RULE/]PART=HEADER", value_delimiter = ',')]
    pub(crate) header: Vec<String>,

    /// Permit calls with limits of their own.
    #[arg(long, env = "LIMITER_ALLOW_LIMITS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) allow_limits: bool,

    /// Longest wait that a call may demand, `0s` to `60s`. The default is `1s`.
    #[arg(long, env = "LIMITER_MAX_WAIT", value_name = "DURATION")]
    pub(crate) max_wait: Option<String>,

    /// Time in which the store must reply, `1ms` to `60s`. The default is `100ms`.
    #[arg(long, env = "LIMITER_DEADLINE", value_name = "DURATION")]
    pub(crate) deadline: Option<String>,

    /// Prefix of the keys in the store, as the programs that share it have. The default is `rl`.
    #[arg(long, env = "LIMITER_PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Most connections at once, 1 to 1000000. The default is 10000.
    #[arg(long, env = "LIMITER_MAX_CONNECTIONS", value_name = "NUMBER")]
    pub(crate) max_connections: Option<String>,

    /// Permit an address that other machines reach, without a token.
    #[arg(long, env = "LIMITER_INSECURE", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) insecure: bool,

    /// Report every mistake of the settings and of the file of rules, and end: status 0 without one, 2 with some.
    #[arg(long)]
    pub(crate) check: bool,
}
