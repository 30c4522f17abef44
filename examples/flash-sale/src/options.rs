//! The command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::{Parser, value_parser};
use rate_limited::Limit;

use crate::medals::MAX_MEDALS;
use crate::sale::SALES;
use crate::shop::Limits;

/// The longest time to the first opening. Redis forgets the sales a day after the start.
const MAX_OPENS_IN: Duration = Duration::from_secs(60 * 60);

/// Sell a few items to many buyers at once, under limits by buyer and by product. Ends when all buyers have an answer.
#[derive(Parser)]
#[command(name = "flash-sale")]
pub(crate) struct Options {
    /// The Redis of the sales and of the limiter
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    pub(crate) redis: String,
    /// The number of buyers that this program runs; 0: none, and it serves until Ctrl-C
    #[arg(long, value_name = "BUYERS", default_value_t = 20_000, allow_negative_numbers = true)]
    #[arg(value_parser = value_parser!(u32).range(..=100_000))]
    pub(crate) buyers: u32,
    /// The number of items, of all sales together
    #[arg(long, value_name = "ITEMS", default_value_t = 1_000, allow_negative_numbers = true)]
    #[arg(value_parser = value_parser!(u32).range(i64::from(SALES)..=i64::from(MAX_MEDALS)))]
    pub(crate) items: u32,
    /// The address of the page and the service
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    pub(crate) listen: SocketAddr,
    /// Serve until Ctrl-C when the buyers have their answers
    #[arg(long)]
    pub(crate) stay: bool,
    /// The time to the first opening; the other sales open one second after the other
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) opens_in: Duration,
    /// The calls of one buyer that are admitted, for all sales together
    #[arg(long, value_name = "LIMIT", default_value = "3/5s")]
    buyer_limit: Limit,
    /// The calls for one product that are admitted, of all buyers together
    #[arg(long, value_name = "LIMIT", default_value = "100/s")]
    product_limit: Limit,
}

/// Reads the options, or prints the help and exits.
pub(crate) fn parse() -> Options {
    Options::parse()
}

impl Options {
    pub(crate) fn limits(&self) -> Limits {
        Limits { buyer: self.buyer_limit, product: self.product_limit }
    }
}

/// Parses a duration: a limit's window is one.
fn duration(text: &str) -> Result<Duration, String> {
    let duration = format!("1/{text}").parse().ok().map(|limit: Limit| limit.window());
    let duration = duration.filter(|duration| *duration <= MAX_OPENS_IN);
    duration.ok_or_else(|| "must be a duration up to 1h, such as `500ms`, `10s` or `1m`".to_owned())
}
