//! The command line.

use std::time::Duration;

use clap::Parser;
use rate_limited::Limit;

/// Let services in Java and in Rust share one quota, and check that they keep it together.
#[derive(Parser)]
pub(crate) struct Options {
    /// The Redis server of both
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    pub(crate) redis: String,
    /// The limit that they share
    #[arg(long, value_name = "LIMIT", default_value = "20/s")]
    pub(crate) limit: Limit,
    /// The number of services in Java
    #[arg(long, value_name = "SERVICES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=64))]
    pub(crate) java: u32,
    /// The number of services in Rust
    #[arg(long, value_name = "SERVICES", default_value_t = 2, value_parser = clap::value_parser!(u32).range(..=64))]
    pub(crate) rust: u32,
    /// The time for which they call
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

impl Options {
    pub(crate) fn parse() -> Self {
        Parser::parse()
    }

    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
