//! Tests of certificates set by the program.

use std::fs;

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError, Tls, redis};

use super::trusting;
use crate::deadlines::DEADLINE;
use crate::support::{key, limit};

async fn admits(limiter: &Limiter) -> bool {
    limiter.check(&key("a"), &limit("5/10s")).await.is_ok_and(|decision| decision.is_allowed())
}

#[tokio::test]
async fn configured_root_certificate_is_trusted() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let other = RedisServer::builder().tls().start();
    let both = trusting(other.ca_certificate())
        .root_certificate(fs::read(server.ca_certificate().expect("TLS")).expect("a certificate"));
    for tls in [trusting(server.ca_certificate()), both] {
        let builder = Limiter::builder().url(server.url()).tls(tls).deadline(50 * DEADLINE).on_error(OnError::Raise);
        assert!(admits(&builder.connect().await.expect("a trusted server")).await);
    }
}

#[tokio::test]
async fn client_certificate_is_sent_to_a_server_that_requires_it() {
    let server = RedisServer::builder().tls().setting("tls-auth-clients", "yes").start();
    let (certificate, key) = server.client_certificate().expect("TLS");
    let (certificate, key) = (fs::read(certificate).expect("a certificate"), fs::read(key).expect("its key"));
    let tls = trusting(server.ca_certificate()).client_certificate(certificate, key);
    let builder = Limiter::builder().url(server.url()).tls(tls).deadline(50 * DEADLINE).on_error(OnError::Raise);
    assert!(admits(&builder.connect().await.expect("a trusted client")).await);
}

/// A client configured by the program keeps its own certificates.
#[tokio::test]
async fn configured_client_keeps_its_certificates() {
    let server = RedisServer::builder().tls().user("app", "s3cret").start();
    let root_cert = fs::read(server.ca_certificate().expect("TLS")).ok();
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    let client = redis::Client::build_with_tls(server.url(), certificates).expect("a certificate");
    let builder = Limiter::builder().client(client).deadline(50 * DEADLINE).on_error(OnError::Raise);
    assert!(admits(&builder.connect().await.expect("a trusted server")).await);
}

#[test]
fn debug_form_of_tls_hides_certificates_and_keys() {
    let tls = Tls::new().root_certificate("s3cret").client_certificate("s3cret", "s3cret");
    let shown = format!("{tls:?} {:?}", Limiter::builder().tls(tls.clone()));
    assert!(!shown.contains("s3cret") && shown.contains("root_certificate: true"), "{shown}");
    // The secret must not appear as bytes either.
    assert!(!shown.contains("115"), "{shown}");
}
