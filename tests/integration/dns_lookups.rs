//! Tests with host names whose DNS lookup never ends.

use std::fs;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use limiter_testkit::{HangingNames, RedisServer};
use rate_limited::{Credentials, ErrorKind, Limiter, OnError, Source};
use tokio::time::sleep;

use crate::child_process;
use crate::fake_server::FakeServer;
use crate::support::{key, limit, tcp_address};

#[test]
fn hanging_name_uses_one_thread_for_all_limiters() {
    let names = HangingNames::build();
    let (variable, library) = names.environment();
    child_process::run("dns_lookups::connect_to_hanging_names", &[(variable, library)]);
}

#[test]
fn sentinel_with_a_hanging_name_does_not_block_the_others() {
    let (names, server) = (HangingNames::build(), RedisServer::builder().tcp().start());
    let sentinel = FakeServer::sentinel_for(tcp_address(&server).port());
    let (variable, library) = names.environment();
    let address = sentinel.address().to_string();
    let variables = [(variable, library.as_os_str()), ("SENTINEL", address.as_ref())];
    child_process::run("dns_lookups::connect_by_the_reachable_sentinel", &variables);
}

/// Returns the number of threads of this process whose names start with `prefix`.
fn thread_count(prefix: &str) -> usize {
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
#[ignore = "needs a process of its own, for its DNS lookups and its threads"]
async fn connect_to_hanging_names() {
    if !child_process::is_child() {
        return;
    }
    panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    // Each attempt to connect starts with a call of the provider.
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
    wait_until("idle", || thread_count("tokio-") == 0).await;
    assert_eq!(thread_count("rate-limited-dn"), 1);
    for limiter in &limiters {
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no address");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("the lookup of the host name did not end within"), "{error}");
    }
    drop(limiters);
    wait_until("ended", || thread_count("rate-limited\n") == 0).await;
    assert_eq!(thread_count("rate-limited-dn"), 1);
    // A limiter that is built later waits for the same lookup.
    let limiter = build("redis://one.hangs.test");
    limiter.check(&key("a"), &limit("5/10s")).await.expect_err("no address");
    assert_eq!(thread_count("rate-limited-dn"), 1);
    let error = Limiter::connect("redis://two.hangs.test").await.expect_err("no address");
    assert!(error.to_string().contains("the lookup of the host name did not end within"), "{error}");
    assert_eq!(thread_count("rate-limited-dn"), 2);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its DNS lookups"]
async fn connect_by_the_reachable_sentinel() {
    if !child_process::is_child() {
        return;
    }
    let url = format!("redis-sentinel://one.hangs.test,{}/mymaster", child_process::variable("SENTINEL"));
    let builder = Limiter::builder().url(&url).deadline(Duration::from_secs(5));
    let limiter = builder.connect().await.expect("one sentinel is there");
    let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
    assert_eq!(decision.into_result().expect("a permit is free").source(), Source::Store);
}
