//! What the command knows of limiters that live: `why`, and changes of the shared rules.

use std::time::{SystemTime, UNIX_EPOCH};

use limiter_testkit::RedisServer;
use serde_json::{Value, json};

use crate::support::{limiter, server};

/// The rules of the limiters in these tests.
const INVENTORY: &str = r#"{"rule":"getId","keys":["getId"],"limits":["5/10s"],"mode":"enforce","origin":"attribute"}
{"rule":"user:{user_id}","keys":["user:{user_id}"],"limits":["2/h"],"mode":"enforce","origin":"attribute"}
{"rule":"api","keys":["api:{ip:/32/64}"],"limits":["100/min","MAX/s"],"mode":"enforce","origin":"builder"}
{"rule":"bucket","keys":["user:{id}"],"limits":[{"limit":"3/h","algorithm":"token_bucket"}],"mode":"enforce","origin":"file"}
{"rule":"direct","keys":[],"limits":[],"mode":"enforce","origin":"attribute"}
"#;

/// Writes heartbeats as limiters do, each with the version of the shared rules that it follows.
fn write(server: &RedisServer, inventory: &str, versions: &[&str]) {
    let digest = "0123456789abcdef".repeat(2);
    let name = |name: &str| format!("rl-live:{{rl}}:{name}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let end = (now + 3_600_000).to_string();
    let members = name(&format!("members:{digest}"));
    server.command(&["DEL", &members]);
    for (number, version) in versions.iter().enumerate() {
        let member = format!("{number:016x} web-{number} {} 0.1.0 951782399000 {version} up", 10 + number);
        server.command(&["ZADD", &members, &end, &member]);
    }
    server.command(&["HSET", &name("counts"), &digest, &format!("{} {end}", versions.len())]);
    server.command(&["SET", &name(&format!("inventory:{digest}")), inventory]);
}

#[test]
fn why_shows_each_rule_that_fits_a_key_with_its_use_and_the_next_call() {
    let server = server();
    let url = server.url();
    write(&server, INVENTORY, &["-", "1", "1", "1", "1"]);
    limiter(&url, &["rules", "set", "user:{user_id}", "4/h", "--wait", "0s"]).ok();
    limiter(&url, &["rules", "set", "user:{user_id}", "--match", "user_id=7", "9/h", "--wait", "0s"]).ok();
    let check = |key: &str, limit: &str| limiter(&url, &["check", key, "--limit", limit]).ok();
    (0..3).for_each(|_| drop(check("user:@42", "4/h")));
    let text = limiter(&url, &["why", "user:@42"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["user:@42"]);
    assert_eq!(rows[2], ["bucket", "3/h", "file", "enforce", "0", "3", "now", "5"], "{text}");
    let shared = ["user:{user_id}", "4/h", "the", "shared", "rules", "enforce", "3", "1", "now", "5"];
    assert_eq!(rows[3], shared, "{text}");
    assert!(text.contains("version 2 is published; limiters follow none in 1 (web-0 (10)); 1 in 4\n"), "{text}");
    assert!(text.ends_with("each of them allows the next call\n"), "{text}");

    check("user:@42", "4/h");
    let denied = limiter(&url, &["why", "user:", "--part", "42"]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.stdout.contains("denied by `user:{user_id}`: next call in 59 min"), "{denied:?}");
    let json = limiter(&url, &["why", "user:@42", "--json"]).json();
    assert_eq!(json["shared_rules"]["published"], json!(2));
    let rule = &json["rules"][1];
    assert_eq!((&rule["allowed"], &rule["origin"]), (&json!(false), &json!("the shared rules")));
    assert_eq!((&rule["limits"][0]["used"], &rule["limiters"]), (&json!(4), &json!(5)));
    assert!(rule["retry_after_ms"].as_u64().is_some_and(|millis| millis > 3_000_000), "{json}");

    let of_override = limiter(&url, &["why", "user:@7", "--rule", "user:{user_id}", "--json"]).json();
    let rule = &of_override["rules"][0];
    assert_eq!((&rule["limits"][0]["limit"], &rule["origin"]), (&json!("9/h"), &json!("an override")));
    // A limit of expressions is in the source alone.
    let api = limiter(&url, &["why", "api:", "--part", "192.0.2.1", "--json"]).json();
    assert_eq!(api["rules"][0]["limits"][0]["limit"], json!("100/min"));
    assert_eq!(limiter(&url, &["why", "direct", "--json"]).json()["rules"][0]["limits"], json!([]));
    assert!(limiter(&url, &["why", "nothing:@1"]).ok().contains("no rule of a limiter that lives"));
    limiter(&url, &["why", "user:@42", "--rule", "getid"]).failed(2, "got `getid`: write `getId`");
}

#[test]
fn why_shows_modes_and_blocks_and_foreign_texts_as_text() {
    let server = server();
    let url = server.url();
    let foreign = "{\"rule\":\"\\u001b[31mred\",\"keys\":[\"red\"],\"limits\":[\"\\u202e5/10s\"],\"origin\":\"\\u001b\"}\n\u{1b}[0m";
    write(&server, foreign, &["-"]);
    let text = limiter(&url, &["why", "red"]).ok();
    assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains(r"\u{1b}[31mred"), "{text}");
    let toml = "[rules.a]\nmode = 'deny'\n[rules.b]\nlimit = '1/h'\nblock = '1d'\n[rules.c]\nmode = 'off'\n";
    crate::support::limiter_with_input(&url, &["rules", "import", "-", "--yes", "--wait", "0s"], toml.as_bytes()).ok();
    let mode = |key: &str| limiter(&url, &["why", key, "--json"]).json()["rules"][0]["mode"].clone();
    assert_eq!((mode("a"), mode("c")), (json!("deny"), json!("off")));
    assert!(limiter(&url, &["why", "a"]).stdout.ends_with("denied by `a`: next call never\n"));
    limiter(&url, &["check", "b", "--rule", "b"]).ok();
    limiter(&url, &["check", "b", "--rule", "b"]).failed(1, "");
    let blocked = limiter(&url, &["why", "b"]);
    assert!(blocked.stdout.contains("next call in 23 h 59 min, blocked"), "{blocked:?}");
    assert_eq!(limiter(&url, &["why", "b", "--json"]).json()["rules"][0]["blocked"], json!(true));
    assert!(limiter(&url, &["reset", "b", "--rule", "b"]).ok().contains("b is no longer blocked"));
}

#[test]
fn a_change_says_in_how_many_limiters_it_is_in_force() {
    let server = server();
    let url = server.url();
    let nobody = limiter(&url, &["rules", "set", "getId", "5/10s"]);
    assert!(nobody.stderr.contains("no limiter lives"), "{nobody:?}");
    write(&server, INVENTORY, &["9", "9", "-"]);
    let all = limiter(&url, &["rules", "set", "getId", "6/10s"]);
    assert!(all.stdout.contains("version 2 is published\nin force in 2 of 2 limiters after "), "{all:?}");
    assert!(all.stderr.contains("1 limiters follow no shared rules: web-2 (12)"), "{all:?}");
    write(&server, INVENTORY, &["9", "2"]);
    let one = limiter(&url, &["rules", "set", "getId", "7/10s", "--wait", "300ms"]);
    assert!(one.stdout.contains("in force in 1 of 2 limiters after "), "{one:?}");
    assert!(one.stderr.contains("version 3 is not in force everywhere: web-1 (11) has version 2"), "{one:?}");
    let json: Value = limiter(&url, &["rules", "set", "getId", "8/10s", "--wait", "0s", "--json"]).json();
    assert_eq!((&json["in_force"]["limiters"], &json["in_force"]["of"]), (&json!(1), &json!(2)));
    assert_eq!(json["in_force"]["behind"], json!([{ "limiter": "web-1 (11)", "version": 2 }]));
    write(&server, INVENTORY, &["-", "-"]);
    let none = limiter(&url, &["rules", "unset", "getId"]);
    assert!(none.stderr.contains("warning: no limiter that lives follows the shared rules"), "{none:?}");
}

#[test]
fn a_name_that_no_limiter_has_is_a_warning_and_one_that_is_nearly_a_rule_is_refused() {
    let server = server();
    let url = server.url();
    let set = |arguments: &[&str]| limiter(&url, &[&["rules", "set"], arguments, &["--wait", "0s"]].concat());
    // Nothing is known of limiters that live.
    set(&["getid", "5/10s", "--yes"]).ok();
    limiter(&url, &["rules", "unset", "getid", "--wait", "0s"]).ok();
    write(&server, INVENTORY, &["1"]);
    set(&["getid", "5/10s"]).failed(2, "got `getid`, which none has: write `getId`, or add `--force`");
    set(&["getid", "5/10s", "--yes"]).failed(2, "`--force`");
    let forced = set(&["getid", "5/10s", "--force"]);
    assert!(
        forced.code == Some(0) && forced.stderr.contains("no limiter that lives has the rule `getid`"),
        "{forced:?}"
    );
    let other = set(&["reports", "5/10s"]);
    assert!(
        other.code == Some(0) && other.stderr.contains("no limiter that lives has the rule `reports`"),
        "{other:?}"
    );
    let known = set(&["getId", "6/10s"]);
    assert!(!known.stderr.contains("warning: no limiter that lives has the rule"), "{known:?}");
    let part = set(&["api", "9/min", "--match", "user=7"]);
    assert!(part.stderr.contains("no limiter that lives has keys of `api` with the part `user`"), "{part:?}");
    let key = set(&["user:{user_id}", "9/h", "--key", "users:@7"]);
    assert!(key.stderr.contains("no limiter that lives has the key `users:@7`"), "{key:?}");
    let fitting = set(&["user:{user_id}", "9/h", "--key", "user:@8"]);
    assert!(!fitting.stderr.contains("has the key"), "{fitting:?}");
    let left_out = format!("{INVENTORY}{{\"left_out\":3}}\n");
    write(&server, &left_out, &["1"]);
    let unknown = set(&["another", "5/10s"]);
    assert!(!unknown.stderr.contains("no limiter that lives has the rule"), "its inventory is too long: {unknown:?}");
}
