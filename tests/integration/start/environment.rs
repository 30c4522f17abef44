//! Tests of the default limiter, whose store is named by the environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, HealthState, Limiter, Source};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{key, limit};

const URL_VARIABLE: &str = "RATE_LIMITED_URL";

/// Returns how many of eight calls are admitted in a process with this URL in its environment, all decided by
/// `expected_source`. Returns `None` if the machine stalled for a call's deadline, so that another source decided.
fn admitted(url: Option<&OsStr>, expected_source: Source) -> Option<u32> {
    let expected_source = format!("{expected_source:?}");
    let variables: Vec<_> =
        url.map(|url| (URL_VARIABLE, url)).into_iter().chain([("BY", OsStr::new(&expected_source))]).collect();
    let printed = child_process::run("start::environment::call_eight_times", &variables);
    let (_, report) = printed.split_once("of eight: ")?;
    report.lines().next().and_then(|admitted| admitted.parse().ok())
}

#[test]
fn environment_variable_names_the_store() {
    let server = RedisServer::start();
    let gone = format!("redis+unix://{}.gone?pass=s3cret", server.socket().display());
    for (url, expected_source, expected) in [
        (None, Source::Store, 5),
        (Some("memory:"), Source::Store, 5),
        (Some(&*server.url()), Source::Store, 5),
        // The same counters, which the process before has used up.
        (Some(&*server.url()), Source::Store, 0),
        (Some(&*gone), Source::Standby, 5),
        (Some("redis"), Source::Standby, 5),
        (Some("http://:s3cret@127.0.0.1"), Source::Standby, 5),
        (Some(""), Source::Standby, 5),
    ] {
        let attempt = (0..20).find_map(|_| {
            if expected > 0 && url == Some(&server.url()) {
                server.command(&["FLUSHALL"]);
            }
            admitted(url.map(OsStr::new), expected_source)
        });
        assert_eq!(attempt, Some(expected), "{url:?}");
    }
    assert_eq!(admitted(Some(OsStr::from_bytes(b"redis://\xFF")), Source::Standby), Some(5), "not UTF-8");
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn call_eight_times() {
    if !child_process::is_child() {
        return;
    }
    let (limiter, expected_source) = (Limiter::current(), child_process::variable("BY"));
    let decides =
        || async { source(&limiter.peek(&key("probe"), &limit("5/h")).await.expect("a decision")) == expected_source };
    eventually("decided by that source", decides).await;
    let mut admitted = 0;
    for _ in 0..8 {
        let decision = Limiter::current().check(&key("a"), &limit("5/h")).await.expect("a decision");
        if source(&decision) != expected_source {
            assert_eq!(expected_source, "Store");
            return println!("the machine stalled");
        }
        admitted += u32::from(decision.is_allowed());
    }
    println!("of eight: {admitted}");
}

fn source(decision: &Decision) -> String {
    let source = match decision {
        Decision::Allowed(allowed) => allowed.source(),
        Decision::Denied(denied) => denied.source(),
    };
    // A denial by the store is cached for a while.
    format!("{source:?}").replace("DeniedUntil", "Store")
}

/// Runs a process with a URL that cannot be used. Returns its output, which ends with what the caller received.
fn output_with_bad_url(strict: &str, subscriber: &str) -> String {
    let variables =
        [(URL_VARIABLE, "http://:s3cret@127.0.0.1"), ("RATE_LIMITED_STRICT", strict), ("SUBSCRIBER", subscriber)];
    let printed = child_process::run("start::environment::use_the_default_limiter", &variables);
    assert!(!printed.contains("s3cret"), "{printed}");
    printed
}

#[test]
fn bad_url_is_written_to_standard_error_without_a_subscriber() {
    const MESSAGE: &str = "RATE_LIMITED_URL cannot be used: rate limits fail until it is corrected: `url` must begin";
    let printed = output_with_bad_url("0", "no");
    assert_eq!(printed.matches(MESSAGE).count(), 1, "{printed}");
    assert!(printed.contains("no panic"), "{printed}");
    let printed = output_with_bad_url("", "yes");
    assert!(!printed.contains("RATE_LIMITED_URL"), "{printed}");
}

/// A wrong value is reported under the name of its own variable.
#[test]
fn bad_mode_is_reported_by_the_name_of_its_variable() {
    let printed = |strict| {
        let variables = [
            (URL_VARIABLE, "memory:"),
            ("RATE_LIMITED_MODE", "OFF"),
            ("RATE_LIMITED_STRICT", strict),
            ("SUBSCRIBER", "no"),
        ];
        child_process::run("start::environment::use_the_default_limiter", &variables)
    };
    const MESSAGE: &str =
        "RATE_LIMITED_MODE cannot be used: rate limits fail until it is corrected: `RATE_LIMITED_MODE`";
    let lenient = printed("0");
    assert!(lenient.contains(MESSAGE) && lenient.contains("no panic"), "{lenient}");
    assert!(!lenient.contains(URL_VARIABLE), "{lenient}");
    let strict = printed("1");
    assert!(
        strict.contains("panicked twice: RATE_LIMITED_MODE cannot be used: `RATE_LIMITED_MODE` must be"),
        "{strict}"
    );
}

#[test]
fn bad_url_panics_at_the_first_use_if_strict() {
    let printed = output_with_bad_url("1", "no");
    assert!(printed.contains("panicked twice: RATE_LIMITED_URL cannot be used: `url` must begin"), "{printed}");
    let variables = [(URL_VARIABLE, "memory:"), ("RATE_LIMITED_STRICT", "1"), ("SUBSCRIBER", "no")];
    assert!(child_process::run("start::environment::use_the_default_limiter", &variables).contains("no panic"));
}

#[test]
#[ignore = "needs a process of its own, for its environment"]
fn use_the_default_limiter() {
    if !child_process::is_child() {
        return;
    }
    if child_process::variable("SUBSCRIBER") == "yes" {
        tracing::subscriber::set_global_default(DropsLines).expect("a process of its own");
    }
    let current = || {
        let used = std::panic::catch_unwind(|| Limiter::current().health());
        used.map_err(|panic| panic.downcast::<String>().map_or_else(|_| String::new(), |message| *message))
    };
    match (current(), current()) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first, second);
            let is_memory = child_process::variable(URL_VARIABLE) == "memory:";
            let is_usable = is_memory && std::env::var_os("RATE_LIMITED_MODE").is_none();
            let expected = if is_usable { HealthState::Up } else { HealthState::Down };
            assert_eq!((first.state, first.server), (expected, None));
            println!("no panic");
        }
        (Err(first), Err(second)) if first == second => println!("panicked twice: {first}"),
        other => panic!("{other:?}"),
    }
}

struct DropsLines;

impl Subscriber for DropsLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {}
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
