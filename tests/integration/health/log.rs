//! Tests of the log lines about the store's state.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{HealthState, Limiter};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::{WAIT_TIMEOUT, eventually};
use crate::health::wait_for;
use crate::support::{builder_for, key, limit};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A subscriber that records the limiter's log lines.
pub(crate) struct RecordsLines;

impl Subscriber for RecordsLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().expect("no panic").push(line.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(line) = self;
        *line = format!("{line} {field}={value:?}");
    }
}

/// Returns the level and the message of each line.
pub(crate) fn lines() -> Vec<String> {
    LINES.lock().expect("no panic").clone()
}

async fn wait_for_lines(count: usize) -> Vec<String> {
    eventually("logged", || async { lines().len() >= count }).await;
    lines()
}

#[test]
fn a_store_that_is_absent_at_the_start_is_one_line_at_error() {
    child_process::run("health::log::log_an_absent_store", &[("X", "")]);
}

/// The limiter connects again and again, and calls fail.
#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_an_absent_store() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("a process of its own");
    let mut server = RedisServer::start();
    server.kill();
    let limiter = builder_for(&server).build().expect("a URL");
    wait_for(&limiter, HealthState::Down).await;
    for _ in 0..3 {
        assert!(limiter.check(&key("a"), &limit("5/1h")).await.expect("the standby limiter").is_allowed());
    }
    server.restart();
    wait_for(&limiter, HealthState::Up).await;
    server.kill();
    wait_for(&limiter, HealthState::Down).await;
    let logged = wait_for_lines(3).await;
    assert_eq!(logged.len(), 3, "{logged:?}");
    let starts = [
        "ERROR message=the rate limiter's store is away at the start: `on_error` decides",
        "INFO message=the rate limiter's store is back",
        "WARN message=the rate limiter's store is away server=",
    ];
    assert!(logged.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{logged:?}");
}

#[test]
fn outage_is_logged_once_with_its_duration() {
    child_process::run("health::log::log_a_replica", &[("X", "")]);
}

/// The limiter reconnects to the replica again and again.
#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_a_replica() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("a process of its own");
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = builder_for(&server).url(proxy.url()).connect().await.expect("it is there");
    let logged = wait_for_lines(1).await;
    assert!(logged[0].starts_with("INFO message=the rate limiter is connected to its store"), "{logged:?}");
    proxy.cut();
    wait_for(&limiter, HealthState::Down).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    proxy.pass();
    wait_for(&limiter, HealthState::ReadOnly).await;
    let before = proxy.connections();
    eventually("probed three times", || async { proxy.connections() > before + 3 }).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    wait_for(&limiter, HealthState::Up).await;
    let logged = wait_for_lines(3).await;
    assert_eq!(logged.len(), 3, "{logged:?}");
    assert!(logged[1].starts_with("WARN message=the rate limiter's store is away"), "{logged:?}");
    assert!(logged[1].contains("state=down"), "{logged:?}");
    assert!(logged[2].starts_with("INFO message=the rate limiter's store is back"), "{logged:?}");
    assert!(logged[2].contains("away_for="), "{logged:?}");
    assert!(logged.iter().all(|line| line.contains("server=")), "{logged:?}");
}

#[test]
fn replies_that_often_come_close_to_the_deadline_are_logged_once() {
    child_process::run("health::log::log_late_replies", &[("X", "")]);
}

/// Each reply takes four fifths of the deadline, or more on a busy machine.
#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_late_replies() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("a process of its own");
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let limiter = builder_for(&server).url(proxy.url()).deadline(Duration::from_secs(1)).connect().await;
    let limiter = limiter.expect("it is there");
    wait_for_lines(1).await;
    proxy.delay(Duration::from_millis(800));
    let is_warning = |line: &&String| line.contains("close to the deadline");
    let (calls, stop) = (spawn_calls(limiter), Instant::now() + WAIT_TIMEOUT);
    while !lines().iter().any(|line| is_warning(&line)) {
        assert!(Instant::now() < stop, "no warning: {:?}", lines());
        sleep(Duration::from_millis(5)).await;
    }
    // As many again.
    sleep(Duration::from_secs(2)).await;
    calls.abort();
    let logged = lines();
    let warnings: Vec<_> = logged.iter().filter(is_warning).collect();
    assert_eq!(warnings.len(), 1, "{logged:?}");
    assert!(warnings[0].starts_with("WARN message=") && warnings[0].contains("deadline=1s"), "{logged:?}");
}

/// Makes calls, without a wait for their results.
fn spawn_calls(limiter: Limiter) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&key("a"), &limit("1000000/h")).await });
            sleep(Duration::from_millis(2)).await;
        }
    })
}
