//! A flash sale: many buyers, a few items, a page, and a leaderboard.
//!
//! ```text
//! cargo run -p flash-sale                                        # 20 000 buyers, 1 000 items; ends by itself
//! cargo run -p flash-sale -- --stay --listen 127.0.0.1:3000      # the same, and the page until Ctrl-C
//! cargo run -p flash-sale -- --buyers 0 --listen 127.0.0.1:3000  # without buyers: buy on the page
//! ```
//!
//! It needs a Redis, at `redis://127.0.0.1:6379` unless `--redis` names another one. The opening times are in a sorted
//! set, which is read twice a second and may be changed while the program runs. One script sells an item
//! (`store/buy.lua`). Before it, each purchase passes two limits: one of its buyer, one of the product (`shop.rs`). A
//! call that they deny gets the degrade answer: 429, with the time after which it may be sent again.
//!
//! While Redis is away, the limiter's policy `closed` admits no call. Such calls get 503, after at most the deadline of
//! a decision. The limiter connects again by itself (docs/reliability.md). A purchase whose reply is lost may have sold
//! an item, so the buyer sends it again with the same request id, and learns which item it has. With `appendonly yes`
//! and `appendfsync always` a Redis that is killed keeps all sales and permits. Without, the sales end with it.
//!
//! The buyers are clients of the service's own port. At the end an audit compares their records with Redis, and the
//! program prints what is wrong: all numbers must be 0, or it ends with code 1. A Redis that has lost the sales is an
//! error. Items that an operator adds meanwhile count as oversold.
//!
//! A buyer is the id in the body of a call, which nothing verifies: whoever invents ids buys with each of them, and has a
//! fresh quota with each. A real shop takes the buyer from a log-in: see "Unauthenticated values" in docs/http.md.

use std::error::Error;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rate_limited::{ErrorKind, Limiter};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tokio::sync::watch;

use crate::board::{Board, Publisher};
use crate::options::Options;
use crate::shop::Shop;
use crate::store::Store;

mod answer;
mod audit;
mod board;
mod buyers;
mod medals;
mod options;
mod sale;
mod shop;
mod sold_out;
mod store;
mod storm;
mod totals;
mod web;

/// The longest time of a decision.
const DECISION_DEADLINE: Duration = Duration::from_secs(2);

/// Runs the program with the options of its command line. Tests of the page run it from a package of their own.
#[tokio::main]
pub async fn main() -> ExitCode {
    match run(&options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("flash-sale: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the audit found no faults.
async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    // A port in use leaves nothing in Redis.
    let listener = TcpListener::bind(options.listen).await;
    let listener =
        listener.map_err(|error| format!("cannot listen on {}: {error}: use another --listen", options.listen))?;
    let address = listener.local_addr()?;
    let shop = Arc::new(open(options).await?);
    let publisher = Publisher::start(Arc::clone(&shop)).await?;
    println!("listening on http://{address}");
    tokio::spawn(publisher.run());
    tokio::spawn(axum::serve(listener, web::router(Arc::clone(&shop))).into_future());

    let mut interrupt = pin!(ctrl_c());
    let is_correct = options.buyers == 0
        || tokio::select! {
            _ = &mut interrupt => return Err("interrupted before all buyers had their answers".into()),
            result = storm::run(&shop, address, options.buyers) => result?,
        };
    if options.stay || options.buyers == 0 {
        tokio::select! {
            interrupted = &mut interrupt => interrupted?,
            () = show_pages(&shop) => {}
        }
    }
    Ok(is_correct)
}

/// Prints the number of open pages whenever it changes.
async fn show_pages(shop: &Shop) {
    let (mut states, mut shown) = (shop.board.subscribe(), 0);
    while states.changed().await.is_ok() {
        let pages = shop.totals.read().pages;
        if pages != shown {
            println!("{pages} pages open");
            shown = pages;
        }
    }
}

/// Connects the limiter. Its deadline is generous, as the buyers use the same processors.
async fn limiter(options: &Options) -> Result<Limiter, rate_limited::Error> {
    Limiter::builder().url(&options.redis).deadline(DECISION_DEADLINE).connect().await
}

/// Connects, and creates the sales.
async fn open(options: &Options) -> Result<Shop, Box<dyn Error>> {
    let remedy = "start one with `redis-server`, or name another one with --redis";
    let limiter = limiter(options).await.map_err(|error| match error.kind() {
        ErrorKind::Config => error.to_string(),
        _ => format!("{error}: {remedy}"),
    })?;
    limiter.install()?;
    let (run, sales) = (format!("{:016x}", fastrand::u64(..)), sale::plan(options.items, options.opens_in));
    let store = Store::create(&options.redis, &run, &sales).await.map_err(|error| match error.kind() {
        redis::ErrorKind::InvalidClientConfig => {
            "the sales need one Redis: --redis must be `redis://host:port` or `redis+unix:///path`".to_owned()
        }
        _ => format!("the sales cannot be created in Redis: {error}: {remedy}"),
    })?;
    let board = watch::Sender::new(Arc::new(Board::empty()));
    Ok(Shop { run, sales, limits: options.limits(), store, totals: totals::Totals::default(), board })
}
