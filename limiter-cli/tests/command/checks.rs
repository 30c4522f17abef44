//! `check`, `peek` and `reset` with limits of the command line.

use std::time::Duration;

use limiter_testkit::RedisServer;
use rate_limited::{Key, Limit, Limiter, OnError, rate_limited};
use serde_json::json;

use crate::support::{command, finish, limiter, server};

#[rate_limited(key = "user:{user_id}", window = "1h", max = 4, fallback = false)]
async fn annotated(user_id: u64) -> bool {
    user_id > 0
}

#[tokio::test]
async fn a_service_and_the_command_share_one_count() {
    let server = server();
    // Nothing is decided locally on a busy machine.
    let service = Limiter::builder().url(server.url()).deadline(Duration::from_secs(60)).on_error(OnError::Raise);
    let of_service = service.connect().await.expect("a server");
    let (key, limit): (Key, Limit) = (Key::new("user:").part(42), "4/1h".parse().expect("valid"));
    assert!(of_service.check(&key, &limit).await.expect("a decision").is_allowed());
    assert!(of_service.scope(annotated(42)).await);
    let remaining = |arguments: &[&str]| limiter(&server.url(), arguments).json()["remaining"].as_u64();
    assert_eq!(remaining(&["--json", "check", "user:@42", "--limit", "4/1h"]), Some(1));
    assert_eq!(remaining(&["--json", "check", "user:", "--part", "42", "--limit", "4/h"]), Some(0));
    assert!(!of_service.scope(annotated(42)).await);
    assert!(of_service.check(&key, &limit).await.expect("a decision").is_denied());
    assert_eq!(limiter(&server.url(), &["check", "user:@42", "--limit", "4/1h"]).code, Some(1));
    assert_eq!(server.keys(), ["rl:{user:@42}1h"]);
}

#[test]
fn a_decision_has_its_fields_and_its_exit_code() {
    let server = server();
    let json = |arguments: &[&str]| {
        let ran = limiter(&server.url(), &[&["--json"], arguments].concat());
        let mut value = ran.json();
        for field in ["reset_after_ms", "retry_after_ms"] {
            // The time since the first permit is unknown.
            if value[field].as_u64().is_some_and(|millis| millis > 0 && millis <= 3_600_001) {
                value[field] = json!("within the window");
            }
        }
        let object = value.as_object_mut().expect("an object");
        let has_limits = object.remove("limits").is_some();
        assert_eq!(has_limits, arguments[0] == "peek", "{object:?}");
        assert_eq!(object.remove("overdrawn"), has_limits.then(|| json!(0)));
        let fields: Vec<_> = object.keys().cloned().collect();
        let expected = ["allowed", "key", "limit", "remaining", "retry_after_ms", "reset_after_ms", "source", "final"];
        assert_eq!(fields, expected);
        (ran.code, value)
    };
    let answer = |allowed: bool, remaining: u32, retry: serde_json::Value, is_final: bool| {
        json!({
            "allowed": allowed, "key": "report", "limit": "2/h", "remaining": remaining, "retry_after_ms": retry,
            "reset_after_ms": "within the window", "source": "store", "final": is_final,
        })
    };
    let allowed = json(&["check", "report", "--limit", "2/h"]);
    assert_eq!(allowed, (Some(0), answer(true, 1, json!(0), false)));
    assert_eq!(json(&["check", "report", "--limit", "2/h"]), (Some(0), answer(true, 0, json!(0), false)));
    let denied = answer(false, 0, json!("within the window"), false);
    assert_eq!(json(&["check", "report", "--limit", "2/h"]), (Some(1), denied.clone()));
    assert_eq!(json(&["check", "report", "--limit", "2/h", "--denied-code", "0"]), (Some(0), denied.clone()));
    assert_eq!(json(&["check", "report", "--limit", "2/h", "--denied-code", "75"]), (Some(75), denied.clone()));
    assert_eq!(json(&["peek", "report", "--limit", "2/h"]), (Some(1), denied));
    let never = answer(false, 0, json!(null), true);
    assert_eq!(json(&["check", "report", "--limit", "2/h", "--cost", "3"]), (Some(1), never));
}

