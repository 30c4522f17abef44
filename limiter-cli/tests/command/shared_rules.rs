//! `rules`: changes of the shared rules.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use limiter_testkit::{Cluster, RedisServer, Sentinels};
use rate_limited::{Change, Key, Limiter, SharedRules};
use serde_json::json;

use crate::support::{command, finish, limiter, limiter_with_input, server};

const TEXT: &str = "# Quotas of the shop.\n\n# Agreed in May.\n[rules.getId]\nlimit = \"5/10s\" # per order\n\n\
                    [rules.search]\nlimit = \"10/s\"\n";

fn import(server: &RedisServer, text: &str) {
    limiter_with_input(&server.url(), &["rules", "import", "-", "--yes"], text.as_bytes()).ok();
}

fn export(server: &RedisServer) -> String {
    limiter(&server.url(), &["rules", "export"]).ok()
}

/// What a change states where no limiter writes heartbeats.
const NOBODY: &str = "warning: no limiter lives under the prefix `rl` in this database, or it began less than 10 s ago: check the URL with its database, and `--prefix`; one that follows the shared rules reads them when it starts\n";

#[test]
fn comments_and_order_stay() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), &[&["rules"], arguments].concat()).ok();
    import(&server, TEXT);
    run(&["set", "getId", "50/10s", "--mode", "shadow"]);
    run(&["set", "user:{id}", "1/s", "--on-error", "closed", "--deadline", "50ms"]);
    run(&["set", "user:{id}", "9/s", "--match", "id=42"]);
    run(&["set", "user:{id}", "--mode", "deny", "--key", "user:@13"]);
    let expected = "# Quotas of the shop.\n\n# Agreed in May.\n[rules.getId]\nlimit = \"50/10s\" # per order\n\
                    mode = \"shadow\"\n\n[rules.search]\nlimit = \"10/s\"\n\n[rules.\"user:{id}\"]\nlimit = \"1/s\"\n\
                    on_error = \"closed\"\ndeadline = \"50ms\"\n\n[[rules.\"user:{id}\".override]]\nmatch = { id = \"42\" }\n\
                    limit = \"9/s\"\n\n[[rules.\"user:{id}\".override]]\nkey = \"user:@13\"\nmode = \"deny\"\n";
    assert_eq!(export(&server), expected);
    run(&["unset", "getId", "--mode"]);
    run(&["unset", "user:{id}", "--match", "id=42"]);
    run(&["unset", "user:{id}", "--key", "user:@13"]);
    run(&["unset", "user:{id}"]);
    assert_eq!(export(&server), TEXT.replace("5/10s", "50/10s"));
}

#[test]
fn a_change_has_its_diff_version_author_and_reason() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    let first = run(&["rules", "set", "getId", "5/10s", "--why", "launch", "--who", "ben"]);
    assert_eq!(first.stderr, format!("`getId` is a new rule\n{NOBODY}"), "{first:?}");
    assert_eq!(first.ok(), "@@ -0,0 +1,2 @@\n+[rules.getId]\n+limit = \"5/10s\"\nversion 1 is published\n");
    let second = run(&["--json", "rules", "set", "getId", "50/10s"]).json();
    let diff = "@@ -1,2 +1,2 @@\n [rules.getId]\n-limit = \"5/10s\"\n+limit = \"50/10s\"\n";
    let waited = &second["in_force"]["waited_ms"];
    let nobody = json!({ "limiters": 0, "of": 0, "waited_ms": waited, "behind": [], "without_shared_rules": [] });
    assert_eq!(second, json!({ "version": 2, "changed": true, "dry_run": false, "diff": diff, "in_force": nobody }));
    let history = run(&["--json", "rules", "history"]).json();
    let entry =
        |at: usize| (history[at]["version"].as_u64(), history[at]["why"].as_str(), history[at]["toml"].as_str());
    assert_eq!(entry(0), (Some(2), Some(""), Some("[rules.getId]\nlimit = \"50/10s\"\n")));
    assert_eq!(entry(1), (Some(1), Some("launch"), Some("[rules.getId]\nlimit = \"5/10s\"\n")));
    assert_eq!(history[1]["who"], "ben");
    assert!(history[0]["who"].as_str().is_some_and(|who| who.starts_with("ana@") && who.len() > 4), "{history}");
    let table = run(&["rules", "history", "-n", "1"]).ok();
    assert!(table.starts_with("VERSION  WHEN") && table.contains(" UTC, ") && table.contains("+1 -1"), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
}

