use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::rule::{RuleTable, check_shared_text};

/// Held by each test that logs. An event that a thread registers while another one sets its subscriber may be lost.
static LOGGING: Mutex<()> = Mutex::new(());

fn log_alone() -> MutexGuard<'static, ()> {
    LOGGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an updater, and the texts of the sets that it has applied.
fn updater(applied: &Mutex<Vec<String>>) -> SharedRulesUpdater<impl Fn(RuleSet) -> Result<(), Error> + Send + Sync> {
    let apply = |rules: RuleSet| {
        let mut applied = applied.lock().expect("no panic");
        if rules.rules.contains_key("contradicts") {
            return Err(Error::new(ErrorKind::Config, "it contradicts"));
        }
        applied.push(rules.to_string());
        Ok(())
    };
    SharedRulesUpdater { status: Arc::new(SharedRulesStatus::new()), apply, cache: None }
}

fn text(version: u64, toml: &[u8]) -> StoredText {
    let version = StoredVersion { number: version, digest: String::new(), published_micros: 0, is_restored: false };
    StoredText { version, toml: toml.to_vec() }
}

const RULES: &[u8] = b"[rules.a]\nlimit = \"5/s\"\n";

#[test]
fn a_text_that_cannot_be_used_changes_no_rule() {
    let _logging = log_alone();
    let applied = Mutex::new(Vec::new());
    let updater = updater(&applied);
    assert!(updater.text_read(&text(1, RULES)));
    for (version, toml, problem) in [
        (2, &b"[rules.a]\nlimit = 5\n"[..], "the shared rules, version 2: line 2, column 9: `limit` must be "),
        (3, b"[rules.contradicts]\n", "the shared rules, version 3: it contradicts"),
        (4, b"\xff", "the shared rules, version 4: the text must be UTF-8, got other bytes: "),
        (
            5,
            b"shared = true",
            "the shared rules, version 5: line 1, column 1: `shared` must be left out of shared rules",
        ),
    ] {
        assert!(!updater.text_read(&text(version, toml)));
        let error = updater.status.error().expect(problem).to_string();
        assert!(error.starts_with(problem), "{error}");
        assert_eq!(updater.status.version(), 1);
    }
    assert_eq!(applied.lock().expect("no panic").len(), 1);
    assert!(updater.text_read(&text(6, RULES)));
    assert_eq!((updater.status.version(), updater.status.error().is_none()), (6, true));
}

#[test]
fn an_outage_with_several_errors_is_one_problem() {
    let _logging = log_alone();
    let applied = Mutex::new(Vec::new());
    let updater = updater(&applied);
    let unreadable = |kind, problem: &str| updater.unreadable(&Error::new(kind, problem));
    for _ in 0..3 {
        unreadable(ErrorKind::Unavailable, "refused");
        unreadable(ErrorKind::Timeout, "no reply");
    }
    assert_eq!(updater.status.problems().errors(), 1);
    unreadable(ErrorKind::Config, "the store has no shared rules");
    assert_eq!(updater.status.problems().errors(), 2);
    updater.readable_again();
    assert!(updater.status.error().is_none());
    unreadable(ErrorKind::Timeout, "no reply");
    assert_eq!(updater.status.problems().errors(), 3);
}

#[test]
fn shared_rules_contradict_those_below_them() {
    let below: RuleSet = "[rules.a]\nkey = \"a:{id}\"\nlimit = \"5/s\"\n".parse().expect("valid");
    let table = RuleTable::of_environment();
    table.set(Origin::File, below).expect("valid");
    let shared = |toml: &str| RuleSet::from_shared_text(toml).expect("valid");
    let error = table.set(Origin::Shared, shared("[rules.a]\nkey = \"a:{other}\"\n")).expect_err("another key");
    assert!(error.to_string().contains("`key` of the rule `a` must be the same in all sets of rules"), "{error}");
    table
        .set(Origin::Shared, shared("[[rules.a.override]]\nmatch = { no = \"1\" }\nlimit = \"1/s\"\n"))
        .expect("ignored");
}

#[test]
fn errors_of_a_text_show_no_key() {
    let broken = [
        "key = \"user:@secret\"\nlimit = 5",
        "key = \"user:@secret\"\nlimt = \"5/s\"",
        "key = \"user:@secret",
        "key = user:@secret",
        "key = \"user:secret\\q\"",
        "key = [\"secret\"]",
        "key = \"secret\"\nkey = \"secret\"",
        "key = \"\"\"secret",
        "key = \"secret\" secret",
        "match = { id = secret }",
        "match = { id = [[\"secret\"]] }",
        "match = { id = [\"*secret\"] }",
        "match = { id = \"secret\", id = \"secret\" }",
        "match = \"secret\"",
        "match = { id = \"secret\" }\nkey = \"secret\"\nlimit = \"5/s\"",
        "match = { number = \"secret\" }\nlimit = \"5/s\"",
        "match = 20260101",
        "match = { id = 0x20260101 }",
        "key = 20260101",
        "key = \"user:{secret\"\nlimit = \"5/s\"",
        "key = \"user:@secret%\"\nlimit = \"5/s\"",
        "match = { id = \"secret\" }\nlimit = \"5/s\"\n[[rules.\"user:{id}\".override]]\nkey = \"user:@secret\"\nlimit = \"5/s\"",
        "match = { id = \"secret\" }\nlimit = \"5/s\"\n[[rules.\"user:{id}\".override]]\nmatch = { id = \"secret\" }\nlimit = \"5/s\"",
    ];
    let mut shown = Vec::new();
    for text in broken {
        match check_shared_text(&format!("[[rules.\"user:{{id}}\".override]]\n{text}\n")) {
            Ok(()) => shown.push(format!("accepted: {text}")),
            Err(error) if ["secret", "20260101", "539361537"].iter().any(|key| error.to_string().contains(key)) => {
                shown.push(error.to_string());
            }
            Err(_) => {}
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
}

/// A subscriber that counts the events, and panics at each.
struct Panics(Arc<AtomicUsize>);

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a panic of the subscriber");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_panicking_subscriber_gets_each_problem_once() {
    let _logging = log_alone();
    let (applied, events) = (Mutex::new(Vec::new()), Arc::new(AtomicUsize::new(0)));
    let updater = updater(&applied);
    tracing::subscriber::with_default(Panics(Arc::clone(&events)), || {
        assert!(updater.text_read(&text(1, RULES)), "its rules are in force");
        for _ in 0..3 {
            assert!(!updater.text_read(&text(2, b"[")));
        }
        for _ in 0..3 {
            updater.unreadable(&Error::new(ErrorKind::Config, "the store has no shared rules"));
        }
        updater.readable_again();
    });
    assert_eq!(events.load(Ordering::Relaxed), 4);
    assert_eq!((updater.status.version(), updater.status.error().is_none()), (1, true));
}
