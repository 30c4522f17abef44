//! Tests of the events `denied` and `shadowed`, and of the span `decide`.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rate_limited::{Key, KeyMatch, Limiter, ManualClock, Mode, Rule, RuleSet};
use tracing::callsite::rebuild_interest_cache;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::child_process;
use crate::support::{LONG_DEADLINE, key, limit};

/// A subscriber that writes each event, and each span at its begin, as a line.
#[derive(Clone, Default)]
pub(crate) struct LineRecorder(Arc<Mutex<Vec<String>>>);

/// The fields of an event as text.
struct FieldText(String);

impl Visit for FieldText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string");
    }
}

impl LineRecorder {
    /// Returns the lines of a call.
    fn lines_of<T>(&self, call: impl FnOnce() -> T) -> Vec<String> {
        self.0.lock().expect("not poisoned").clear();
        tracing::subscriber::with_default(self.clone(), call);
        self.0.lock().expect("not poisoned").clone()
    }

    /// Returns the lines so far.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        self.0.lock().expect("not poisoned").clone()
    }

    fn push(&self, metadata: &Metadata<'_>, FieldText(fields): FieldText) {
        let line = format!("{} {}{fields}", metadata.level(), metadata.name());
        self.0.lock().expect("not poisoned").push(line);
    }
}

impl Subscriber for LineRecorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = FieldText(String::new());
        span.record(&mut fields);
        self.push(span.metadata(), fields);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = FieldText(String::new());
        event.record(&mut fields);
        self.push(event.metadata(), fields);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_denial_is_an_event_with_its_rule_and_without_its_key() {
    let (recorder, limiter) = (LineRecorder::default(), still(Limiter::builder()));
    let (user, limit) = (Key::new("secret:").part(42), limit("1/10s"));
    let check = |name: &str| limiter.named(name).check_blocking(&user, &limit).expect("decides");
    assert_eq!(recorder.lines_of(|| check("login")), [""; 0], "an allowed call");
    let fields = "rule=login limit=1/10s remaining=0 retry_after_ms=10000 source=store";
    assert_eq!(recorder.lines_of(|| check("login")), [format!("DEBUG denied message=denied {fields}")]);
    let costly = || limiter.check_n_blocking(&key("b"), &limit, 2).expect("decides");
    let fields = "rule=check limit=1/10s remaining=1 source=store";
    let lines = recorder.lines_of(costly);
    assert_eq!(lines[0], format!("DEBUG denied message=denied {fields}"), "a final denial");
}

#[test]
fn a_cost_that_a_limit_never_grants_is_a_warning_once_for_each_rule() {
    let denying = Rule::new().mode(Mode::Deny);
    let rules = Limiter::builder().rule("trial", Rule::new().mode(Mode::Shadow)).rule("closed", denying);
    let (recorder, limiter, limit) = (LineRecorder::default(), still(rules), limit("5/1m"));
    let warnings = |rule: &str, cost: u32| {
        let check = || limiter.named(rule).check_n_blocking(&key("a"), &limit, cost).expect("decides");
        let lines = recorder.lines_of(check).into_iter().filter(|line| line.starts_with("WARN "));
        let (_, messages): (Vec<_>, Vec<_>) = lines.map(|line| split_at(&line, " message=")).unzip();
        messages
    };
    let warning = |rule: &str, cost: u32| {
        let message = "a call was denied for its cost, which the limit never grants: no wait helps; raise the limit, or \
                       lower the cost";
        vec![format!("{message} rule={rule} cost={cost} limit=5/min")]
    };
    assert_eq!(warnings("login", 5), [""; 0]);
    assert_eq!(warnings("login", 1), [""; 0], "a denial that a wait helps");
    assert_eq!(warnings("login", 10), warning("login", 10));
    assert_eq!(warnings("login", 11), [""; 0]);
    assert_eq!(warnings("import", 6), warning("import", 6));
    assert_eq!(warnings("trial", 10), warning("trial", 10), "in shadow mode");
    assert_eq!(warnings("closed", 10), [""; 0], "the rule denies every call");
}