#[test]
fn a_change_that_changes_nothing_is_reported_and_publishes_nothing() {
    let server = server();
    import(&server, TEXT);
    let same = limiter(&server.url(), &["rules", "set", "search", "10/s"]).ok();
    assert_eq!(same, "nothing changes: version 1 has this already\n");
    let json = limiter(&server.url(), &["--json", "rules", "unset", "search", "--burst"]).json();
    assert_eq!(json, json!({ "version": 1, "changed": false, "dry_run": false }));
    assert_eq!(limiter(&server.url(), &["--json", "rules", "list"]).json()["version"], 1);
}

#[test]
fn a_dry_run_shows_the_change_and_publishes_nothing() {
    let server = server();
    import(&server, TEXT);
    let ran = limiter(&server.url(), &["rules", "set", "search", "10/min", "--dry-run"]);
    assert!(ran.stderr.starts_with("`search` starts new counts, so each key has its full quota again: the window"));
    let diff =
        "@@ -5,4 +5,4 @@\n limit = \"5/10s\" # per order\n \n [rules.search]\n-limit = \"10/s\"\n+limit = \"10/min\"\n";
    assert_eq!(ran.ok(), diff);
    assert_eq!(export(&server), TEXT);
}

#[test]
fn the_last_rule_can_be_removed() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "a", "1/s"]).ok();
    limiter(&server.url(), &["rules", "unset", "a"]).ok();
    assert!(limiter(&server.url(), &["rules", "list"]).ok().ends_with("\nthe text has no rules\n"));
    limiter(&server.url(), &["rules", "set", "b", "1/s"]).ok();
    assert_eq!(export(&server), "[rules.b]\nlimit = \"1/s\"\n");
    limiter_with_input(&server.url(), &["rules", "import", "-"], b"#\n").ok();
    assert_eq!(export(&server), "#\n");
}

#[test]
fn rules_are_listed_and_shown_alone() {
    let server = server();
    assert_eq!(limiter(&server.url(), &["rules", "list"]).ok(), "no shared rules are published\n");
    import(&server, TEXT);
    limiter(&server.url(), &["rules", "set", "search", "--mode", "off", "--match", "q=x"]).ok();
    let list = limiter(&server.url(), &["rules", "list"]).ok();
    let lines: Vec<_> = list.lines().collect();
    assert!(lines[0].starts_with("version 2 of ana@"), "{list}");
    assert_eq!(lines[1], "RULE    LIMITS  ALGORITHM  MODE  ON ERROR  DEADLINE  PLANS  OVERRIDES");
    assert_eq!(lines[2], "getId   5/10s   -          -     -         -         -              0");
    assert_eq!(lines[3], "search  10/s    -          -     -         -         -              1");
    assert_eq!(lines[4], "  q=x   -       -          off   -         -");
    let json = limiter(&server.url(), &["--json", "rules", "get", "search"]).json();
    let of_override = json!({ "limits": [], "match": { "q": "x" }, "mode": "off" });
    assert_eq!(json, json!({ "name": "search", "limits": ["10/s"], "overrides": [of_override] }));
    let text = limiter(&server.url(), &["rules", "get", "search"]).ok();
    let expected =
        "[rules.search]\nlimit = \"10/s\"\n\n[[rules.search.override]]\nmatch = { q = \"x\" }\nmode = \"off\"\n";
    assert_eq!(text, expected);
}

