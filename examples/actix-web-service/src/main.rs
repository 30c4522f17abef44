//! A web service of actix-web with rate limits: by address, and by user on two handlers.
//!
//! ```text
//! cargo run -p actix-web-service                               # sends requests to itself, prints the answers, and ends
//! cargo run -p actix-web-service -- --listen 127.0.0.1:3000    # serves until Ctrl-C or SIGTERM
//! curl -i -H 'x-user: 7' http://127.0.0.1:3000/quote
//! ```
//!
//! With `--redis redis://127.0.0.1:6379` several instances count together. `rate-limited` has no feature for actix-web:
//! `rejection.rs` makes a denial a response, and `address.rs` is the middleware. While Redis is down, `/quote` is served
//! and a report is answered with 503: each rule has a policy. `--redis redis://127.0.0.1:1` shows it.

use std::error::Error;
use std::process::ExitCode;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpRequest, HttpServer, get, web};
use rate_limited::{Limit, Limiter, rate_limited};

use crate::options::Options;
use crate::rejection::Rejection;

mod address;
mod demonstration;
mod options;
mod rejection;

/// A fresh quote for a user. Beyond the limit the user gets the one of today.
#[get("/quote")]
#[rate_limited(key = "quote:{user(&request)}", name = "quote", limit = "3/min", fallback = quote_of_today, on_error = open)]
async fn quote(request: HttpRequest) -> String {
    format!("a fresh quote for user {}\n", user(&request))
}

async fn quote_of_today(_: HttpRequest) -> String {
    "the quote of today\n".to_owned()
}

/// A report is expensive: without a count of the reports it is not made.
///
/// A real service checks that the caller is this user. Otherwise anyone uses up the quota of another one.
#[get("/users/{id}/report")]
#[rate_limited(key = "report:{id}", name = "report", limit = "5/h", on_error = closed)]
async fn report(id: web::Path<u64>) -> Result<String, Rejection> {
    Ok(format!("a long report for user {id}\n"))
}

/// Returns the user of a request. A real service verifies a secret: see "Unauthenticated values" in docs/http.md.
fn user(request: &HttpRequest) -> &str {
    request.headers().get("x-user").and_then(|header| header.to_str().ok()).unwrap_or("guest")
}

#[actix_web::main]
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
    let by_address = web::Data::new("300/min".parse::<Limit>()?);
    // The factory runs once for each worker. All of them use the limiter of the process.
    let app = move || {
        App::new().app_data(by_address.clone()).wrap(from_fn(address::limit_address)).service(quote).service(report)
    };
    let address = options.address();
    let server = HttpServer::new(app).workers(2).shutdown_timeout(1);
    let server = server.bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let stop = options.stop(server.addrs()[0])?;
    Ok(server.shutdown_signal(stop).run().await?)
}
