//! What a failure tells nobody: the contents of a key, and a password.

use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::sync::Mutex;

use limiter_testkit::{RedisServer, RedisServerBuilder, unique};
use rate_limited::{Error, Key, Limiter, OnError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child;
use crate::deadlines::eventually;
use crate::support::{limit, on};

const PASSWORD: &str = "pass-s3cret";
const PART: &str = "part-s3cret";
const SECRET: &str = "s3cret";

/// Each way to print an error.
fn texts(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        write!(text, " {cause} {cause:?}").expect("writing to a string");
        source = cause.source();
    }
    text
}

fn secret_key() -> Key {
    Key::new("user:").part(PART)
}

/// Servers that repeat what they were asked, or want something else.
fn strange() -> [(&'static str, RedisServerBuilder); 5] {
    let with_password = || RedisServer::builder().password(PASSWORD);
    [
        ("no EVALSHA", with_password().setting("rename-command", "EVALSHA \"\"")),
        ("no HELLO", with_password().setting("rename-command", "HELLO \"\"")),
        ("no SCRIPT", with_password().setting("rename-command", "SCRIPT \"\"")),
        ("another user's", RedisServer::builder().user_with_rules("app", PASSWORD, "~other:* +@all")),
        ("not its own", RedisServer::builder().user_with_rules("app", PASSWORD, "~* +@all -set")),
    ]
}

#[tokio::test]
async fn errors_tell_neither_key_nor_password() {
    for (what, server) in strange() {
        let server = server.start();
        let error = match on(&server).on_error(OnError::Raise).connect().await {
            Ok(limiter) => limiter.check(&secret_key(), &limit("5/10s")).await.expect_err(what),
            Err(error) => error,
        };
        assert!(!texts(&error).contains(SECRET), "{what}: {}", texts(&error));
    }
}

#[tokio::test]
async fn debug_forms_tell_neither_key_nor_password() {
    let server = RedisServer::builder().password(PASSWORD).start();
    assert!(server.url().contains(PASSWORD));
    let builder = on(&server);
    assert!(!format!("{builder:?}").contains(SECRET), "{builder:?}");
    let limiter = builder.connect().await.expect("the server is there");
    let decision = limiter.check(&secret_key(), &limit("5/10s")).await;
    let shown = format!("{limiter:?} {:?} {decision:?}", secret_key());
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn logs_tell_neither_key_nor_password() {
    let printed = child::run("failures::secrets::logs_of_an_outage", &[("", ""); 0]);
    assert!(printed.contains("the rate limiter's store is away"), "{printed}");
    assert!(printed.contains("the rate limiter's store is back"), "{printed}");
    assert!(!printed.contains(SECRET), "{printed}");
}

#[tokio::test]
#[ignore = "needs a process of its own, since a process has one subscriber for all threads"]
async fn logs_of_an_outage() {
    if !child::is_one() {
        return;
    }
    tracing::subscriber::set_global_default(Printed).expect("the first");
    let mut kept = Vec::new();
    for (_, server) in strange() {
        let mut server = server.start();
        let limiter = Limiter::builder().url(&server.url()).prefix(&unique("logs")).build().expect("a URL");
        let (key, limit) = (secret_key(), limit("5/10s"));
        assert!(limiter.check(&key, &limit).await.expect("the stand-in at least").is_allowed());
        server.restart();
        let told = || async { LINES.lock().expect("no panic").contains("away") };
        eventually("told of", told).await;
        assert!(limiter.check(&key, &limit).await.expect("the stand-in at least").is_allowed());
        kept.push((server, limiter));
    }
    let told = || async { LINES.lock().expect("no panic").contains("back") };
    eventually("told of", told).await;
    println!("{}", LINES.lock().expect("no panic"));
}

static LINES: Mutex<String> = Mutex::new(String::new());

/// Keeps every event of every level, of the client and its runtime too.
struct Printed;

impl Subscriber for Printed {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(LINES.lock().expect("no panic"), "{field} = {value:?}").expect("writing to a string");
    }
}
