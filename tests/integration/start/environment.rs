//! The limiter that a program gets without naming one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use limiter_testkit::RedisServer;
use rate_limited::{Decision, Limiter, Source};

use crate::child;
use crate::deadlines::eventually;
use crate::support::{key, limit};

const VARIABLE: &str = "RATE_LIMITED_URL";

/// How many of eight calls are admitted in a process with this in its environment, all decided by that source. None if
/// the machine stood still for a call's deadline, which such a process cannot set: then something else has decided.
fn admitted(url: Option<&OsStr>, by: Source) -> Option<u32> {
    let by = format!("{by:?}");
    let variables: Vec<_> = url.map(|url| (VARIABLE, url)).into_iter().chain([("BY", OsStr::new(&by))]).collect();
    let printed = child::run("start::environment::calls_eight_times", &variables);
    let (_, report) = printed.split_once("of eight: ")?;
    report.lines().next().and_then(|admitted| admitted.parse().ok())
}

#[test]
fn the_environment_names_the_store() {
    let server = RedisServer::start();
    let gone = format!("redis+unix://{}.gone?pass=s3cret", server.socket().display());
    for (url, by, expected) in [
        (None, Source::Store, 5),
        (Some("memory:"), Source::Store, 5),
        (Some(&*server.url()), Source::Store, 5),
        // The same quota, which the process before has used up.
        (Some(&*server.url()), Source::Store, 0),
        (Some(&*gone), Source::Standby, 5),
        (Some("redis"), Source::Standby, 5),
        (Some("http://:s3cret@127.0.0.1"), Source::Standby, 5),
        (Some(""), Source::Standby, 5),
    ] {
        let tries = (0..20).find_map(|_| {
            if expected > 0 && url == Some(&server.url()) {
                server.command(&["FLUSHALL"]);
            }
            admitted(url.map(OsStr::new), by)
        });
        assert_eq!(tries, Some(expected), "{url:?}");
    }
    assert_eq!(admitted(Some(OsStr::from_bytes(b"redis://\xFF")), Source::Standby), Some(5), "no text");
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its environment"]
async fn calls_eight_times() {
    if !child::is_one() {
        return;
    }
    let (limiter, by) = (Limiter::current(), child::variable("BY"));
    let decides = || async { source(&limiter.peek(&key("probe"), &limit("5/h")).await.expect("a decision")) == by };
    eventually("decided by it", decides).await;
    let mut admitted = 0;
    for _ in 0..8 {
        let decision = Limiter::current().check(&key("a"), &limit("5/h")).await.expect("a decision");
        if source(&decision) != by {
            assert_eq!(by, "Store");
            return println!("the machine stood still");
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
    // A denial by the store is known for a while.
    format!("{source:?}").replace("DeniedUntil", "Store")
}
