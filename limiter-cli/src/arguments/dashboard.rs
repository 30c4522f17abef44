//! The arguments of `dashboard`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `dashboard`.
#[derive(Args)]
#[command(after_long_help = "Without a token the page has rates and counts alone. The token is in a file, or in
LIMITER_DASHBOARD_TOKEN: other users of the machine can read the arguments of a program.

Examples:
  limiter dashboard
  limiter dashboard --token-file token --operator-url \"$OPERATOR_URL\"")]
pub(crate) struct DashboardArguments {
    /// Address of the page; beyond loopback it needs a token and --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8088")]
    pub(crate) listen: SocketAddr,
    /// File with the token that shows keys, hosts and rules [default: LIMITER_DASHBOARD_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// URL by which rules are edited, with an operator's user; without it nothing is edited
    #[arg(long, value_name = "URL", conflicts_with = "operator_url_file")]
    pub(crate) operator_url: Option<String>,
    /// File with the URL by which rules are edited
    #[arg(long, value_name = "FILE")]
    pub(crate) operator_url_file: Option<PathBuf>,
    /// Name by which browsers reach the page, such as limits.example.com; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Listen beyond loopback without TLS, which a proxy must have
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// The URL is not shown: it may contain a password.
impl std::fmt::Debug for DashboardArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DashboardArguments").field("listen", &self.listen).finish_non_exhaustive()
    }
}