#[test]
fn overrides_are_listed_with_their_limits() {
    let server = server();
    let many: String =
        (0..30).map(|id| format!("[[rules.b.override]]\nkey = \"{id}\"\nlimit = \"{id}1/s\"\n")).collect();
    let of_users = "[rules.\"u:{id}\"]\nlimit = \"1/s\"\n[[rules.\"u:{id}\".override]]\nmatch = { id = 42 }\n\
                    limits = [\"9/s\", \"99/min\"]\nalgorithm = \"token_bucket\"\n";
    import(&server, &format!("{of_users}[rules.b]\nlimit = \"1/s\"\n{many}"));
    let list = limiter(&server.url(), &["rules", "list"]).ok();
    let rows: Vec<Vec<_>> = list.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["u:{id}", "1/s", "-", "-", "-", "-", "-", "1"], "{list}");
    assert_eq!(rows[1], ["id=42", "9/s,", "99/min", "token_bucket", "-", "-", "-"], "{list}");
    assert_eq!(rows[3], ["0", "01/s", "-", "-", "-", "-"], "{list}");
    assert_eq!((rows.len(), rows[23].join(" ")), (24, "and 10 more".to_owned()), "{list}");
    let json = limiter(&server.url(), &["--json", "rules", "list"]).json();
    assert_eq!(json["rules"][1]["overrides"].as_array().map(Vec::len), Some(30), "{json}");
    assert_eq!(json["rules"][0]["overrides"][0]["limits"], json!(["9/s", "99/min"]), "{json}");
}

#[test]
fn keys_of_another_type_are_a_failure_of_the_store() {
    let server = server();
    for (command, key) in [("LPUSH", "version"), ("SADD", "version"), ("LPUSH", "toml")] {
        server.command(&["FLUSHALL"]);
        if key == "toml" {
            server.command(&["SET", "rl-rules:{rules}:version", "9 0"]);
        }
        server.command(&[command, &format!("rl-rules:{{rules}}:{key}"), "1"]);
        for rules in [&["rules", "list"][..], &["rules", "export"], &["check", "a", "--rule", "a"]] {
            limiter(&server.url(), rules).failed(3, "a key of the shared rules holds something else than this limiter");
        }
    }
}

#[test]
fn limits_of_one_window_draw_a_warning() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), &[&["rules"], arguments].concat());
    let message = |limits: &str| {
        format!(
            "warning: `a` has {limits}, which have one window and so one count: write the smaller one alone, or another window\n"
        )
    };
    let set = run(&["set", "a", "7/s", "7/s"]);
    assert!(set.code == Some(0) && set.stderr.contains(&message("`7/s` and `7/s`")), "{set:?}");
    let of_override = run(&["set", "a", "60/min", "9/1h", "70/min", "--key", "a", "--yes"]);
    assert!(of_override.stderr.contains(&message("`60/min` and `70/min`")), "{of_override:?}");
    let lint = limiter_with_input("", &["rules", "lint", "-"], export(&server).as_bytes());
    assert_eq!(lint.stderr.matches("warning: standard input: `a` has ").count(), 2, "{lint:?}");
    assert!(!run(&["set", "a", "7/s", "70/min"]).stderr.contains("warning: `a` has"));
    let apart = "[rules.a]\nlimits = [\"7/s\", { limit = \"9/s\", algorithm = \"token_bucket\" }]\n";
    assert_eq!(limiter_with_input("", &["rules", "lint", "-"], apart.as_bytes()).stderr, "");
}

