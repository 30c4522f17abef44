//! Tests of `max_keys`: observers and the log report keys that share counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Builder, Limiter, ManualClock, Source};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::support::{builder_for, key, limit};

/// Reports to observers: the source, `max_keys`, and the number of uses of shared counters.
type Events = Arc<Mutex<Vec<(Source, usize, u64)>>>;

fn with_observer(builder: Builder) -> (Builder, Events) {
    let events = Events::default();
    let reports = Arc::clone(&events);
    let builder = builder.on_overflow(|_| panic!("a panic of the observer")).on_overflow(move |overflow| {
        reports.lock().expect("not poisoned").push((overflow.source(), overflow.max_keys(), overflow.shared()));
    });
    (builder, events)
}

fn take_events(events: &Events) -> Vec<(Source, usize, u64)> {
    std::mem::take(&mut events.lock().expect("not poisoned"))
}

async fn check(limiter: &Limiter, name: &str) -> bool {
    limiter.check(&key(name), &limit("2/1m")).await.expect("answers").is_allowed()
}

async fn assert_reported_once_per_second(builder: Builder, source: Source) {
    let clock = ManualClock::new();
    let (builder, events) = with_observer(builder.max_keys(1).clock(clock.clone()));
    let limiter = builder.connect().await.expect("the store is there");
    assert!(check(&limiter, "a").await && check(&limiter, "a").await && !check(&limiter, "a").await);
    let _ = limiter.peek(&key("b"), &limit("2/1m")).await.expect("answers");
    assert_eq!(take_events(&events), [], "neither a key without permits nor a peek takes an entry");

    assert!(check(&limiter, "b").await);
    assert_eq!(take_events(&events), [(source, 1, 1)]);
    clock.advance(Duration::from_millis(999));
    let (three, minute) = (["c", "d", "e"].map(key), limit("2/1m"));
    let _ = limiter.check_all(&[(&three[0], &minute, 1), (&three[1], &minute, 1)]).await.expect("answers");
    assert_eq!(take_events(&events), [], "less than a second later");
    clock.advance(Duration::from_millis(1));
    assert!(!check(&limiter, "a").await, "a key with an entry keeps it");
    let reports = take_events(&events);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].2 >= 2 || source == Source::Store, "{reports:?}");
    clock.advance(Duration::from_secs(5));
    assert!(!check(&limiter, "a").await);
    assert_eq!(take_events(&events), [], "no key has shared a counter since");
}

#[tokio::test]
async fn memory_limiter_reports_overflow_once_per_second() {
    assert_reported_once_per_second(Limiter::builder(), Source::Store).await;
}

#[tokio::test]
async fn standby_limiter_reports_overflow_once_per_second() {
    assert_reported_once_per_second(builder_for(RedisServer::shared()), Source::Standby).await;
}

#[test]
fn overflow_is_logged_once_per_minute_even_with_a_rate_limited_subscriber() {
    child_process::run("overflow::log_overflow", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_overflow() {
    if !child_process::is_child() {
        return;
    }
    let clock = ManualClock::new();
    let limiter = Limiter::builder().max_keys(1).clock(clock.clone()).build().expect("builds");
    let warnings = Arc::new(AtomicU64::new(0));
    let log = CountingSubscriber { limiter: limiter.clone(), warnings: Arc::clone(&warnings) };
    tracing::subscriber::set_global_default(log).expect("a process of its own");
    assert!(check(&limiter, "resident").await);
    for second in 0..150_u64 {
        let _ = check(&limiter, "new key").await;
        assert_eq!(warnings.load(Ordering::SeqCst), 1 + second / 60, "after {second} s");
        // Keeps the resident key alive, so that its entry does not become free.
        let _ = limiter.check(&key("resident"), &limit("1/h")).await.expect("answers");
        clock.advance(Duration::from_secs(1));
    }
}

/// A subscriber that counts warnings, and calls the limiter that logs them.
struct CountingSubscriber {
    limiter: Limiter,
    warnings: Arc<AtomicU64>,
}

impl Subscriber for CountingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited" && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        assert_eq!(*event.metadata().level(), tracing::Level::WARN);
        self.warnings.fetch_add(1, Ordering::SeqCst);
        let _ = self.limiter.check_blocking(&key("log"), &limit("1/1m"));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
