//! A service and a client of tonic with rate limits on both sides.
//!
//! ```text
//! cargo run -p tonic-service                               # calls itself, prints the results, and ends
//! cargo run -p tonic-service -- --listen 127.0.0.1:3000    # serves until Ctrl-C or SIGTERM
//! ```
//!
//! A layer limits all calls of an address, and an attribute the quotes of a user. A denied call is `RESOURCE_EXHAUSTED`
//! with `RetryInfo`. The client in `client.rs` keeps to a limit of its own, and pauses for the time in `RetryInfo`. With
//! `--redis redis://127.0.0.1:6379` several instances count together. While Redis is down, the layer lets calls pass, and
//! a quote is `UNAVAILABLE`: each rule has a policy. `--redis redis://127.0.0.1:1` shows it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rate_limited::tower::RateLimitLayer;
use rate_limited::{Limiter, OnError, rate_limited};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::options::Options;
use crate::shop::quotes_server::{Quotes, QuotesServer};
use crate::shop::{Answer, Goods};

mod client;
mod demonstration;
mod options;
mod shop;

/// The longest time that calls may take to end after a signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

struct Shop;

#[tonic::async_trait]
impl Quotes for Shop {
    // A quote is expensive: without a count of the quotes it is not made.
    #[rate_limited(key = "quote:{user(&request)}", name = "quote", limit = "3/min", on_error = closed)]
    async fn quote(&self, request: Request<Goods>) -> Result<Response<Answer>, Status> {
        let text = format!("a quote of {} for user {}", request.get_ref().name, user(&request));
        Ok(Response::new(Answer { text }))
    }

    async fn stock(&self, request: Request<Goods>) -> Result<Response<Answer>, Status> {
        Ok(Response::new(Answer { text: format!("there is {}", request.get_ref().name) }))
    }
}

/// Returns the user of a call. A real service verifies a secret: see "Unauthenticated values" in docs/http.md.
fn user<T>(request: &Request<T>) -> &str {
    request.metadata().get("user").and_then(|value| value.to_str().ok()).unwrap_or("guest")
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // It starts without Redis too: then the policies decide.
    Limiter::builder().url(&options.redis).deadline(options.deadline()).build()?.install()?;
    let by_address = RateLimitLayer::new("address", "300/min".parse()?).on_error(OnError::Open).grpc();
    let address = options.address();
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let stop = options.stop(listener.local_addr()?)?;

    let (stopping, stopped) = oneshot::channel();
    let server = Server::builder().layer(by_address).add_service(QuotesServer::new(Shop));
    let server = server.serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server);
    tokio::select! {
        ended = &mut server => return Ok(ended??),
        () = stop => {}
    }
    let _ = stopping.send(());
    match tokio::time::timeout(SHUTDOWN_TIMEOUT, server).await {
        Ok(ended) => Ok(ended??),
        Err(_) => Ok(()), // the calls that are left end with the process
    }
}
