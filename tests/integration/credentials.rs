//! Who the limiter is to its Redis: by a client of the program's own, or by credentials that change.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Credentials, ErrorKind, Limiter, OnError, redis};

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::support::{AMPLE, key, limit, on, place};

async fn kind(limiter: &Limiter) -> Option<ErrorKind> {
    limiter.check(&key("a"), &limit("100/10s")).await.err().map(|error| error.kind())
}

#[tokio::test]
async fn a_client_of_the_programs_own_says_where_and_as_whom() {
    let server = RedisServer::builder().tcp().user("app", "s3cret").start();
    let client = redis::Client::open(format!("{}/5", server.url())).expect("a URL");
    let builder = Limiter::builder().url("redis://127.0.0.1:1").client(client).deadline(AMPLE).on_error(OnError::Raise);
    assert!(!format!("{builder:?}").contains("s3cret"));
    let limiter = builder.connect().await.expect("the right password");
    assert_eq!(kind(&limiter).await, None);
    assert!(server.info("keyspace").contains_key("db5"));
    // Of a client and a URL, the last one counts.
    let client = redis::Client::open("redis://127.0.0.1:1").expect("a URL");
    let builder = Limiter::builder().client(client).url(&server.url());
    assert!(builder.connect().await.is_ok());
}

/// The new password is asked for when the connection is lost, and nobody starts anything anew.
#[tokio::test]
async fn a_password_that_changes_is_followed() {
    let server = RedisServer::builder().tcp().user("app", "first").start();
    let password = Arc::new(Mutex::new("first"));
    let current = Arc::clone(&password);
    let url = format!("redis://{}", place(&server));
    let builder = Limiter::builder().url(&url).deadline(AMPLE).on_error(OnError::Raise);
    let builder = builder.credentials(move || Credentials::new("app", *current.lock().expect("no panic")));
    let limiter = builder.connect().await.expect("the first password");
    assert_eq!(kind(&limiter).await, None);

    server.command(&["ACL", "SETUSER", "app", "resetpass", ">second"]);
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    eventually("refused by the old password", || async { kind(&limiter).await == Some(ErrorKind::Refused) }).await;
    *password.lock().expect("no panic") = "second";
    eventually("served by the new password", || async { kind(&limiter).await.is_none() }).await;
}

/// The URL has the user, and only the password changes; without a user it is the default one's.
#[tokio::test]
async fn a_password_alone_is_that_of_the_urls_user() {
    let named = RedisServer::builder().tcp().user("app", "s3cret").start();
    let default = RedisServer::builder().tcp().password("s3cret").start();
    for url in [format!("redis://app:old@{}", place(&named)), format!("redis://{}", place(&default))] {
        let builder = Limiter::builder().url(&url).credentials(|| Credentials::password("s3cret"));
        assert!(builder.connect().await.is_ok(), "{url}");
    }
}

#[tokio::test]
async fn a_provider_that_panics_is_an_error_until_it_does_not() {
    let server = RedisServer::builder().password("s3cret").start();
    let panics = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&panics);
    let builder = || {
        let still = Arc::clone(&still);
        on(&server).on_error(OnError::Raise).credentials(move || {
            assert!(!still.load(Ordering::SeqCst), "the program's own fault");
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
    assert_eq!(kind(&limiter).await, Some(ErrorKind::Config));
    panics.store(false, Ordering::SeqCst);
    eventually("served", || async { kind(&limiter).await.is_none() }).await;
}

/// It may ask another service, and wait for its answer; no call waits for it beyond its own deadline.
#[tokio::test]
async fn a_provider_that_blocks_holds_nobody_up() {
    let server = RedisServer::builder().password("s3cret").start();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let builder = on(&server).deadline(DEADLINE).on_error(OnError::Raise).credentials(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(1500));
        Credentials::password("s3cret")
    });
    let limiter = builder.build().expect("a URL");
    eventually("served", || async {
        let began = Instant::now();
        let served = kind(&limiter).await.is_none();
        assert!(began.elapsed() < DEADLINE + SLACK, "{:?}", began.elapsed());
        served
    })
    .await;
    // The first attempt to connect, of 1 s, did not get what it asked for: the second did.
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// It may use the limiter that it is for, like all code of the program's.
#[tokio::test]
async fn a_provider_may_ask_the_current_limiter() {
    let server = RedisServer::builder().password("s3cret").start();
    let builder = on(&server).credentials(|| {
        let decision = Limiter::current().check_blocking(&key("provider"), &limit("5/10s"));
        assert!(decision.is_ok());
        Credentials::password("s3cret")
    });
    assert!(builder.connect().await.is_ok());
}

#[tokio::test]
async fn an_embedded_store_has_no_use_for_credentials() {
    let builder = Limiter::builder().credentials(|| Credentials::password("s3cret"));
    let error = builder.build().expect_err("nobody asks for them");
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("`memory:`"), "{error}");
}
