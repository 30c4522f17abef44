//! A gateway to a language model: an organisation and its users have budgets of tokens.
//!
//! ```text
//! cargo run -p llm-gateway                               # sends prompts to itself, prints the budgets, and ends
//! cargo run -p llm-gateway -- --listen 127.0.0.1:3000    # serves until Ctrl-C
//! curl -N -d 'count to 20' http://127.0.0.1:3000/prompt/acme/ann
//! ```
//!
//! With `--redis redis://127.0.0.1:6379` several gateways share the budgets. Each answer first takes an estimate that it
//! cannot exceed, so no budget is exceeded. When the answer ends, or its client leaves, the call counts what it used. The
//! model is a fake one: it counts to the number in the prompt.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use clap::Parser;
use http_body_util::BodyExt;
use rate_limited::Limiter;
use tower::ServiceExt;

use crate::gateway::router;

mod gateway;
mod model;

/// A gateway to a language model with budgets of tokens.
#[derive(Parser)]
struct Options {
    /// The address to serve at. Without it the program sends prompts to itself.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// The URL of a Redis that several gateways share. Without it the budgets count in this process.
    #[arg(long)]
    redis: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let limiter = match &options.redis {
        Some(url) => Limiter::builder().url(url).connect().await?,
        None => Limiter::memory(),
    };
    limiter.install()?;
    let Some(address) = options.listen else { return demonstrate().await };
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(axum::serve(listener, router()).with_graceful_shutdown(stop).await?)
}

/// Sends prompts, and prints the answers and the budget after each.
async fn demonstrate() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    for (user, prompt, tokens_read) in [
        ("ann", "count to 20", usize::MAX),
        ("ann", "count to 400", 5),
        ("ben", "count to 400", usize::MAX),
        ("ben", "count to 400", usize::MAX),
        ("ben", "count to 400", usize::MAX),
        ("ben", "count to 400", usize::MAX),
    ] {
        let request = Request::post(format!("/prompt/acme/{user}")).body(Body::from(prompt))?;
        let response = router().oneshot(request).await?;
        let status = response.status();
        let (mut body, mut read) = (response.into_body(), 0);
        while read < tokens_read
            && let Some(frame) = body.frame().await
        {
            frame?;
            read += 1;
        }
        drop(body);
        // The settlement is on its way to a shared store.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let budget = router().oneshot(Request::get("/budget/acme").body(Body::empty())?).await?;
        let budget = budget.into_body().collect().await?.to_bytes();
        let end = match (status.is_success(), tokens_read) {
            (false, _) => "denied".to_owned(),
            (true, usize::MAX) => format!("{read} tokens"),
            (true, _) => format!("left after {read} tokens"),
        };
        let (status, budget) = (status.as_u16(), String::from_utf8_lossy(&budget));
        write!(out, "{user}: {prompt:<14} {status} {end:<20} {budget}")?;
    }
    Ok(())
}
