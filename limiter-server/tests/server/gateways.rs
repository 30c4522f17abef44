//! The gateways of docs/gateways, by the configurations of those pages.
//!
//! A gateway is the program in `RATE_LIMITED_NGINX`, `RATE_LIMITED_CADDY` and so on, or in `PATH`. A test of one that is missing
//! is skipped, and fails where `CI` is `true`.

use std::time::{Duration, Instant};

use crate::support::Received;

#[path = "gateways/caddy.rs"]
mod caddy;
#[path = "gateways/envoy.rs"]
mod envoy;
#[path = "gateways/haproxy.rs"]
mod haproxy;
#[path = "gateways/nginx.rs"]
mod nginx;
#[path = "gateways/page.rs"]
mod page;
#[path = "gateways/process.rs"]
mod process;
#[path = "gateways/service.rs"]
mod service;
#[path = "gateways/traefik.rs"]
mod traefik;

use process::Gateway;
use service::Service;

/// The address of the client that the gateways see.
const CLIENT: &str = "127.0.0.1";

/// The time that a slow service takes.
const SLOW: Duration = Duration::from_millis(1_500);

/// Sends a request as a client that names another address, in each field that may have one.
async fn ask(gateway: &Gateway) -> Received {
    let forged = "GET /page HTTP/1.1\r\nx-client-ip: 192.0.2.1\r\nx-real-ip: 192.0.2.2\r\nforwarded: for=192.0.2.3";
    gateway.ask(forged).await
}

/// Returns the answer with the time that it took.
async fn timed(gateway: &Gateway) -> (Received, Duration) {
    let begin = Instant::now();
    (ask(gateway).await, begin.elapsed())
}

/// Checks that two requests of this client get in and that the third is denied with all fields. Returns the three answers.
async fn limits(gateway: &Gateway, service: &Service) -> [Received; 3] {
    let answers = [ask(gateway).await, ask(gateway).await, ask(gateway).await];
    for (received, remaining) in answers.iter().zip([1, 0]) {
        assert_eq!((received.status, &*received.body), (200, "app"), "{remaining} left: {received:?}");
    }
    let denied = &answers[2];
    assert_eq!(denied.status, 429, "{denied:?}");
    let retry_after: u64 = denied.field("retry-after").parse().expect("seconds");
    assert!((1..=3_600).contains(&retry_after), "{denied:?}");
    assert!(denied.field("ratelimit").starts_with(r#""search";r=0;t="#), "{denied:?}");
    assert_eq!(denied.field("ratelimit-policy"), r#""search";q=2;w=3600"#, "{denied:?}");
    assert!(denied.body.starts_with('{'), "{denied:?}");
    assert_eq!(service.remaining(CLIENT).await, 0, "the client's own address is counted");
    answers
}

/// Checks that an admitted answer has the fields of the service.
fn has_fields(received: &Received, remaining: u32) {
    assert!(received.field("ratelimit").starts_with(&format!(r#""search";r={remaining};t="#)), "{received:?}");
    assert_eq!(received.field("ratelimit-policy"), r#""search";q=2;w=3600"#, "{received:?}");
}
