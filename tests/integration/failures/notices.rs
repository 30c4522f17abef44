//! What an operator has to mend is told to the log once, however many calls it fails.

use std::fmt::{self, Write};
use std::sync::Mutex;

use limiter_testkit::RedisServer;
use rate_limited::{ErrorKind, Limiter, OnError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::child;
use crate::deadlines::eventually;
use crate::support::{key, limit, on};

#[test]
fn a_trouble_is_told_once_until_it_is_over() {
    child::run("failures::notices::troubles_come_and_go", &[("", ""); 0]);
}

async fn kind(limiter: &Limiter) -> Option<ErrorKind> {
    limiter.check(&key("a"), &limit("1000/10s")).await.err().map(|error| error.kind())
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn troubles_come_and_go() {
    if !child::is_one() {
        return;
    }
    tracing::subscriber::set_global_default(Log).expect("the first");
    let server = RedisServer::builder().user("app", "s3cret").start();
    let limiter = on(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
    let memory = |bytes| server.command(&["CONFIG", "SET", "maxmemory", bytes]);
    let right = |rule| server.command(&["ACL", "SETUSER", "app", rule]);
    for _ in 0..2 {
        memory("1");
        for _ in 0..20 {
            assert_eq!(kind(&limiter).await, Some(ErrorKind::OutOfMemory));
            // A look takes no room: that it works says nothing.
            assert!(limiter.peek(&key("a"), &limit("1000/10s")).await.is_ok());
        }
        right("-set");
        memory("0");
        for _ in 0..20 {
            assert_eq!(kind(&limiter).await, Some(ErrorKind::Refused));
        }
        right("+set");
        eventually("mended", || async { kind(&limiter).await.is_none() }).await;
        assert_eq!(kind(&limiter).await, None);
    }
    let told = || LINES.lock().expect("no panic").clone();
    eventually("told", || async { told().len() >= 6 }).await;
    let lines = told();
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

/// Keeps what the limiter says.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited" && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
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

struct Line(String);

impl Visit for Line {
    /// The message first: it is written so, whatever its place.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, " {value:?}").expect("writing to a string");
        } else {
            write!(self.0, " ({value:?})").expect("writing to a string");
        }
    }
}
