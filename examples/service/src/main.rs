//! A web service whose rate limits are in a file and change while it runs.
//!
//! ```text
//! cargo run -p service -- --limits examples/service/limits.toml
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p service -- --limits examples/service/limits.toml
//! curl -i http://127.0.0.1:3000/quote/bob
//! ```
//!
//! The handlers call the limiter directly and do not use the attribute: they need the permits that a call took, for
//! headers and refunds.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use rate_limited::{Limiter, OnError};
use tokio::net::TcpListener;

use crate::gate::Gate;
use crate::rules_file::RulesFile;

mod rules;
mod rules_file;
mod denials;
mod gate;
mod reply;
mod handlers;
#[cfg(test)]
mod tests;

/// A web service with rate limits, which count in the Redis that the variable `REDIS_URL` names, or in this process.
#[derive(Parser)]
#[command(name = "service")]
struct Options {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// The file of the limits
    #[arg(long, value_name = "FILE", default_value = "limits.toml")]
    limits: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let options = Options::parse();

    // The rules choose the policy, and the file may change it. So the limiter reports its failures.
    let mut limiter = Limiter::builder().on_error(OnError::Raise);
    if let Ok(url) = std::env::var("REDIS_URL") {
        limiter = limiter.url(&url);
    }
    let (rules_file, rules) = RulesFile::open(options.limits).await?;
    let gate = Gate::new(limiter.build()?, rules)?;
    tokio::spawn(rules_file.watch());

    let listener = TcpListener::bind(options.listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    serve(listener, gate, ctrl_c()).await?;
    Ok(())
}

/// Serves until `stop` is done, and then ends the requests in flight.
async fn serve(listener: TcpListener, gate: Gate, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    axum::serve(listener, handlers::router(Arc::new(gate))).with_graceful_shutdown(stop).await
}

async fn ctrl_c() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::error!(%error, "ctrl-c cannot be received: shutting down");
    }
}
