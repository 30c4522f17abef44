//! A web service whose rate limits are in a file and change while it runs.
//!
//! ```text
//! cargo run -p service -- --limits examples/service/limits.toml
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p service -- --limits examples/service/limits.toml
//! curl -i http://127.0.0.1:3000/quote/bob
//! ```
//!
//! The attributes in `handlers.rs` have the names and keys of the limits, and `limits.toml` has their numbers.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use clap::Parser;
use rate_limited::{Builder, Limiter, Source};
use tokio::net::TcpListener;

use crate::denials::Denials;

mod denials;
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
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    let denials = Arc::new(Denials::default());
    limiter(Limiter::builder().url(url), &options.limits, &denials)?.install()?;

    let listener = TcpListener::bind(options.listen).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    serve(listener, handlers::router(denials), ctrl_c()).await?;
    Ok(())
}

/// Creates a limiter with the limits of a file, whose denials are counted.
///
/// # Errors
/// The file or the URL cannot be used.
fn limiter(builder: Builder, limits: &Path, denials: &Arc<Denials>) -> Result<Limiter, rate_limited::Error> {
    let (denied_calls, shadowed_calls) = (Arc::clone(denials), Arc::clone(denials));
    builder
        .rules_file(limits)
        .expose_keys()
        .on_denied(move |denied| {
            // A call that is denied because the store failed is not the user's fault.
            if denied.source() != Source::Policy {
                // The user is in the key: `quote:@bob`.
                let user = denied.key().and_then(|key| key.split_once('@')).map(|(_, user)| user);
                denied_calls.count(denied.name(), user);
            }
        })
        .on_shadowed(move |denied| shadowed_calls.count_in_shadow(denied.name()))
        .build()
}

/// Serves until `stop` is done, and then ends the requests in flight.
async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn ctrl_c() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::error!(%error, "ctrl-c cannot be received: shutting down");
    }
}
