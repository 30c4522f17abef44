//! Tests of the log lines about the store's state.

use std::fmt;
use std::sync::Mutex;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::HealthState;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::eventually;
use crate::health::wait_for;
use crate::support::builder_for;

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