#[test]
fn a_value_that_no_key_has_draws_a_warning() {
    let server = server();
    let set = |value: &str| {
        limiter(&server.url(), &["rules", "set", "api", "--mode", "deny", "--match", &format!("ip={value}")])
    };
    let warned = set("10.0.0.1/8");
    assert!(
        warned.stderr.contains("`10.0.0.1/8`, which is no network and matches as a text alone: write `10.0.0.0/8`")
    );
    assert!(set("2001:db8::9").stderr.contains(": write `2001:db8::/64`"));
    for value in ["10.0.0.0/8", "2001:db8::/64"] {
        assert_eq!(set(value).stderr, format!("the override of `api` is new\n{NOBODY}"));
    }
}

#[test]
fn a_rollback_publishes_an_earlier_text_again() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    run(&["rules", "rollback", "1"])
        .failed(2, "`VERSION` must be one of the history, which is empty: publish rules first");
    import(&server, TEXT);
    run(&["rules", "set", "getId", "6/10s"]).ok();
    run(&["rules", "set", "getId", "7/10s"]).ok();
    assert!(run(&["rules", "rollback", "1", "--why", "too many"]).ok().ends_with("version 4 is published\n"));
    assert_eq!(export(&server), TEXT);
    assert_eq!(run(&["--json", "rules", "list"]).json()["why"], "too many");
    assert_eq!(run(&["rules", "rollback", "1"]).ok(), "nothing changes: version 4 has this already\n");
}

#[test]
fn all_rules_are_removed_by_a_publication() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), &[&["rules"], arguments].concat());
    import(&server, TEXT);
    run(&["clear"]).failed(2, "`--yes` must be given for a change that removes all shared rules");
    assert!(run(&["clear", "--dry-run"]).ok().contains("-[rules.getId]"));
    assert_eq!(export(&server), TEXT);
    assert!(run(&["clear", "--yes", "--why", "moved"]).ok().ends_with("version 2 is published\n"));
    assert_eq!(export(&server), "# No shared rules.\n");
    assert_eq!(run(&["clear", "--yes"]).ok(), "nothing changes: version 2 has this already\n");
    // Without a text it is the first version, which processes follow.
    server.command(&["FLUSHALL"]);
    assert!(run(&["clear", "--yes"]).ok().ends_with("version 1 is published\n"));
}

#[test]
fn a_file_is_compared_and_replaces_the_text() {
    let server = server();
    import(&server, TEXT);
    let changed = TEXT.replace("10/s", "11/s");
    let diff = limiter_with_input(&server.url(), &["rules", "diff", "-"], changed.as_bytes()).ok();
    assert!(diff.ends_with("-limit = \"10/s\"\n+limit = \"11/s\"\n"), "{diff}");
    let same = limiter_with_input(&server.url(), &["rules", "diff", "-"], TEXT.as_bytes());
    assert_eq!((same.code, &*same.stdout, &*same.stderr), (Some(0), "", "no difference from version 1\n"));
    import(&server, &changed);
    assert_eq!(export(&server), changed);
}

#[test]
fn a_difference_of_line_ends_alone_is_shown() {
    let server = server();
    import(&server, "[rules.a]\nlimit = \"1/s\"\n");
    let cases = [
        ("[rules.a]\nlimit = \"1/s\"", "-limit = \"1/s\"\n+limit = \"1/s\"\n\\ No newline at end of file\n"),
        ("[rules.a]\r\nlimit = \"1/s\"\n", "-[rules.a]\n+[rules.a]\\r\n limit = \"1/s\"\n"),
    ];
    for (text, expected) in cases {
        let diff = limiter_with_input(&server.url(), &["--json", "rules", "diff", "-"], text.as_bytes()).json();
        assert_eq!(
            (&diff["changed"], diff["diff"].as_str().map(|diff| diff.ends_with(expected))),
            (&json!(true), Some(true)),
            "{diff}"
        );
        let diff = limiter_with_input(&server.url(), &["rules", "diff", "-"], text.as_bytes()).ok();
        assert!(diff.ends_with(expected), "{diff}");
    }
}

