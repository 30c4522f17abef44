//! Certificates that the program names.

use std::fs;

use limiter_testkit::RedisServer;
use rate_limited::{Limiter, OnError, Tls, redis};

use crate::deadlines::DEADLINE;
use crate::support::{key, limit};

fn trusting(server: &RedisServer) -> Tls {
    Tls::new().root_certificate(fs::read(server.ca_certificate().expect("TLS")).expect("a certificate"))
}

async fn admits(limiter: &Limiter) -> bool {
    limiter.check(&key("a"), &limit("5/10s")).await.is_ok_and(|decision| decision.is_allowed())
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted() {
    let server = RedisServer::builder().tls().password("p@ss").start();
    let other = RedisServer::builder().tls().start();
    let both =
        trusting(&other).root_certificate(fs::read(server.ca_certificate().expect("TLS")).expect("a certificate"));
    for tls in [trusting(&server), both] {
        let builder = Limiter::builder().url(&server.url()).tls(tls).deadline(50 * DEADLINE).on_error(OnError::Raise);
        assert!(admits(&builder.connect().await.expect("a trusted server")).await);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let server = RedisServer::builder().tls().setting("tls-auth-clients", "yes").start();
    let (certificate, key) = server.client_certificate().expect("TLS");
    let (certificate, key) = (fs::read(certificate).expect("a certificate"), fs::read(key).expect("its key"));
    let tls = trusting(&server).client_certificate(certificate, key);
    let builder = Limiter::builder().url(&server.url()).tls(tls).deadline(50 * DEADLINE).on_error(OnError::Raise);
    assert!(admits(&builder.connect().await.expect("a trusted client")).await);
}

/// A client of the program's own brings its certificates along.
#[tokio::test]
async fn a_client_with_certificates_is_used_with_them() {
    let server = RedisServer::builder().tls().user("app", "s3cret").start();
    let root_cert = fs::read(server.ca_certificate().expect("TLS")).ok();
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    let client = redis::Client::build_with_tls(server.url(), certificates).expect("a certificate");
    let builder = Limiter::builder().client(client).deadline(50 * DEADLINE).on_error(OnError::Raise);
    assert!(admits(&builder.connect().await.expect("a trusted server")).await);
}

#[test]
fn debug_forms_tell_only_what_there_is() {
    let tls = Tls::new().root_certificate("s3cret").client_certificate("s3cret", "s3cret");
    let shown = format!("{tls:?} {:?}", Limiter::builder().tls(tls.clone()));
    assert!(!shown.contains("s3cret") && shown.contains("root_certificate: true"), "{shown}");
    // Nor as bytes.
    assert!(!shown.contains("115"), "{shown}");
}
