//! A web service with rate limits: by address, by user, for all requests, and one on a handler.
//!
//! ```text
//! cargo run -p axum-service                               # sends requests to itself, prints the answers, and ends
//! cargo run -p axum-service -- --listen 127.0.0.1:3000    # serves until Ctrl-C or SIGTERM
//! curl -i -H 'x-forwarded-for: 192.0.2.1' -H 'authorization: Bearer 7' http://127.0.0.1:3000/quote
//! ```
//!
//! With `--redis redis://127.0.0.1:6379` several instances count together. `rules.toml` has the limits in force: change
//! them while the service runs. A denied request gets 429 with the fields of its limit and a problem text. The address
//! is the one that the proxy in front of the service adds to `X-Forwarded-For`. `/metrics` is for Prometheus, and
//! `/readyz` answers 503 while the store is down. Where instances should serve by the standby limiter meanwhile, it
//! should not: see "Check readiness" in docs/operations.md.

use axum::routing::{get, post};
use axum::{Extension, Router, http, middleware};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use rate_limited::tower::{self, ClientIp, Everyone, RateLimitLayer};
use rate_limited::{Denied, HealthState, Limiter, metrics, rate_limited};

use crate::authentication::{User, authenticate};

mod authentication;
mod options;

async fn quote(Extension(user): Extension<User>) -> String {
    format!("a quote for user {}\n", user.id)
}

async fn order(Extension(user): Extension<User>, goods: String) -> String {
    format!("user {} orders {goods}\n", user.id)
}

#[rate_limited(key = "report:{id}", name = "report", limit = "3/min")]
async fn report(Extension(User { id }): Extension<User>) -> Result<String, Denied> {
    Ok(format!("a long report for user {id}\n"))
}

async fn readyz() -> http::StatusCode {
    let is_up = Limiter::current().health().state == HealthState::Up;
    if is_up { http::StatusCode::OK } else { http::StatusCode::SERVICE_UNAVAILABLE }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options::parse();
    // Before the limiter, whose series else stay silent.
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &metrics::STORE_BUCKETS)?
        .install_recorder()?;
    // A request passes the layers from the last one to the first. So one that the limit of its client denies takes
    // nothing from the quota of all.
    let router = Router::new()
        .route("/quote", get(quote))
        .route("/order", post(order))
        .route("/report", get(report))
        .layer(RateLimitLayer::new("service", "1000/s".parse()?).key(Everyone))
        .layer(RateLimitLayer::new("user", "20/min".parse()?).key(tower::Extension::new(|user: &User| user.id)))
        .layer(middleware::map_request(authenticate))
        .layer(
            RateLimitLayer::new("address", "300/min".parse()?)
                .key(ClientIp::x_forwarded_for(1).only_from(&options.proxies)?),
        )
        .layer(
            tower_http::cors::CorsLayer::permissive()
                .expose_headers(rate_limited::http::FIELD_NAMES.map(http::HeaderName::from_static)),
        )
        .route("/metrics", get(async move || prometheus.render()))
        .route("/readyz", get(readyz));
    // After the layers: the file may name only rules that the program has by then.
    Limiter::builder().url(&options.redis).rules_file(&options.rules).build()?.install()?;

    let listener = tokio::net::TcpListener::bind(options.address()).await?;
    let stop = options.stop(listener.local_addr()?)?;
    let service = router.into_make_service_with_connect_info::<std::net::SocketAddr>();
    Ok(axum::serve(listener, service).with_graceful_shutdown(stop).await?)
}
