//! Tests of connections with TLS. Some are in child processes, because environment variables name the certificates that a
//! process trusts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{ErrorKind, Limiter, OnError, Source, Tls};

use crate::child_process;
use crate::deadlines::{DEADLINE, MAX_LATENESS};
use crate::support::{key, limit};

mod options;
mod topologies;
mod versions;

/// The environment variable that names the file of trusted certificates.
const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// Returns options that trust the authority whose certificate is in this file, and no other.
fn trusting(ca_certificate: Option<PathBuf>) -> Tls {
    Tls::new().root_certificate(fs::read(ca_certificate.expect("TLS")).expect("a certificate"))
}

#[test]
fn trusted_certificate_is_accepted() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let trusted = server.ca_certificate().expect("a certificate");
    let trusted = trusted.to_str().expect("a path that is text");
    let by_name = server.url().replace("127.0.0.1", "localhost");
    for url in [&*server.url(), &*by_name] {
        assert!(url.starts_with("rediss://"));
        child_process::run("tls::connect_to_trusted_server", &[("SERVER", url), (CERTIFICATES_VARIABLE, trusted)]);
    }
}

#[test]
fn untrusted_certificate_is_refused() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let stranger = RedisServer::builder().tls().start();
    let foreign = stranger.ca_certificate().expect("a certificate");
    let (url, foreign) = (server.url(), foreign.to_str().expect("a path that is text"));
    child_process::run("tls::connect_to_untrusted_server", &[("SERVER", &url)]);
    child_process::run("tls::connect_to_untrusted_server", &[("SERVER", &*url), (CERTIFICATES_VARIABLE, foreign)]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn connect_to_trusted_server() {
    if !child_process::is_child() {
        return;
    }
    let builder = Limiter::builder().url(child_process::variable("SERVER")).deadline(50 * DEADLINE);
    let limiter = builder.connect().await.expect("a trusted server");
    let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("a permit is free").source(), Source::Store);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn connect_to_untrusted_server() {
    if !child_process::is_child() {
        return;
    }
    let url = child_process::variable("SERVER");
    let started = Instant::now();
    let error = Limiter::connect(&url).await.expect_err("no trusted server");
    assert!(started.elapsed() < 4 * MAX_LATENESS, "{:?}", started.elapsed());
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Refused, false), "{error}");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    // Each attempt to connect reads all of the system's certificates. No call waits for that.
    let limiter = Limiter::builder().url(&url).deadline(DEADLINE).on_error(OnError::Raise).build().expect("a URL");
    for _ in 0..30 {
        let started = Instant::now();
        limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no trusted server");
        assert!(started.elapsed() < DEADLINE + MAX_LATENESS, "{:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
