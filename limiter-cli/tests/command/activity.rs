//! `limiter top`, `limiter watch`, and the last denials of `why`.

use std::io::{BufRead, BufReader};

use limiter_testkit::{LiveLimiters, RedisServer};
use serde_json::{Value, json};

use crate::support::{command, limiter, server};

/// Writes an entry as a limiter does.
fn write(server: &RedisServer, number: u32, name: &str, lines: &str) {
    let text = format!("1 {number:016x} web-{number} {} {name}\n{lines}", 10 + number);
    LiveLimiters::on(server).add_activity(&text);
}

/// Two programs in three limiters.
fn write_fleet(server: &RedisServer) {
    let of_key = "r search 1000 a100+12 d40+30 c39+29\nr %1B[31m 1000 s5\nd 0 user:@42 30+20 0\nd 0 user:@7 10 2\n";
    write(server, 1, "checkout", of_key);
    write(server, 2, "checkout", "r search 1000 a50 d5+5\nd 0 user:@42 5+5 0\na 0 user:@1 50 0\n");
    write(server, 3, "the%20mailer", "r mail 1000 a7+1 b7+1\n");
    LiveLimiters::on(server).add_activity("of no limiter");
}

fn rows(text: &str) -> Vec<Vec<String>> {
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    text.lines().map(cells).collect()
}

#[test]
fn top_shows_rates_of_rules_and_the_top_keys_of_all_limiters() {
    let server = server();
    let url = server.url();
    assert!(limiter(&url, &["top"]).ok().starts_with("no limiter has written activity in the last 15 min"));
    write_fleet(&server);
    let text = limiter(&url, &["top"]).ok();
    let rows = rows(&text);
    assert_eq!(rows[0], ["3 limiters: checkout in 2, the mailer in 1"]);
    assert_eq!(rows[2], ["RULE", "ALLOWED/S", "DENIED/S", "DECIDED ELSEWHERE/S", "DENIED IN ALL", "LIMITERS"]);
    assert_eq!(rows[3], ["search", "12.0", "35.0", "cache 29.0", "45", "2"]);
    assert_eq!(rows[4], ["mail", "1.0", "0", "standby 1.0", "0", "1"]);
    assert_eq!(rows[5][0], r"\u{1b}[31m", "{text}");
    assert_eq!(rows[7], ["DENIED KEY", "RULE", "DENIALS", "LIMITERS", "LAST"]);
    assert_eq!(rows[8][..4], ["user:@42", "search", "35", "2"]);
    assert_eq!(rows[9][..4], ["user:@7", "search", "8 to 10", "1"]);
    assert_eq!(rows[12][..4], ["user:@1", "search", "50", "1"]);
    assert!(!text.contains('\u{1b}'), "{text:?}");

    let denied = limiter(&url, &["top", "--once", "--denied", "-n", "1"]).ok();
    assert!(denied.contains("user:@42") && !denied.contains("user:@7") && !denied.contains("ALLOWED KEY"), "{denied}");
    assert!(denied.contains("and 2 more: `-n 3` shows them"), "{denied}");
    let mail = limiter(&url, &["top", "--rule", "mail"]).ok();
    assert!(mail.contains("mail") && !mail.contains("search") && !mail.contains("DENIED KEY"), "{mail}");
    assert!(limiter(&url, &["top", "--rule", "serch"]).ok().contains("`serch` in the last 15 min: write `search`"));
    let of_customer = limiter(&url, &["top", "--key", "@42"]).ok();
    assert!(of_customer.contains("user:@42") && !of_customer.contains("user:@7"), "{of_customer}");
    assert_eq!(limiter(&url, &["top", "--key", "@7", "--json"]).json()["denied"].as_array().map(Vec::len), Some(1));
    assert!(limiter(&url, &["top", "--key", "@43"]).ok().contains("no key has `@43`"));
}

/// The line of the programs had 57 kB.
#[test]
fn top_names_few_of_many_programs() {
    let server = server();
    for number in 0..60 {
        write(&server, number, &format!("program-{number:02}"), "r search 1000 a1\n");
    }
    let text = limiter(&server.url(), &["top"]).ok();
    let first = text.lines().next().expect("a line");
    assert!(
        first.starts_with("60 limiters: program-00 in 1, ") && first.ends_with(", and 40 more programs"),
        "{first}"
    );
}

/// Activity has the beginning of such a name, so no rule was found by its name.
#[test]
fn a_rule_with_a_long_name_is_found_by_it() {
    let server = server();
    let long = "x".repeat(10_000);
    let written = rate_limited::ActivityLog::name_of_rule(&long).into_owned();
    write(&server, 1, "checkout", &format!("r {written} 1000 d4711+1\n"));
    assert!(limiter(&server.url(), &["top", "--rule", &long]).ok().contains("4711"));
}

