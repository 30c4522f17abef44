//! Tests with a log subscriber of the program, which may use the limiter and may panic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Error, Limiter, OnError};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::WAIT_TIMEOUT;
use crate::support::{builder_for, key, limit};

pub(crate) mod events;

#[test]
fn rate_limited_subscriber_causes_no_deadlock() {
    child_process::run("logging::limit_in_the_subscriber", &[("X", "")]);
    child_process::run("logging::limit_in_the_subscriber_by_the_current_limiter", &[("X", "")]);
}

#[test]
fn panicking_subscriber_does_not_end_the_connection() {
    child_process::run("logging::panic_in_the_subscriber", &[("X", "")]);
}

/// A subscriber that runs a function at each event of the limiter.
struct ActionSubscriber(fn());

impl Subscriber for ActionSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        HAS_EVENT.store(true, Ordering::SeqCst);
        (self.0)();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

static LIMITER: OnceLock<Limiter> = OnceLock::new();
static HAS_EVENT: AtomicBool = AtomicBool::new(false);

fn set_subscriber(action: fn()) {
    tracing::subscriber::set_global_default(ActionSubscriber(action)).expect("a process of its own");
}

async fn limiter_on(server: &RedisServer) -> &'static Limiter {
    let builder = builder_for(server).deadline(Duration::from_millis(100)).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("connects");
    LIMITER.get_or_init(|| limiter)
}

fn check(limiter: &Limiter) -> Result<Decision, Error> {
    limiter.check_blocking(&key("a"), &limit("1000/1m"))
}

/// Returns the function's result, or `None` if it takes longer than [`WAIT_TIMEOUT`].
fn run_with_timeout<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(action()));
    receiver.recv_timeout(WAIT_TIMEOUT).ok()
}

fn wait_for_event() -> bool {
    let until = Instant::now() + WAIT_TIMEOUT;
    while !HAS_EVENT.load(Ordering::SeqCst) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    HAS_EVENT.load(Ordering::SeqCst)
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn limit_in_the_subscriber() {
    if !child_process::is_child() {
        return;
    }
    set_subscriber(|| drop(LIMITER.get().map(check)));
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server).await;
    server.kill();
    assert!(wait_for_event());
    assert!(run_with_timeout(|| check(limiter)).expect("an answer").is_err());
}

#[test]
#[ignore = "needs a process of its own, for its log"]
fn limit_in_the_subscriber_by_the_current_limiter() {
    if !child_process::is_child() {
        return;
    }
    set_subscriber(|| drop(check(&Limiter::current())));
    assert!(run_with_timeout(|| check(&Limiter::current())).expect("an answer").is_ok());
    assert!(wait_for_event());
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn panic_in_the_subscriber() {
    if !child_process::is_child() {
        return;
    }
    set_subscriber(|| panic!("a panic of the subscriber"));
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server).await;
    server.kill();
    assert!(wait_for_event());
    server.restart();
    let until = Instant::now() + WAIT_TIMEOUT;
    while check(limiter).is_err() {
        assert!(Instant::now() < until, "not reconnected");
        thread::sleep(Duration::from_millis(10));
    }
}