#[test]
fn a_charge_counts_beyond_the_limit() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    assert!(
        run(&["charge", "a", "--limit", "5/1h", "--cost", "3"]).ok().starts_with("charged: a, 2 left of 5/h, full")
    );
    assert!(run(&["charge", "a", "--limit", "5/1h", "--cost", "9"]).ok().starts_with("charged: a, 7 beyond 5/h, full"));
    let mut usage = run(&["--json", "charge", "a", "--limit", "5/1h", "--cost", "4294967295"]).json();
    assert!(usage["reset_after_ms"].take().as_u64().is_some_and(|millis| millis > 3_000_000));
    let expected = json!({
        "key": "a", "limit": "5/h", "remaining": 0, "overdrawn": 4_294_967_290_u32, "uncounted": 12,
        "reset_after_ms": null, "source": "store",
    });
    assert_eq!(usage, expected);
    assert_eq!(run(&["check", "a", "--limit", "5/1h"]).code, Some(1));
    let peeked = run(&["peek", "a", "--limit", "5/1h"]);
    assert!(peeked.stdout.starts_with("denied: a, 4294967290 beyond 5/h, retry in "), "{peeked:?}");
    assert_eq!(run(&["--json", "peek", "a", "--limit", "5/1h"]).json()["overdrawn"], json!(4_294_967_290_u32));
    assert_eq!(run(&["charge", "a", "--limit", "5/1h"]).code, Some(2), "without a cost");
}

#[test]
fn a_decision_is_one_line_for_people() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    let allowed = run(&["check", "a", "--limit", "1/d"]).ok();
    assert_eq!(allowed, "allowed: a, 0 left of 1/d, full quota in 1 d\n");
    let denied = run(&["check", "a", "--limit", "1/d"]);
    assert_eq!(denied.code, Some(1));
    assert!(denied.stdout.starts_with("denied: a, 0 left of 1/d, retry in 23 h 59 min"), "{denied:?}");
    let never = run(&["check", "a", "--limit", "1/d", "--cost", "2"]);
    assert_eq!(never.stdout, "denied: a, the cost is above the limit 1/d: no wait helps\n");
    assert_eq!(run(&["reset", "a", "--limit", "1/d"]).ok(), "reset: a has its full quota\n");
    let no_count = "a, no count of this key under 1/d, which was read as the text `a`\n";
    assert_eq!(run(&["peek", "a", "--limit", "1/d"]).ok(), format!("allowed: {no_count}"));
    assert_eq!(run(&["reset", "a", "--limit", "1/d"]).ok(), format!("reset: {no_count}"));
}

#[test]
fn a_key_without_a_count_is_shown_as_it_was_read() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), &[arguments, &["--limit", "5/h"]].concat());
    run(&["check", "user:", "--part", "ann@acme.com"]).ok();
    let wrong = "user:ann@acme.com, no count of this key under 5/h, which was read as the text `user:ann` and the part \
                 `acme.com`\n";
    assert_eq!(run(&["peek", "user:ann@acme.com"]).ok(), format!("allowed: {wrong}"));
    assert_eq!(run(&["reset", "user:ann@acme.com"]).ok(), format!("reset: {wrong}"));
    let peeked = run(&["peek", "user:@ann%40acme.com"]).ok();
    assert!(peeked.starts_with("allowed: user:@ann%40acme.com, 4 left of 5/h, full quota in "), "{peeked}");
    let reset = |key: &str| run(&["--json", "reset", key]).json();
    assert_eq!(
        reset("user:@ann"),
        json!({ "key": "user:@ann", "reset": true, "had_count": false, "was_blocked": false })
    );
    let key = "user:@ann%40acme.com";
    assert_eq!(reset(key), json!({ "key": key, "reset": true, "had_count": true, "was_blocked": false }));
    assert_eq!(reset(key), json!({ "key": key, "reset": true, "had_count": false, "was_blocked": false }));
    let none = json!([{ "limit": "5/h", "remaining": 5, "reset_after_ms": 0 }]);
    assert_eq!(run(&["--json", "peek", key]).json()["limits"], none);
}