#[test]
fn a_warning_about_a_cost_has_the_layer_of_the_limit() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[rules.import]\nlimit = '5/min'\n[[rules.import.override]]\nkey = 'a'\nlimit = '20/min'\n";
    std::fs::write(file.path(), text).expect("written");
    let rules = Limiter::builder().rules_file(file.path()).rule("export", Rule::new().limit(limit("5/min")));
    let (recorder, limiter, own) = (LineRecorder::default(), still(rules), limit("100/min"));
    let at_run_time = Rule::new().overriding(KeyMatch::key(&key("c")), Rule::new().limit(limit("3/min")));
    limiter.set_rules(RuleSet::new().rule("upload", at_run_time)).expect("valid");
    let warned = |rule: &str, of: &str, cost: u32| {
        let check = || limiter.named(rule).check_n_blocking(&key(of), &own, cost).expect("decides");
        let warnings = recorder.lines_of(check).into_iter().filter(|line| line.starts_with("WARN "));
        warnings.map(|line| split_at(&line, " rule=").1).collect::<Vec<_>>()
    };
    assert_eq!(warned("import", "a", 10), [""; 0], "the override grants it");
    let of_file = format!("import cost=10 limit=5/min origin=file file={}", file.path().display());
    assert_eq!(warned("import", "b", 10), [of_file]);
    assert_eq!(warned("export", "b", 10), ["export cost=10 limit=5/min origin=builder"]);
    assert_eq!(warned("upload", "c", 10), ["upload cost=10 limit=3/min origin=runtime"]);
    assert_eq!(warned("report", "b", 101), ["report cost=101 limit=100/min"], "the call's own limit");
}

fn split_at(line: &str, middle: &str) -> (String, String) {
    let (before, behind) = line.split_once(middle).expect("a message");
    (before.to_owned(), behind.to_owned())
}

fn still(builder: rate_limited::Builder) -> Limiter {
    builder.clock(ManualClock::new()).build().expect("builds")
}

#[test]
fn a_denial_in_shadow_mode_is_an_event_of_its_own() {
    let limiter = still(Limiter::builder().rule("login", Rule::new().mode(Mode::Shadow)));
    let (recorder, limit) = (LineRecorder::default(), limit("1/10s"));
    let check = || limiter.named("login").check_blocking(&key("a"), &limit).expect("decides");
    assert_eq!(recorder.lines_of(check), [""; 0]);
    let fields = "rule=login limit=1/10s remaining=0 retry_after_ms=10000 source=store";
    assert_eq!(recorder.lines_of(check), [format!("DEBUG shadowed message=shadowed {fields}")]);
}

/// Another test may register the span at this moment, with its own subscriber. `tracing` then caches that nothing wants
/// it, until the interest is computed again.
#[test]
fn a_decision_by_a_shared_store_is_in_a_span() {
    let (recorder, limit) = (LineRecorder::default(), limit("1000000/10s"));
    let slow = Limiter::slow(Duration::from_millis(1));
    let check = || slow.named("upload").check_blocking(&key("a"), &limit).expect("decides");
    let until = Instant::now() + LONG_DEADLINE;
    let mut lines = recorder.lines_of(check);
    while lines.is_empty() && Instant::now() < until {
        rebuild_interest_cache();
        lines = recorder.lines_of(check);
    }
    assert_eq!(lines, ["TRACE decide rule=upload"]);
    let memory = Limiter::memory();
    assert_eq!(recorder.lines_of(|| memory.check_blocking(&key("a"), &limit)), [""; 0]);
}

#[test]
fn a_panic_of_the_subscriber_changes_no_denial() {
    struct PanickingSubscriber;
    impl Subscriber for PanickingSubscriber {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "rate_limited" && *metadata.level() == Level::DEBUG
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &Event<'_>) {
            panic!("a panic of the subscriber");
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
    let (limiter, limit) = (Limiter::memory(), limit("1/1h"));
    let check = || limiter.check_blocking(&key("a"), &limit).expect("decides").is_allowed();
    let allowed = tracing::subscriber::with_default(PanickingSubscriber, || [check(), check(), check()]);
    assert_eq!(allowed, [true, false, false]);
}

static EVENTS: AtomicUsize = AtomicUsize::new(0);
static DENYING: OnceLock<Limiter> = OnceLock::new();

#[test]
fn a_subscriber_that_is_denied_itself_gets_no_event_for_it() {
    child_process::run("logging::events::deny_in_the_subscriber", &[("X", "")]);
}

#[test]
#[ignore = "needs a process of its own, for its log"]
fn deny_in_the_subscriber() {
    if !child_process::is_child() {
        return;
    }
    let check = || DENYING.get_or_init(Limiter::memory).check_blocking(&key("a"), &limit("1/1h")).expect("decides");
    super::set_subscriber(|| {
        EVENTS.fetch_add(1, Ordering::SeqCst);
        let limiter = DENYING.get().expect("the limiter that logs");
        assert!(limiter.check_blocking(&key("a"), &limit("1/1h")).expect("decides").is_denied());
    });
    assert!(check().is_allowed());
    assert!(check().is_denied() && check().is_denied());
    assert_eq!(EVENTS.load(Ordering::SeqCst), 2);
}