#[test]
fn tables_of_limits_are_listed_and_keep_their_settings() {
    let server = server();
    import(
        &server,
        "[rules.a.limit]\nlimit = \"5/s\"\nalgorithm = \"token_bucket\"\n\n[[rules.b.limits]]\nlimit = \"5/s\"\n\
         algorithm = \"token_bucket\"\n\n[[rules.b.limits]]\nlimit = \"9/min\"\n",
    );
    let table = limiter(&server.url(), &["rules", "list"]).ok();
    assert!(table.contains("5/s (token_bucket)  ") && table.contains("5/s (token_bucket), 9/min"), "{table}");
    limiter(&server.url(), &["rules", "set", "a", "6/min"]).failed(2, "the window changes from 1 s to 1 min");
    limiter(&server.url(), &["rules", "set", "b", "9/h", "5/s"]).failed(2, "the window changes from 1 min to 1 h");
    limiter(&server.url(), &["rules", "set", "a", "6/s"]).ok();
    limiter(&server.url(), &["rules", "set", "b", "8/min", "6/s"]).ok();
    let expected = "[rules.a.limit]\nlimit = \"6/s\"\nalgorithm = \"token_bucket\"\n\n[[rules.b.limits]]\nlimit = \"6/s\"\n\
         algorithm = \"token_bucket\"\n\n[[rules.b.limits]]\nlimit = \"8/min\"\n";
    assert_eq!(export(&server), expected);
}

#[test]
fn of_many_changes_at_once_each_is_published_whole_or_ends_with_code_4() {
    let server = server();
    let round = |round: usize| {
        let start = |process: usize| {
            let arguments = ["rules", "set", &format!("r{round}-{process}"), "5/s"].map(str::to_owned);
            command(&server.url(), &arguments).spawn().expect("the program starts")
        };
        let running: Vec<Child> = (0..6).map(start).collect();
        let mut published = 0;
        for (process, child) in running.into_iter().enumerate() {
            let ran = finish(child);
            let is_there = export(&server).contains(&format!("[rules.r{round}-{process}]"));
            match ran.code {
                Some(0) => published += 1,
                _ => ran.failed(4, "nothing was published, repeat the command\n@@ -"),
            }
            assert_eq!(is_there, ran.code == Some(0), "{ran:?}");
        }
        assert!(published >= 1);
        published
    };
    let published: u64 = (0..4).map(round).sum();
    assert_eq!(limiter(&server.url(), &["--json", "rules", "list"]).json()["version"], published);
}

#[tokio::test]
async fn an_older_version_than_given_is_a_conflict_with_the_difference_since() {
    let server = server();
    import(&server, TEXT);
    let rules = SharedRules::new(&Limiter::connect(server.url()).await.expect("a server"));
    let change = Change { based_on: 1, who: "cron".to_owned(), why: "night".to_owned() };
    rules.publish(&TEXT.replace("10/s", "1/s"), change).await.expect("published");
    let arguments = ["rules", "set", "getId", "9/10s", "--if-version", "1"];
    let ran = limiter(&server.url(), &arguments);
    ran.failed(4, "the shared rules must be at version 1 by `--if-version`, got version 2 of cron, ");
    ran.failed(4, "-limit = \"10/s\"\n+limit = \"1/s\"\n");
    let json = limiter(&server.url(), &[&["--json"], &arguments[..]].concat());
    let error: serde_json::Value = serde_json::from_str(&json.stderr).expect("JSON");
    assert_eq!(error["error"]["kind"], "conflict");
    assert!(error["error"]["diff"].as_str().expect("a text").contains("+limit = \"1/s\"\n"), "{error}");
    assert!(limiter(&server.url(), &["rules", "set", "getId", "9/10s", "--if-version", "2"]).code == Some(0));
}