#[test]
fn a_key_with_an_address_is_answered_with_that_of_a_layer() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), &[arguments, &["--limit", "5/h"]].concat());
    let of_layer = Key::new("api").text(":ip:").part("2001:db8::/64");
    run(&["check", &of_layer.encoded()]).ok();
    let advice = "write `api:ip: --part 2001:db8::/64`, by which a layer counts IPv6 clients";
    let alone = ", or `api:ip: --part 2001:db8::1` for this address alone\n";
    let peeked = run(&["peek", "api:ip:2001:db8::1"]).ok();
    assert!(peeked.ends_with(&format!("which was read as the text `api:ip:2001:db8::1`: {advice}{alone}")), "{peeked}");
    run(&["reset", "api:ip:@2001:db8::1"]).failed(2, &format!("got another text: {advice}{alone}"));
    let reset = run(&["reset", "api:ip:", "--part", "2001:db8::1"]).ok();
    assert!(reset.ends_with(&format!("and the part `2001:db8::1`: {advice}\n")), "{reset}");
    let peeked = run(&["peek", "api:ip:", "--part", "2001:db8::/64"]).ok();
    assert!(peeked.starts_with("allowed: api:ip:@2001%3Adb8%3A%3A%2F64, 4 left of 5/h"), "{peeked}");
}

#[test]
fn peek_and_reset_cover_all_limits() {
    let server = server();
    let run = |command: &str, limits: &[&str]| {
        let limits: Vec<_> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
        limiter(&server.url(), &[&[command, "a"], &limits[..]].concat())
    };
    let both = ["2/h", "9/d"];
    let none = "allowed: a, no count of this key under 2/h and 9/d, which was read as the text `a`\n";
    assert_eq!(run("peek", &both).ok(), none);
    run("check", &["9/d"]).ok();
    let peeked = run("peek", &both).ok();
    let lines: Vec<_> = peeked.lines().collect();
    assert!(lines[0].starts_with("allowed: a, 2 left of 2/h"), "{peeked}");
    assert_eq!(lines[1], "  2/h: no count");
    assert!(lines[2].starts_with("  9/d: 8 left, full quota in "), "{peeked}");
    for _ in 0..2 {
        run("check", &both).ok();
    }
    let denied = run("peek", &both);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    let lines: Vec<_> = denied.stdout.lines().collect();
    assert!(lines[0].starts_with("denied: a, 0 left of 2/h, retry in "), "{denied:?}");
    assert!(lines[1].starts_with("  2/h: 0 left, ") && lines[2].starts_with("  9/d: 6 left, "), "{denied:?}");
    // A count above a lowered limit.
    let lowered = run("peek", &["1/h", "9/d"]);
    assert!(lowered.stdout.starts_with("denied: a, 1 beyond 1/h, retry in "), "{lowered:?}");
    assert_eq!(run("reset", &["1/h", "9/d"]).ok(), "reset: a has its full quota\n");
    assert_eq!(run("peek", &both).ok(), none);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn peek_takes_nothing_and_reset_deletes_the_count() {
    let server = server();
    let code = |command: &str| limiter(&server.url(), &[command, "a", "--limit", "1/h"]).code;
    assert_eq!(
        [code("peek"), code("peek"), code("check"), code("peek"), code("check")].map(|code| code.expect("ends")),
        [0, 0, 0, 1, 1]
    );
    assert_eq!((code("reset"), code("check")), (Some(0), Some(0)));
}

#[test]
fn all_limits_must_allow_the_call_and_a_cost_takes_as_many_permits() {
    let server = server();
    let run = |cost: &str| limiter(&server.url(), &["check", "a", "--limit", "9/h", "--limit", "4/d", "--cost", cost]);
    assert_eq!([run("3").code, run("2").code, run("1").code, run("1").code], [Some(0), Some(1), Some(0), Some(1)]);
    let names = ["rl:{a}1d", "rl:{a}1h"];
    assert_eq!(server.keys(), names);
}

#[test]
fn a_wait_ends_with_the_permit_or_at_once_if_it_is_too_short() {
    let server = server();
    let run =
        |limit: &str, wait: &str| limiter(&server.url(), &["check", limit, "--limit", limit, "--wait", wait]).code;
    assert_eq!((run("1/s", "0s"), run("1/s", "5m")), (Some(0), Some(0)));
    assert_eq!((run("1/d", "1h"), run("1/d", "1h")), (Some(0), Some(1)));
}

#[test]
fn algorithm_and_burst_select_the_counter() {
    let server = server();
    let bucket = ["check", "a", "--limit", "1/h", "--algorithm", "token_bucket", "--burst", "3", "--cost", "3"];
    assert_eq!(limiter(&server.url(), &bucket).code, Some(0));
    assert_eq!(limiter(&server.url(), &bucket).code, Some(1));
    assert_eq!(server.keys(), ["rl:{a}t1h"]);
}

#[test]
fn prefix_secret_and_url_are_those_of_the_service() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let (secret, url) = (directory.path().join("secret"), directory.path().join("url"));
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("written");
    std::fs::write(&url, format!("{}\n", server.url())).expect("written");
    let (secret, url) = (secret.display().to_string(), url.display().to_string());
    let arguments =
        ["--hash-keys", &secret, "--prefix", "shop", "--url-file", &url, "check", "user:@42", "--limit", "5/10s"];
    let ran = finish(command("redis://127.0.0.1:1", &arguments).spawn().expect("the program starts"));
    // The digest of docs/keys.md.
    assert_eq!((ran.code, server.keys()), (Some(0), vec!["shop:{+7733525feda7b31e1c870f189b455066}10s".to_owned()]));
    assert!(ran.stdout.contains("user:@42"), "{ran:?}");
}

