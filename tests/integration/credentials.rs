//! Tests of authentication: by a client that the program configured, and by changing credentials.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Credentials, ErrorKind, Limiter, OnError, redis};

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{LONG_DEADLINE, builder_for, key, limit, tcp_address};

async fn error_kind(limiter: &Limiter) -> Option<ErrorKind> {
    limiter.check(&key("a"), &limit("100/10s")).await.err().map(|error| error.kind())
}

#[tokio::test]
async fn configured_client_sets_the_address_and_the_user() {
    let server = RedisServer::builder().tcp().user("app", "s3cret").start();
    let client = redis::Client::open(format!("{}/5", server.url())).expect("a URL");
    let builder =
        Limiter::builder().url("redis://127.0.0.1:1").client(client).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    assert!(!format!("{builder:?}").contains("s3cret"));
    let limiter = builder.connect().await.expect("the right password");
    assert_eq!(error_kind(&limiter).await, None);
    assert!(server.info("keyspace").contains_key("db5"));
    // The last call of `client` and `url` wins.
    let client = redis::Client::open("redis://127.0.0.1:1").expect("a URL");
    let builder = Limiter::builder().client(client).url(server.url());
    assert!(builder.connect().await.is_ok());
}

/// The provider is called again when the connection is lost. The program needs no restart.
#[tokio::test]
async fn changed_password_is_used_on_reconnect() {
    let server = RedisServer::builder().tcp().user("app", "first").start();
    let password = Arc::new(Mutex::new("first"));
    let current = Arc::clone(&password);
    let url = format!("redis://{}", tcp_address(&server));
    let builder = Limiter::builder().url(&url).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    let builder = builder.credentials(move || Credentials::new("app", *current.lock().expect("no panic")));
    let limiter = builder.connect().await.expect("the first password");
    assert_eq!(error_kind(&limiter).await, None);

    server.command(&["ACL", "SETUSER", "app", "resetpass", ">second"]);
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    eventually("refused by the old password", || async { error_kind(&limiter).await == Some(ErrorKind::Refused) })
        .await;
    *password.lock().expect("no panic") = "second";
    eventually("served by the new password", || async { error_kind(&limiter).await.is_none() }).await;
}

/// The user comes from the URL. Without one, the password is that of the default user.
#[tokio::test]
async fn password_without_user_applies_to_the_user_of_the_url() {
    let named = RedisServer::builder().tcp().user("app", "s3cret").start();
    let default = RedisServer::builder().tcp().password("s3cret").start();
    for url in [format!("redis://app:old@{}", tcp_address(&named)), format!("redis://{}", tcp_address(&default))] {
        let builder = Limiter::builder().url(&url).credentials(|| Credentials::password("s3cret"));
        assert!(builder.connect().await.is_ok(), "{url}");
    }
}

#[tokio::test]
async fn panicking_provider_is_an_error_until_it_recovers() {
    let server = RedisServer::builder().password("s3cret").start();
    let panics = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&panics);
    let builder = || {
        let is_failing = Arc::clone(&is_failing);
        builder_for(&server).on_error(OnError::Raise).credentials(move || {
            assert!(!is_failing.load(Ordering::SeqCst), "a panic of the provider");
            Credentials::password("s3cret")
        })
    };
    let error = builder().connect().await.expect_err("a panic");
    assert!(
        error.kind() == ErrorKind::Config
            && error.to_string().contains("`credentials` must be a function that does not panic"),
        "{error}"
    );
    let limiter = builder().build().expect("a URL");
    assert_eq!(error_kind(&limiter).await, Some(ErrorKind::Config));
    panics.store(false, Ordering::SeqCst);
    eventually("served", || async { error_kind(&limiter).await.is_none() }).await;
}

/// A provider may block, for example on another service. No call waits for it beyond its own deadline.
#[tokio::test]
async fn blocking_provider_delays_no_call_beyond_its_deadline() {
    let server = RedisServer::builder().password("s3cret").start();
    let (running, overlaps) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&overlaps);
    let builder = builder_for(&server).deadline(DEADLINE).on_error(OnError::Raise).credentials(move || {
        counted.fetch_add(running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        sleep(Duration::from_millis(1500));
        running.fetch_sub(1, Ordering::SeqCst);
        Credentials::password("s3cret")
    });
    let limiter = builder.build().expect("a URL");
    eventually("served", || async {
        let began = Instant::now();
        let served = error_kind(&limiter).await.is_none();
        assert!(began.elapsed() < DEADLINE + MAX_LATENESS, "{:?}", began.elapsed());
        served
    })
    .await;
    // An attempt to connect ends after 1 s, before the provider does. A later one has used the result of the same call.
    assert_eq!(overlaps.load(Ordering::SeqCst), 0, "calls of the provider while another one ran");
}

/// A provider may use the limiter, like all other code of the program.
#[tokio::test]
async fn provider_may_call_the_current_limiter() {
    let server = RedisServer::builder().password("s3cret").start();
    let builder = builder_for(&server).credentials(|| {
        let decision = Limiter::current().check_blocking(&key("provider"), &limit("5/10s"));
        assert!(decision.is_ok());
        Credentials::password("s3cret")
    });
    assert!(builder.connect().await.is_ok());
}

#[tokio::test]
async fn memory_store_rejects_credentials() {
    let builder = Limiter::builder().credentials(|| Credentials::password("s3cret"));
    let error = builder.build().expect_err("the memory store needs none");
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("`memory:`"), "{error}");
}