/// A misspelt rule was watched in silence.
#[test]
fn watch_warns_of_a_rule_that_no_limiter_has_decided_by() {
    let server = server();
    write_fleet(&server);
    let mut watch = command(&server.url(), &["watch", "--rule", "serch"]).spawn().expect("the program starts");
    let mut lines = BufReader::new(watch.stderr.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert!(next().contains("3 limiters have written activity"));
    assert_eq!(next(), "warning: no limiter has decided by the rule `serch` in the last 15 min: write `search`");
    watch.kill().expect("it runs");
    watch.wait().expect("it has ended");
}

#[test]
fn top_and_watch_have_json() {
    let server = server();
    let url = server.url();
    write_fleet(&server);
    let ran = limiter(&url, &["top", "--json"]);
    assert!(!ran.stdout.contains('\u{1b}'), "{ran:?}");
    let top = ran.json();
    assert_eq!(top["programs"], json!({ "checkout": 2, "the mailer": 1 }));
    let search = &top["rules"][0];
    assert_eq!(
        (&search["rule"], &search["total"]["denied"], &search["limiters"]),
        (&json!("search"), &json!(45), &json!(2))
    );
    assert_eq!(search["per_second"]["denied"], json!(35.0));
    let first = &top["denied"][0];
    assert_eq!((&first["key"], &first["count"], &first["error"]), (&json!("user:@42"), &json!(35), &json!(0)));
    assert_eq!(limiter(&url, &["top", "--json", "--denied"]).json()["allowed"], Value::Null);

    let mut watch = command(&url, &["watch", "--json", "--rule", "search"]).spawn().expect("the program starts");
    let mut notes = BufReader::new(watch.stderr.take().expect("a pipe"));
    let mut note = String::new();
    notes.read_line(&mut note).expect("a line");
    assert!(note.contains("3 limiters have written activity"), "{note}");
    write(&server, 1, "checkout", "r search 1000 a100 d52+12\nr mail 1000 d1+1\nd 0 user:@42 40+10 0\nd 1 a 1+1 0\n");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    let (of_key, of_others) = (next(), next());
    assert_eq!(
        (&of_key["key"], &of_key["denials"], &of_key["host"]),
        (&json!("user:@42"), &json!(10), &json!("web-1"))
    );
    assert_eq!((&of_others["key"], &of_others["denials"]), (&json!(null), &json!(2)));
    watch.kill().expect("it runs");
    watch.wait().expect("it has ended");
}

#[test]
fn why_shows_the_last_denials_of_the_key() {
    let server = server();
    let url = server.url();
    assert!(!limiter(&url, &["why", "user:@42"]).ok().contains("LAST DENIAL"));
    write_fleet(&server);
    write(&server, 1, "checkout", "r search 1000 a100 d41+1 c39\nd 0 user:@42 31+1 0\n");
    let text = limiter(&url, &["why", "user:", "--part", "42"]).ok();
    let rows: Vec<_> = rows(&text).into_iter().skip_while(|row| row[0] != "LAST DENIAL").collect();
    assert_eq!(rows[0], ["LAST DENIAL", "RULE", "DENIALS IN 15 MIN", "LIMITER"]);
    assert_eq!(rows[1][1..], ["search", "21", "checkout, web-1 (11)"]);
    assert_eq!(rows[2][1..], ["search", "5", "checkout, web-2 (12)"]);
    let denials = limiter(&url, &["why", "user:@42", "--json"]).json()["last_denials"].clone();
    assert_eq!((&denials[0]["denials"], &denials[0]["pid"]), (&json!(21), &json!(11)));
    // With the secret of the service its keys are digests.
    let directory = tempfile::tempdir().expect("a directory");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef").expect("written");
    let secret = secret.to_str().expect("a path");
    let no_digest = limiter(&url, &["why", "user:@42", "--hash-keys", secret, "--json"]).json();
    assert_eq!(no_digest["last_denials"], json!([]));
}

#[test]
fn the_commands_need_a_shared_store_and_valid_options() {
    limiter("memory:", &["top"]).failed(2, "`top`");
    limiter("memory:", &["watch"]).failed(2, "`watch`");
    limiter("redis://127.0.0.1:1", &["top", "--every", "1ms"]).failed(2, "from 100 ms to 1 h");
    limiter("redis://127.0.0.1:1", &["top", "-n", "0"]).failed(2, "0 is not in 1..=10000");
    let server = server();
    server.command(&["SET", "rl-live:{rl}:activity", "a string"]);
    limiter(&server.url(), &["top"]).failed(3, "holds something else than a limiter writes");
    assert!(limiter(&server.url(), &["why", "a"]).ok().contains("no rule of a limiter"));
}
