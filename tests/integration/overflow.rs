//! What happens when more keys come than there are places for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Builder, Limiter, ManualClock, Source};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child;
use crate::support::{key, limit, on};

/// What observers were told: whose places, how many there are, and how often keys had to share.
type Events = Arc<Mutex<Vec<(Source, usize, u64)>>>;

fn watched(builder: Builder) -> (Builder, Events) {
    let events = Events::default();
    let told = Arc::clone(&events);
    let builder = builder.on_overflow(|_| panic!("an observer's own fault")).on_overflow(move |overflow| {
        told.lock().expect("whole").push((overflow.source(), overflow.max_keys(), overflow.shared()));
    });
    (builder, events)
}

fn take(events: &Events) -> Vec<(Source, usize, u64)> {
    std::mem::take(&mut events.lock().expect("whole"))
}

async fn check(limiter: &Limiter, name: &str) -> bool {
    limiter.check(&key(name), &limit("2/1m")).await.expect("answers").is_allowed()
}

async fn is_told_once_a_second(builder: Builder, source: Source) {
    let clock = ManualClock::new();
    let (builder, events) = watched(builder.max_keys(1).clock(clock.clone()));
    let limiter = builder.connect().await.expect("the store is there");
    assert!(check(&limiter, "a").await && check(&limiter, "a").await && !check(&limiter, "a").await);
    let _ = limiter.peek(&key("b"), &limit("2/1m")).await.expect("answers");
    assert_eq!(take(&events), [], "a key without permits takes no place, and a look none at all");

    assert!(check(&limiter, "b").await);
    assert_eq!(take(&events), [(source, 1, 1)]);
    clock.advance(Duration::from_millis(999));
    let (three, minute) = (["c", "d", "e"].map(key), limit("2/1m"));
    let _ = limiter.check_all(&[(&three[0], &minute, 1), (&three[1], &minute, 1)]).await.expect("answers");
    assert_eq!(take(&events), [], "less than a second later");
    clock.advance(Duration::from_millis(1));
    assert!(!check(&limiter, "a").await, "who has a place keeps it");
    let told = take(&events);
    assert_eq!(told.len(), 1);
    assert!(told[0].2 >= 2 || source == Source::Store, "{told:?}");
    clock.advance(Duration::from_secs(5));
    assert!(!check(&limiter, "a").await);
    assert_eq!(take(&events), [], "nobody had to share since");
}

#[tokio::test]
async fn observers_of_a_memory_limiter_are_told_once_a_second() {
    is_told_once_a_second(Limiter::builder(), Source::Store).await;
}

#[tokio::test]
async fn observers_of_a_stand_in_are_told_once_a_second() {
    is_told_once_a_second(on(RedisServer::shared()), Source::Standby).await;
}

#[test]
fn the_log_is_told_once_a_minute_and_may_be_limited_itself() {
    child::run("overflow::is_logged", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn is_logged() {
    if !child::is_one() {
        return;
    }
    let clock = ManualClock::new();
    let limiter = Limiter::builder().max_keys(1).clock(clock.clone()).build().expect("builds");
    let warnings = Arc::new(AtomicU64::new(0));
    let log = Log { limiter: limiter.clone(), warnings: Arc::clone(&warnings) };
    tracing::subscriber::set_global_default(log).expect("a process of its own");
    assert!(check(&limiter, "resident").await);
    for second in 0..150_u64 {
        let _ = check(&limiter, "newcomer").await;
        assert_eq!(warnings.load(Ordering::SeqCst), 1 + second / 60, "after {second} s");
        // Nobody is over in the meantime.
        let _ = limiter.check(&key("resident"), &limit("1/h")).await.expect("answers");
        clock.advance(Duration::from_secs(1));
    }
}

/// Counts warnings, and asks the limiter that gives them whether it may.
struct Log {
    limiter: Limiter,
    warnings: Arc<AtomicU64>,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
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
