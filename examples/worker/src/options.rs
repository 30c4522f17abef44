//! The command line.

use clap::Parser;
use http::Uri;
use rate_limited::Limit;

/// Send jobs to the API of a partner, under the partner's limit.
#[derive(Parser)]
pub(crate) struct Options {
    /// The partner's URL; default: a partner in this process
    #[arg(long, value_name = "URL")]
    pub(crate) partner: Option<Uri>,
    /// The limit of the partner, for all workers together
    #[arg(long, value_name = "LIMIT", default_value = "10/s")]
    pub(crate) limit: Limit,
    /// The store that the workers share
    #[arg(long, value_name = "URL", default_value = "memory:")]
    pub(crate) redis: String,
    /// The number of jobs
    #[arg(long, value_name = "JOBS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) jobs: u32,
    /// The number of tasks that send jobs
    #[arg(long, value_name = "TASKS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) tasks: u32,
}

pub(crate) fn parse() -> Options {
    Options::parse()
}