#[tokio::test]
async fn a_change_reaches_a_process_that_follows_the_rules() {
    let server = server();
    let follower = Limiter::builder()
        .url(server.url())
        .deadline(Duration::from_secs(60))
        .shared_rules()
        .connect()
        .await
        .expect("a server");
    let (key, limit) = (Key::new("getId"), "5/10s".parse().expect("valid"));
    for (version, max) in [(1, 50), (2, 60)] {
        let arguments = ["rules", "set", "getId", &format!("{max}/10s")].map(str::to_owned);
        limiter(&server.url(), &arguments).ok();
        let follows = async {
            while follower.shared_rules_version() < version {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(300), follows).await.expect("the version arrives");
        let decision = follower.named("getId").check(&key, &limit).await.expect("a decision");
        assert_eq!(decision.into_result().expect("allowed").limit().max(), max);
    }
}

#[test]
fn a_pipe_that_closes_ends_the_output_without_a_message() {
    let server = server();
    let text: String = (0..20_000).map(|rule| format!("[rules.r{rule}]\nlimit = \"5/s\"\n")).collect();
    import(&server, &text);
    for arguments in [["rules", "list"], ["rules", "export"]] {
        let mut child = command(&server.url(), &arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut [0; 10]).expect("the first bytes");
        drop(stdout);
        let ran = finish(child);
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    }
}

#[test]
fn an_operator_needs_the_documented_permissions_alone() {
    let rules_on = |page: &'static str, user: &str| {
        let start = format!("ACL SETUSER {user} on >password ");
        page.lines().find_map(|line| line.strip_prefix(&start)).expect("a line for the user")
    };
    let rules = rules_on(include_str!("../../../docs/operations.md"), "operator");
    let server = RedisServer::builder().tcp().user_with_rules("operator", "pw", rules).start();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    run(&["rules", "set", "getId", "5/10s"]).ok();
    run(&["rules", "set", "getId", "6/10s"]).ok();
    run(&["rules", "rollback", "1"]).ok();
    run(&["rules", "history"]).ok();
    assert_eq!(run(&["rules", "export"]).ok(), "[rules.getId]\nlimit = \"5/10s\"\n");
    run(&["check", "a", "--limit", "5/s"]).failed(3, "error: ");

    let reader = RedisServer::builder()
        .tcp()
        .user_with_rules("reader", "pw", "-@all ~rl-rules:* +script|load +evalsha +mget +lrange")
        .start();
    for command in ["list", "export", "history"] {
        limiter(&reader.url(), &["rules", command]).ok();
    }
    limiter(&reader.url(), &["rules", "set", "getId", "5/10s"]).failed(3, "error: Redis refused the ");

    let rules = rules_on(include_str!("../../../docs/cli.md"), "oncall");
    let server = RedisServer::builder().tcp().user_with_rules("oncall", "pw", rules).start();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    run(&["rules", "set", "getId", "5/10s"]).ok();
    run(&["check", "getId", "--rule", "getId"]).ok();
    run(&["reset", "getId", "--rule", "getId"]).ok();
    run(&["bench", "--seconds", "1", "--tasks", "2"]).ok();
    run(&["instances"]).ok();
    let why = run(&["why", "getId"]).ok();
    assert!(!why.contains("unknown"), "{why}");
    let findings = run(&["--json", "doctor"]).json();
    let unknown = findings.as_array().expect("a list").iter().filter(|finding| finding["status"] == "unknown");
    let unknown: Vec<_> = unknown.map(|finding| finding["check"].as_str().expect("a name")).collect();
    assert_eq!(unknown, ["cluster", "sentinel", "packed", "activity"], "{findings}");
}

#[test]
fn sentinel_and_cluster_have_shared_rules() {
    let (cluster, sentinels) = (Cluster::start(), Sentinels::start());
    for url in [cluster.url(), sentinels.url()] {
        limiter(&url, &["rules", "set", "getId", "1/h"]).ok();
        let check = ["check", "getId", "--rule", "getId"];
        assert_eq!((limiter(&url, &check).code, limiter(&url, &check).code), (Some(0), Some(1)));
    }
}
