//! Tests of log lines about server problems: each problem is logged once, however many calls it fails.

use std::fmt::{self, Write};
use std::sync::Mutex;

use limiter_testkit::RedisServer;
use rate_limited::{ErrorKind, Limiter, OnError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{builder_for, key, unpacked_limit as limit};

#[test]
fn each_server_problem_is_logged_once_until_it_ends() {
    child_process::run("failures::log_lines::server_problems_come_and_go", &[("", ""); 0]);
}

async fn error_kind(limiter: &Limiter) -> Option<ErrorKind> {
    limiter.check(&key("a"), &limit("1000/10s")).await.err().map(|error| error.kind())
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn server_problems_come_and_go() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(LineSubscriber).expect("the first");
    let server = RedisServer::builder().user("app", "s3cret").start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
    let set_maxmemory = |bytes| server.command(&["CONFIG", "SET", "maxmemory", bytes]);
    let set_permission = |rule| server.command(&["ACL", "SETUSER", "app", rule]);
    for _ in 0..2 {
        set_maxmemory("1");
        for _ in 0..20 {
            assert_eq!(error_kind(&limiter).await, Some(ErrorKind::OutOfMemory));
            // A peek needs no memory, so its success does not end the problem.
            assert!(limiter.peek(&key("a"), &limit("1000/10s")).await.is_ok());
        }
        set_permission("-set");
        set_maxmemory("0");
        for _ in 0..20 {
            assert_eq!(error_kind(&limiter).await, Some(ErrorKind::Refused));
        }
        set_permission("+set");
        eventually("served again", || async { error_kind(&limiter).await.is_none() }).await;
        assert_eq!(error_kind(&limiter).await, None);
    }
    // Without the lines about the state of the store, whose number depends on the time of each probe.
    let lines_so_far = || {
        let mut lines = LINES.lock().expect("no panic").clone();
        lines.retain(|line| !line.contains(" the rate limiter"));
        lines
    };
    eventually("logged", || async { lines_so_far().len() >= 6 }).await;
    let lines = lines_so_far();
    for text in [
        "ERROR Redis is out of memory; falling back to `on_error` (Redis is at its memory limit (OOM))",
        "ERROR Redis refuses access; falling back to `on_error` (Redis refused the user a permission",
        "INFO Redis grants permits again",
    ] {
        assert_eq!(lines.iter().filter(|line| line.starts_with(text)).count(), 2, "{text}: {lines:#?}");
    }
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert!(!lines.concat().contains("s3cret"), "{lines:#?}");
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A subscriber that records the limiter's log lines.
struct LineSubscriber;

impl Subscriber for LineSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited" && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().expect("no panic").push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct LogLine(String);

impl Visit for LogLine {
    /// Appends a field. The message comes without parentheses.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, " {value:?}").expect("writing to a string");
        } else {
            write!(self.0, " ({value:?})").expect("writing to a string");
        }
    }
}
