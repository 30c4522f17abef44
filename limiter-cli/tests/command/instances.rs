//! `limiter instances`.

use limiter_testkit::LiveLimiters;
use serde_json::json;

use crate::support::{limiter, server};

#[test]
fn instances_are_listed_with_escaped_texts() {
    let server = server();
    let url = server.url();
    assert!(limiter(&url, &["instances"]).ok().starts_with("no limiter has written a heartbeat"));
    assert_eq!(limiter(&url, &["instances", "--json"]).json(), json!([]));
    let plain = "00000000000000aa web-1 12 0.1.0 951782399000 17 up";
    let foreign = "00000000000000bb \u{1b}[31mweb 13 0.1.0 951782400000 - \u{202e}down";
    LiveLimiters::on(&server).beat_as("", &[plain, foreign, "of no limiter"]);
    LiveLimiters::on(&server).prefix("other").beat_as("", &["00000000000000cc web-2 14 0.1.0 951782399000 - up"]);
    let text = limiter(&url, &["instances"]).ok();
    let rows: Vec<Vec<_>> =
        text.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    let trimmed = |row: &[&str]| row.iter().map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(trimmed(&rows[0]), ["ID", "HOST", "PID", "SINCE", "LAST SEEN", "RULES", "STORE"]);
    let first = trimmed(&rows[1]);
    assert_eq!(
        [&*first[0], &*first[1], &*first[2], &*first[5], &*first[6]],
        ["00000000000000aa", "web-1", "12", "17", "up"]
    );
    assert!(first[3].starts_with("2000-02-28 23:59:59 UTC") && first[4].ends_with(" s ago"), "{text}");
    assert!(trimmed(&rows[2])[1] == r"\u{1b}[31mweb" && text.contains(r"\u{202e}down"), "{text}");

    let listed = limiter(&url, &["instances", "--json"]);
    assert!(!listed.stdout.contains(['\u{1b}', '\u{202e}']), "{listed:?}");
    let listed = listed.json();
    assert_eq!(listed[0]["id"], json!("00000000000000aa"));
    assert_eq!(listed[0]["since"], json!("2000-02-28T23:59:59Z"));
    assert_eq!((&listed[0]["rules_version"], &listed[1]["rules_version"]), (&json!(17), &json!(null)));
    assert_eq!((&listed[1]["host"], &listed[1]["pid"]), (&json!("\u{1b}[31mweb"), &json!(13)));
    assert_eq!(limiter(&url, &["instances", "--prefix", "other", "--json"]).json()[0]["host"], json!("web-2"));
}

#[test]
fn the_command_needs_a_shared_store_and_writes_no_heartbeat() {
    limiter("memory:", &["instances"]).failed(2, "`instances`");
    let server = server();
    limiter(&server.url(), &["instances"]).ok();
    assert!(server.all_keys().is_empty());
}
