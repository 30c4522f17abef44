//! Host names whose look-up never ends.

use std::fs;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use limiter_testkit::{HangingNames, RedisServer};
use rate_limited::{Credentials, ErrorKind, Limiter, OnError, Source};
use tokio::time::sleep;

use crate::child;
use crate::fake::Fake;
use crate::support::{key, limit, place};

#[test]
fn a_name_that_hangs_costs_one_thread_however_many_limiters_look_it_up() {
    let names = HangingNames::build();
    let (variable, library) = names.environment();
    child::run("lookups::looks_up_a_name_that_hangs", &[(variable, library)]);
}

#[test]
fn a_sentinel_whose_name_hangs_stops_no_other() {
    let (names, server) = (HangingNames::build(), RedisServer::builder().tcp().start());
    let sentinel = Fake::naming(place(&server).port());
    let (variable, library) = names.environment();
    let address = sentinel.address().to_string();
    let variables = [(variable, library.as_os_str()), ("SENTINEL", address.as_ref())];
    child::run("lookups::follows_the_sentinel_that_has_an_address", &variables);
}

/// How many threads of this process have names that begin so.
fn threads(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("a directory of threads").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "not {what} within 30 s");
        sleep(Duration::from_millis(5)).await;
    }
}

const LIMITERS: u32 = 8;
const ATTEMPTS: u32 = 3 * LIMITERS;

#[tokio::test]
#[ignore = "needs a process of its own, for its look-ups and its threads"]
async fn looks_up_a_name_that_hangs() {
    if !child::is_one() {
        return;
    }
    panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    // Each attempt to connect begins with this.
    let attempts = Arc::new(AtomicU32::new(0));
    let build = |url: &str| {
        let attempts = Arc::clone(&attempts);
        let provider = move || {
            attempts.fetch_add(1, Ordering::SeqCst);
            Credentials::password("s3cret")
        };
        let builder = Limiter::builder().url(url).on_error(OnError::Raise).credentials(provider);
        builder.build().expect("a URL")
    };
    let urls = ["redis://one.hangs.test", "rediss://one.hangs.test", "redis-cluster://one.hangs.test"];
    let limiters: Vec<_> = urls.iter().cycle().take(LIMITERS as usize).map(|url| build(url)).collect();
    wait_until("tried often enough", || attempts.load(Ordering::SeqCst) >= ATTEMPTS).await;
    wait_until("idle", || threads("tokio-") == 0).await;
    assert_eq!(threads("rate-limited-dn"), 1);
    for limiter in &limiters {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no address");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("the lookup of the host name did not end within"), "{error}");
    }
    drop(limiters);
    wait_until("ended", || threads("rate-limited") == 1).await;
    assert_eq!(threads("rate-limited-dn"), 1);
    // A limiter that is built later waits for the same look-up.
    let limiter = build("redis://one.hangs.test");
    limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no address");
    assert_eq!(threads("rate-limited-dn"), 1);
    let error = Limiter::connect("redis://two.hangs.test").await.expect_err("no address");
    assert!(error.to_string().contains("the lookup of the host name did not end within"), "{error}");
    assert_eq!(threads("rate-limited-dn"), 2);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its look-ups"]
async fn follows_the_sentinel_that_has_an_address() {
    if !child::is_one() {
        return;
    }
    let url = format!("redis-sentinel://one.hangs.test,{}/mymaster", child::variable("SENTINEL"));
    let builder = Limiter::builder().url(&url).deadline(Duration::from_secs(5));
    let limiter = builder.connect().await.expect("one sentinel is there");
    let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("a place is free").source(), Source::Store);
}