#[test]
fn no_password_is_printed_and_one_in_the_list_of_processes_draws_a_warning() {
    let server = RedisServer::builder().tcp().password("hunter2").start();
    let good = server.url();
    assert!(good.contains("hunter2"));
    let wrong = good.replace("hunter2", "hunter3");
    let warning = "warning: `--url` contains a password, which all users of this machine can read";
    let with_url = limiter("", &["--url", &good, "check", "a", "--limit", "1/h"]);
    assert_eq!((with_url.code, with_url.stderr.contains(warning)), (Some(0), true), "{with_url:?}");
    assert_eq!(limiter(&good, &["check", "b", "--limit", "1/h"]).stderr, "");
    let refused = limiter("", &["--url", &wrong, "--json", "check", "a", "--limit", "1/h"]);
    refused.failed(3, "\"kind\":\"refused\"");
    for ran in [with_url, refused] {
        assert!(!format!("{ran:?}").contains("hunter"), "{ran:?}");
    }
}

#[test]
fn a_store_that_is_down_ends_with_code_3() {
    let mut server = server();
    server.kill();
    for arguments in [&["check", "a", "--limit", "1/h"][..], &["rules", "list"], &["rules", "set", "a", "1/h"]] {
        limiter(&server.url(), arguments).failed(3, "error: ");
    }
}

#[test]
fn colours_are_for_terminals_and_on_request() {
    let server = server();
    let peek = ["peek", "a", "--limit", "1/h"];
    assert!(!limiter(&server.url(), &peek).ok().contains('\u{1b}'));
    let forced = limiter(&server.url(), &[&["--color", "always"][..], &peek].concat()).ok();
    assert!(forced.starts_with("\u{1b}[32mallowed\u{1b}[0m: a"), "{forced}");
}
