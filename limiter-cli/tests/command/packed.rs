//! Tests of packed rules: the state of their keys, and changes that pack counts.

use limiter_testkit::LiveLimiters;
use serde_json::{Value, json};

use crate::support::{limiter, limiter_with_input, server};

const PACKED: &str =
    r#"{"rule":"user","keys":["user:{id}"],"limits":["2/h"],"mode":"enforce","origin":"file","packed":16384}"#;
const BUCKET: &str = r#"{"rule":"bucket","keys":["bucket"],"limits":[{"limit":"3/h","algorithm":"token_bucket"}],"mode":"enforce","origin":"attribute"}"#;

/// Each rule of a limiter got a block, which a packed one cannot have, so `why` failed.
#[test]
fn why_reads_the_counts_of_a_packed_rule() {
    let server = server();
    let url = server.url();
    let live = LiveLimiters::on(&server);
    live.beat(PACKED, &["-"]);
    let others = LiveLimiters::on(&server).digest(&"fedcba9876543210".repeat(2));
    others.beat_as(&PACKED.replace("2/h", "3/h"), &["00000000000000ff web-9 99 0.1.0 951782399000 - up"]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    let rules = "[rules.user]\nkey = 'user:{id}'\nlimit = '2/h'\npacked = 16384\n";
    std::fs::write(&file, rules).expect("written");
    let file = file.display().to_string();
    let check = || limiter(&url, &["check", "user:@1", "--rule", "user", "--rules", &file]);
    check().ok();
    let why = |key: &str| limiter(&url, &["why", key, "--json"]).json()["rules"][0].clone();
    let allowed = why("user:@1");
    assert_eq!((&allowed["limits"][0]["used"], &allowed["origin"]), (&json!(1), &json!("file")), "{allowed}");
    assert_eq!(allowed["other_limits"], json!(["3/h, packed = 16384 in 1"]), "{allowed}");
    check().ok();
    let denied = limiter(&url, &["why", "user:@1"]);
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.stdout.contains("denied by `user`: next call in 59 min"), "{denied:?}");
    limiter(&url, &["reset", "user:@1", "--rule", "user", "--rules", &file]).ok();
    assert_eq!(why("user:@1")["limits"][0]["used"], json!(0));
}

/// A limit of a packed rule differs from another one by its place, so none was one.
#[test]
fn why_shows_packed_shared_rules_as_others() {
    let server = server();
    let url = server.url();
    let toml = "[rules.bare]\npacked = 16384\n[rules.'user:{id}']\nlimit = '2/h'\npacked = 16384\n\
        [[rules.'user:{id}'.override]]\nmatch = { id = 7 }\nlimit = '9/h'\n\
        [rules.'group:{id}']\npacked = 16384\n[[rules.'group:{id}'.override]]\nmatch = { id = 7 }\nlimit = '9/h'\n";
    limiter_with_input(&url, &["rules", "import", "-", "--wait", "0s"], toml.as_bytes()).ok();
    let why = |key: &str| limiter(&url, &["why", key, "--json"]).json()["rules"][0].clone();
    assert_eq!(why("bare")["limits"], json!([]));
    assert!(!limiter(&url, &["why", "bare"]).ok().contains("4294967295"));
    let rule = |key: &str| {
        let state = why(key);
        (state["limits"][0]["limit"].clone(), state["origin"].clone())
    };
    assert_eq!(rule("user:@1"), (json!("2/h"), json!("shared")));
    assert_eq!(rule("user:@7"), (json!("9/h"), json!("an override")));
    // A rule without a limit has the one of the source.
    for command in ["peek", "check", "reset"] {
        limiter(&url, &[command, "bare", "--rule", "bare"]).failed(2, "`bare` must have a limit");
        let of_group = |key: &str| limiter(&url, &[command, key, "--rule", "group:{id}"]);
        of_group("group:@1").failed(2, "`group:{id}` must have a limit");
        of_group("group:@7").ok();
    }
}

#[test]
fn a_change_of_packed_is_confirmed() {
    let server = server();
    let url = server.url();
    LiveLimiters::on(&server).beat(&format!("{}\n{BUCKET}", PACKED.replace(r#","packed":16384"#, "")), &["-"]);
    let import = |toml: &str, options: &[&str]| {
        limiter_with_input(&url, &[&["rules", "import", "-", "--wait", "0s"], options].concat(), toml.as_bytes())
    };
    let packed = "[rules.user]\nlimit = '2/h'\npacked = 16384\n";
    let new_counts = "`user` starts new counts, so each key has its full quota again: `packed` changes from";
    let refused = import(packed, &[]);
    refused.failed(2, "`--yes` must be given for a change that starts new counts");
    refused.failed(2, &format!("{new_counts} none to 16384"));
    import(packed, &["--yes"]).ok();
    import(&packed.replace("16384", "32768"), &[]).failed(2, &format!("{new_counts} 16384 to 32768"));
    // Other settings of a packed rule keep the counts.
    limiter(&url, &["rules", "set", "user", "3/h", "--wait", "0s"]).ok();
    let listed = limiter(&url, &["rules", "list", "--json"]).json();
    assert_eq!(listed["rules"][0]["packed"], json!(16384), "{listed}");
    import("[rules.user]\nlimit = '3/h'\n", &[]).failed(2, &format!("{new_counts} 16384 to none"));
    let result: Value = import("[rules.user]\nlimit = '3/h'\n", &["--yes", "--json"]).json();
    assert_eq!(result["notes"], json!([format!("{new_counts} 16384 to none")]));
    let bucket = import("[rules.user]\nlimit = '3/h'\n[rules.bucket]\npacked = 16384\n", &["--yes"]);
    assert_eq!(bucket.code, Some(0), "{bucket:?}");
    let warning = "warning: `bucket` is packed beside `token_bucket` in the limiters that live: they reject the text";
    assert!(bucket.stderr.contains(warning), "{bucket:?}");
}
