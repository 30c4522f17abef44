//! Tests of `why` and of changes of the shared rules, with limiters that live.

use limiter_testkit::{LiveLimiters, RedisServer};
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
    LiveLimiters::on(server).beat(inventory, versions);
}

#[test]
fn why_shows_each_rule_that_fits_a_key_with_its_use_and_the_next_call() {
    let server = server();
    let url = server.url();
    let inventory = INVENTORY
        .replace(r#"["2/h"],"mode":"enforce","origin":"attribute""#, r#"["4/h"],"mode":"enforce","origin":"shared""#);
    write(&server, &inventory, &["-", "1", "1", "1", "1"]);
    limiter(&url, &["rules", "set", "user:{user_id}", "4/h", "--wait", "0s"]).ok();
    limiter(&url, &["rules", "set", "user:{user_id}", "--match", "user_id=7", "9/h", "--wait", "0s"]).ok();
    let check = |key: &str, limit: &str| limiter(&url, &["check", key, "--limit", limit]).ok();
    (0..3).for_each(|_| drop(check("user:@42", "4/h")));
    let text = limiter(&url, &["why", "user:@42"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["user:@42"]);
    assert_eq!(rows[2], ["bucket", "3/h", "token_bucket", "file", "enforce", "0", "3", "now", "5"], "{text}");
    let shared = ["user:{user_id}", "4/h", "shared", "enforce", "3", "1", "now", "5"];
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
    assert_eq!((&rule["allowed"], &rule["origin"]), (&json!(false), &json!("shared")));
    assert_eq!((&rule["limits"][0]["used"], &rule["limiters"]), (&json!(4), &json!(5)));
    assert!(rule["retry_after_ms"].as_u64().is_some_and(|millis| millis > 3_000_000), "{json}");

    let of_override = limiter(&url, &["why", "user:@7", "--rule", "user:{user_id}", "--json"]).json();
    let rule = &of_override["rules"][0];
    assert_eq!((&rule["limits"][0]["limit"], &rule["origin"]), (&json!("9/h"), &json!("an override")));
    // A limit of expressions is in the source alone, so it may deny.
    let api = limiter(&url, &["why", "api:", "--part", "192.0.2.1", "--json"]).json();
    assert_eq!(
        (&api["rules"][0]["limits"][0]["limit"], &api["rules"][0]["unread_limits"]),
        (&json!("100/min"), &json!(["MAX/s"]))
    );
    let api = limiter(&url, &["why", "api:", "--part", "192.0.2.1"]).ok();
    assert!(api.contains("MAX/s") && api.ends_with("each limit that is known allows the next call\n"), "{api}");
    // A layer's rule has its parts from the limiters.
    limiter(&url, &["rules", "set", "api", "3/min", "--match", "ip=192.0.2.0/24", "--wait", "0s"]).ok();
    let api = limiter(&url, &["why", "api:", "--part", "192.0.2.1", "--json"]).json();
    assert_eq!(
        (&api["rules"][0]["limits"][0]["limit"], &api["rules"][0]["unread_limits"]),
        (&json!("3/min"), &json!([]))
    );
    let long = "x".repeat(300);
    limiter(&url, &["why", "user:", "--part", &long]).failed(2, "`--rule` must be written for a key with a digest");
    assert!(limiter(&url, &["why", "user:", "--part", &long, "--rule", "user:{user_id}"]).ok().contains("4/h"));
    assert_eq!(limiter(&url, &["why", "direct", "--json"]).json()["rules"][0]["limits"], json!([]));
    assert!(limiter(&url, &["why", "nothing:@1"]).ok().contains("no rule of a limiter that lives"));
    limiter(&url, &["why", "user:@42", "--rule", "getid"]).failed(2, "got `getid`: write `getId`");
}

#[test]
fn why_shows_modes_and_blocks_and_foreign_texts_as_text() {
    let server = server();
    let url = server.url();
    let foreign = "{\"rule\":\"\\u001b[31mred\",\"keys\":[\"red\"],\"limits\":[\"\\u202e5/10s\"],\"origin\":\"\\u001b\"}\n\u{1b}[0m";
    write(&server, foreign, &["1"]);
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
    let place = "warning: no limiter lives under the prefix `rl` in this database, or it began less than 10 s ago: check the URL with its database, and `--prefix`";
    assert!(nobody.stderr.contains(place), "{nobody:?}");
    write(&server, INVENTORY, &["9", "9", "-"]);
    let other = limiter(&url, &["rules", "set", "getId", "6/10s", "--prefix", "shop"]);
    assert!(other.stderr.contains("no limiter lives under the prefix `shop` in this database"), "{other:?}");
    let all = limiter(&url, &["rules", "set", "getId", "6/10s"]);
    assert!(all.stdout.contains("version 2 is published\nin force in 2 of 2 limiters after "), "{all:?}");
    assert!(all.stderr.contains("these follow no shared rules: web-2 (12)"), "{all:?}");
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
    // A short name was a warning alone.
    set(&["ap", "5/s"]).failed(2, "got `ap`, which none has: write `api`, or add `--force`");
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

#[test]
fn a_rule_that_limiters_have_needs_no_limit_on_the_command_line() {
    let server = server();
    let url = server.url();
    let run = |command: &str, key: &str, rule: &str| limiter(&url, &[command, key, "--rule", rule]);
    run("peek", "user:@42", "user:{user_id}").failed(2, "`--rule` must be a rule of the shared rules");
    write(&server, INVENTORY, &["1"]);
    for (code, left) in [(0, "1 left of 2/h"), (0, "0 left of 2/h"), (1, "0 left of 2/h")] {
        let checked = run("check", "user:@42", "user:{user_id}");
        assert!(checked.code == Some(code) && checked.stdout.contains(left), "{checked:?}");
    }
    // An override of the shared rules comes before the limits of the source.
    limiter(&url, &["rules", "set", "user:{user_id}", "9/h", "--match", "user_id=7", "--wait", "0s"]).ok();
    assert!(run("peek", "user:@7", "user:{user_id}").ok().contains("under 9/h"));
    assert!(run("check", "user:@1", "bucket").ok().contains("2 left of 3/h"), "a token bucket");
    run("reset", "user:@42", "user:{user_id}").ok();
    assert!(run("peek", "user:@42", "user:{user_id}").ok().contains("no count of this key under 2/h"));
    run("check", "direct", "direct").failed(2, "`direct`");
    run("check", "getId", "getid").failed(2, "write `getId`");
}

#[test]
fn why_shows_what_is_in_force_in_the_limiters_whatever_level_it_comes_from() {
    let server = server();
    let url = server.url();
    let line = |name: &str, limits: &str, mode: &str| {
        format!(r#"{{"rule":"{name}","keys":["{name}:{{id}}"],"limits":[{limits}],"mode":"{mode}","origin":"file"}}"#)
    };
    let zset = r#"{"limit":"2/h","algorithm":"sliding_window","layout":"zset"}"#;
    let seventeen = (1..=17).map(|max| format!(r#""{max}/h""#)).collect::<Vec<_>>().join(",");
    let lines = [
        line("denied", r#""5/h""#, "deny"),
        line("off", r#""5/h""#, "off"),
        line("shadow", r#""1/h""#, "shadow"),
        line("zset", zset, "enforce"),
        line("blocked", r#""1/s""#, "enforce"),
        line("too-many", &seventeen, "enforce"),
    ];
    write(&server, &lines.join("\n"), &["-"]);
    let why = |key: &str| limiter(&url, &["why", key, "--json"]).json()["rules"][0].clone();
    let mode = |key: &str| why(key)["mode"].clone();
    assert_eq!([mode("denied:@1"), mode("off:@1"), mode("shadow:@1")], ["deny", "off", "shadow"]);
    assert!(limiter(&url, &["why", "denied:@1"]).stdout.ends_with("denied by `denied`: next call never\n"));
    assert_eq!(why("denied:@1")["retry_after_ms"], json!(null));
    // The set of the layout is read, not a compact counter.
    server.command(&["ZADD", "CurrentLimiter:zset:@1@", "1", "a"]);
    let of_set = limiter(&url, &["why", "zset:@1", "--json"]);
    assert!(of_set.json()["rules"][0]["limits"][0]["limit"] == json!("2/h"), "{of_set:?}");
    // The limiters that live have no block for it.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    std::fs::write(&file, "[rules.blocked]\nlimit = '1/s'\nblock = '1h'\n").expect("written");
    let file = file.display().to_string();
    let check = || limiter(&url, &["check", "blocked:@1", "--rule", "blocked", "--rules", &file]).code;
    while check() != Some(1) {}
    std::thread::sleep(std::time::Duration::from_secs(1));
    let blocked = why("blocked:@1");
    assert_eq!((&blocked["blocked"], &blocked["allowed"]), (&json!(true), &json!(false)), "{blocked}");
    let reset = limiter(&url, &["reset", "blocked:@1", "--rule", "blocked", "--json"]).json();
    assert_eq!(reset["was_blocked"], json!(null), "the rule that the command knows has no block");
    assert_eq!(why("blocked:@1")["blocked"], json!(false));
    // A line that no limiter could write takes nothing from the others.
    assert_eq!(why("too-many:@1")["limits"], json!([]));
    // Nobody follows the shared rules, so they are in force nowhere.
    limiter(&url, &["rules", "set", "off", "--mode", "deny", "--wait", "0s"]).ok();
    assert_eq!(mode("off:@1"), json!("off"));
}

#[test]
fn why_of_a_key_that_no_rule_makes_shows_the_templates() {
    let server = server();
    let url = server.url();
    write(&server, INVENTORY, &["-"]);
    let text = limiter(&url, &["why", "user:42"]).ok();
    assert!(
        text.contains("fits this key: their keys are `api:{ip:/32/64}`, `getId`, `user:{id}`, `user:{user_id}`"),
        "{text}"
    );
    let other = ["why", "getId", "--rule", "user:{user_id}"];
    limiter(&url, &other).failed(2, "got `user:{user_id}`, whose keys are `user:{user_id}`");
}

#[test]
fn why_counts_an_override_of_a_bucket_with_its_burst_and_its_followers() {
    let server = server();
    let url = server.url();
    let inventory = INVENTORY.replace(r#""algorithm":"token_bucket""#, r#""algorithm":"token_bucket","burst":9"#);
    write(&server, &inventory, &["-", "1", "0"]);
    limiter(&url, &["rules", "set", "bucket", "--match", "id=42", "20/h", "--wait", "0s"]).ok();
    let rule = |key: &str| limiter(&url, &["why", key, "--rule", "bucket", "--json"]).json()["rules"][0].clone();
    let of_override = rule("user:@42");
    assert_eq!(of_override["limits"][0]["burst"], json!(9), "{of_override}");
    assert_eq!((&of_override["origin"], &of_override["limiters"]), (&json!("an override"), &json!(1)), "{of_override}");
    assert_eq!(rule("user:@43")["limiters"], json!(3));
    limiter(&url, &["rules", "set", "bucket", "--match", "id=13", "--mode", "deny", "--wait", "0s"]).ok();
    write(&server, &inventory, &["-", "2", "2"]);
    let blocked = rule("user:@13");
    assert_eq!((&blocked["origin"], &blocked["limiters"]), (&json!("an override"), &json!(2)), "{blocked}");
}

#[test]
fn why_tells_limits_of_a_deploy_apart() {
    let server = server();
    let url = server.url();
    write(&server, INVENTORY, &["1", "1", "1"]);
    let others = LiveLimiters::on(&server).digest(&"fedcba9876543210".repeat(2));
    let member = "00000000000000ff web-9 99 0.1.0 951782399000 1 up";
    others.beat_as(&INVENTORY.replace("5/10s", "8/10s"), &[member]);
    let text = limiter(&url, &["why", "getId"]).ok();
    assert!(text.contains("3 of 4") && text.contains("`getId` is other in: 8/10s in 1\n"), "{text}");
    let json = limiter(&url, &["why", "getId", "--json"]).json();
    assert_eq!((&json["rules"][0]["limiters"], &json["rules"][0]["other_limits"]), (&json!(3), &json!(["8/10s in 1"])));
    // What is too long or no text stops nothing.
    let inventory = others.name(&format!("inventory:{}", "fedcba9876543210".repeat(2)));
    server.command(&["DEL", &inventory]);
    server.command(&["HSET", &inventory, "a", "b"]);
    assert!(limiter(&url, &["why", "getId"]).ok().contains("5/10s"));
}

/// All limits of a rule had the time of the one that denies for the longest time.
#[test]
fn why_shows_the_next_call_of_each_limit() {
    let server = server();
    let url = server.url();
    let line = |limits: &str| {
        format!(r#"{{"rule":"a","keys":["a:{{id}}"],"limits":[{limits}],"mode":"enforce","origin":"file"}}"#)
    };
    write(&server, &line(r#""2/h","2/d","9/w""#), &["-"]);
    let why = || limiter(&url, &["why", "a:@1", "--json"]).json()["rules"][0].clone();
    let waits = |rule: &Value| -> Vec<u64> {
        let limits = rule["limits"].as_array().expect("a list").iter();
        limits.map(|limit| limit["retry_after_ms"].as_u64().expect("a number")).collect()
    };
    assert_eq!(waits(&why()), [0, 0, 0]);
    let check = ["check", "a:@1", "--limit", "2/h", "--limit", "2/d", "--limit", "9/w"];
    (0..2).for_each(|_| drop(limiter(&url, &check).ok()));
    let (denied, hour) = (why(), 3_600_000);
    let [of_hour, of_day, of_week] = waits(&denied)[..] else { panic!("{denied}") };
    assert!(of_hour > hour / 2 && of_hour <= hour && of_day > 23 * hour && of_week == 0, "{denied}");
    assert!(denied["retry_after_ms"].as_u64().is_some_and(|all| all > 23 * hour), "{denied}");
    let text = limiter(&url, &["why", "a:@1"]).stdout;
    let next =
        |line: usize| text.lines().nth(line).and_then(|line| line.split("  ").filter(|cell| !cell.is_empty()).nth(6));
    assert!(next(2).is_some_and(|next| next.trim().starts_with("in 59 min")), "{text}");
    assert_eq!((next(3).map(str::trim), next(4).map(str::trim)), (Some("in 23 h 59 min"), Some("now")), "{text}");
}

/// One forged heartbeat ended `why`, and many versions made a line of 2 MB.
#[test]
fn why_leaves_out_what_no_limiter_writes() {
    let server = server();
    let url = server.url();
    let nameless = r#"{"rule":"","keys":["getId"],"limits":["5/10s"],"mode":"enforce","origin":"file"}"#;
    let versions: Vec<_> = (1..=300).map(|version: u32| version.to_string()).collect();
    let versions: Vec<_> = versions.iter().map(String::as_str).collect();
    write(&server, &format!("{nameless}\n{INVENTORY}"), &versions);
    let text = limiter(&url, &["why", "getId"]).ok();
    assert!(text.contains("; 10 in 1 (web-9 (19)); and 290 more versions\n"), "{text}");
    let json = limiter(&url, &["why", "getId", "--json"]).json();
    assert_eq!(json["shared_rules"]["followed"].as_array().map(Vec::len), Some(100));
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(1));
}
