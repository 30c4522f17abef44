//! What listens to the log is the program's own code: it may use the limiter, and it may panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Error, Limiter, OnError};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child;
use crate::support::{key, limit, on};

#[test]
fn a_log_that_is_rate_limited_itself_locks_nobody_out() {
    child::run("logging::limits_the_log", &[("X", "")]);
    child::run("logging::limits_the_log_by_the_current_limiter", &[("X", "")]);
}

#[test]
fn a_log_that_panics_does_not_end_the_connection() {
    child::run("logging::panics_in_the_log", &[("X", "")]);
}

/// Does something at each event of the limiter's.
struct Log(fn());

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        SEEN.store(true, Ordering::SeqCst);
        (self.0)();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

static LIMITER: OnceLock<Limiter> = OnceLock::new();
static SEEN: AtomicBool = AtomicBool::new(false);

fn listen(what: fn()) {
    tracing::subscriber::set_global_default(Log(what)).expect("a process of its own");
}

async fn limiter_on(server: &RedisServer) -> &'static Limiter {
    let builder = on(server).deadline(Duration::from_millis(100)).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("connects");
    LIMITER.get_or_init(|| limiter)
}

fn ask(limiter: &Limiter) -> Result<Decision, Error> {
    limiter.check_blocking(&key("a"), &limit("1000/1m"))
}

/// What it gives, unless that takes for ever.
fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(what()));
    receiver.recv_timeout(Duration::from_secs(5)).ok()
}

fn seen() -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while !SEEN.load(Ordering::SeqCst) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    SEEN.load(Ordering::SeqCst)
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn limits_the_log() {
    if !child::is_one() {
        return;
    }
    listen(|| drop(LIMITER.get().map(ask)));
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server).await;
    server.kill();
    assert!(seen());
    assert!(in_time(|| ask(limiter)).expect("an answer").is_err());
}

#[test]
#[ignore = "needs a process of its own, for its log"]
fn limits_the_log_by_the_current_limiter() {
    if !child::is_one() {
        return;
    }
    listen(|| drop(ask(&Limiter::current())));
    assert!(in_time(|| ask(&Limiter::current())).expect("an answer").is_ok());
    assert!(seen());
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn panics_in_the_log() {
    if !child::is_one() {
        return;
    }
    listen(|| panic!("the log's own fault"));
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server).await;
    server.kill();
    assert!(seen());
    server.restart();
    let until = Instant::now() + Duration::from_secs(5);
    while ask(limiter).is_err() {
        assert!(Instant::now() < until, "never connected again");
        thread::sleep(Duration::from_millis(10));
    }
}
