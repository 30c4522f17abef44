//! `rediss://`, in processes of their own: the certificates that a process trusts are named by its environment.

use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{ErrorKind, Limiter, OnError, Source};

use crate::child;
use crate::deadlines::{DEADLINE, SLACK};
use crate::support::{key, limit};

mod options;

/// What rustls reads trusted certificates from instead of the system's.
const TRUSTED: &str = "SSL_CERT_FILE";

#[test]
fn a_server_with_a_trusted_certificate_is_talked_to() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let trusted = server.ca_certificate().expect("a certificate");
    let trusted = trusted.to_str().expect("a path that is text");
    let by_name = server.url().replace("127.0.0.1", "localhost");
    for url in [&*server.url(), &*by_name] {
        assert!(url.starts_with("rediss://"));
        child::run("tls::talks", &[("SERVER", url), (TRUSTED, trusted)]);
    }
}

#[test]
fn a_server_with_a_strange_certificate_is_refused() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let stranger = RedisServer::builder().tls().start();
    let strange = stranger.ca_certificate().expect("a certificate");
    let (url, strange) = (server.url(), strange.to_str().expect("a path that is text"));
    child::run("tls::refuses", &[("SERVER", &url)]);
    child::run("tls::refuses", &[("SERVER", &*url), (TRUSTED, strange)]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn talks() {
    if !child::is_one() {
        return;
    }
    let builder = Limiter::builder().url(&child::variable("SERVER")).deadline(50 * DEADLINE);
    let limiter = builder.connect().await.expect("a trusted server");
    let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("a place is free").source(), Source::Store);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn refuses() {
    if !child::is_one() {
        return;
    }
    let url = child::variable("SERVER");
    let asked = Instant::now();
    let error = Limiter::connect(&url).await.expect_err("no trusted server");
    assert!(asked.elapsed() < 4 * SLACK, "{:?}", asked.elapsed());
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Refused, false), "{error}");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    // Each attempt reads all of the system's certificates, which no call waits for.
    let limiter = Limiter::builder().url(&url).deadline(DEADLINE).on_error(OnError::Raise).build().expect("a URL");
    for _ in 0..30 {
        let asked = Instant::now();
        limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no trusted server");
        assert!(asked.elapsed() < DEADLINE + SLACK, "{:?}", asked.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
