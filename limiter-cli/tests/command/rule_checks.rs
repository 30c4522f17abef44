//! `check` by a rule of a file or of the shared rules.

use limiter_testkit::RedisServer;

use crate::support::{command, finish, limiter, limiter_with_input, server};

const RULES: &str = r#"
strict = true

[defaults]
on_error = "open"

[rules."user:{user_id}"]
limit = "2/h"
on_error = "standby"
deadline = "1ms"

[[rules."user:{user_id}".override]]
match = { user_id = "7" }
limit = "3/h"

[[rules."user:{user_id}".override]]
match = { user_id = "13" }
mode = "deny"

[rules.trial]
limit = "1/h"
mode = "shadow"

[rules.closed]
mode = "deny"

[rules.idle]
mode = "off"

[rules.sized]
on_error = "closed"

[rules.match]
limit = "1/h"
on_error = "open"

[rules.override]
limit = "1/h"
on_error = "open"
override = [{ match = { on_error = "a", deadline = "b" }, on_error = "open" }]
key = "{on_error}/{deadline}"
"#;

#[test]
fn a_rule_of_a_file_decides_with_its_overrides_and_modes() {
    let server = server();
    let run = |key: &str, rule: &str| {
        limiter_with_input(&server.url(), &["check", key, "--rule", rule, "--rules", "-"], RULES.as_bytes())
    };
    let user = "user:{user_id}";
    let codes =
        |key: &str, calls: usize| -> Vec<_> { (0..calls).map(|_| run(key, user).code.expect("ends")).collect() };
    assert_eq!(codes("user:@42", 3), [0, 0, 1]);
    assert_eq!(codes("user:@7", 4), [0, 0, 0, 1]);
    assert_eq!(codes("user:@13", 1), [1]);
    assert_eq!(run("user:@13", user).stdout, "denied: user:@13, the rule denies every call\n");
    assert!(run("t", "trial").ok().starts_with("allowed: t, 0 left of 1/h"));
    let shadowed = run("t", "trial").ok();
    assert!(shadowed.starts_with("allowed: t in shadow mode, otherwise denied, 0 left of 1/h"), "{shadowed}");
    assert_eq!(run("x", "closed").code, Some(1));
    assert_eq!(run("x", "idle").ok(), "allowed: x, the rule is not enforced\n");
}

#[test]
fn a_rule_without_a_limit_or_a_misspelt_one_is_an_error() {
    let server = server();
    let run = |rule: &str| {
        limiter_with_input(&server.url(), &["check", "a", "--rule", rule, "--rules", "-"], RULES.as_bytes())
    };
    run("sized").failed(2, "`sized` must have a limit in standard input, got none for this key: write `--limit`");
    run("trail").failed(2, "`--rule` must be a rule of standard input, got `trail`: write `trial`");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn a_reset_without_a_known_limit_is_an_error() {
    let server = server();
    let run = |key: &str, rule: &str, mode: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.toml");
        std::fs::write(&file, RULES).expect("written");
        let file = file.display().to_string();
        let mut command = command(&server.url(), &["reset", key, "--rule", rule, "--rules", &file]);
        finish(command.env("RATE_LIMITED_MODE", mode).spawn().expect("the program starts"))
    };
    for (rule, mode) in [("idle", "enforce"), ("closed", "enforce"), ("sized", "off")] {
        run("x", rule, mode).failed(2, &format!("`{rule}` must have a limit in "));
    }
    let no_count = "reset: t, no count of this key under 1/h, which was read as the text `t`; a block by the \
                    rule, if there was one, has ended\n";
    assert_eq!(run("t", "trial", "enforce").ok(), no_count);
    // No count is known, and one may be there.
    assert_eq!(run("t", "trial", "off").ok(), "reset: t has its full quota\n");
}

#[test]
fn peek_shows_the_count_under_the_override_of_the_key() {
    let server = server();
    let run = |command: &str, key: &str, rule: &str| {
        limiter_with_input(&server.url(), &[command, key, "--rule", rule, "--rules", "-"], RULES.as_bytes())
    };
    let user = "user:{user_id}";
    let peeked = run("peek", "user:@7", user).ok();
    let expected =
        "allowed: user:@7, no count of this key under 3/h, which was read as the text `user:` and the part `7`\n";
    assert_eq!(peeked, expected);
    run("check", "user:@7", user).ok();
    assert!(run("peek", "user:@7", user).ok().starts_with("allowed: user:@7, 2 left of 3/h, full quota in "));
    assert_eq!(run("peek", "user:@13", user).stdout, "denied: user:@13, the rule denies every call\n");
    assert_eq!(run("peek", "x", "idle").ok(), "allowed: x, the rule is not enforced\n");
    for _ in 0..2 {
        run("check", "t", "trial").ok();
    }
    assert!(run("peek", "t", "trial").ok().starts_with("allowed: t in shadow mode, otherwise denied, 0 left of 1/h"));
}

/// Without the key of the rule `peek` showed "allowed" where the override of a service denies.
#[test]
fn overrides_by_parts_of_an_unknown_key_are_an_error() {
    let server = server();
    let of_layer = "[[rules.api.override]]\nmatch = { ip = '203.0.113.9' }\nmode = 'deny'\n\
                    [[rules.api.override]]\nkey = 'api:ip:@192.0.2.1'\nlimit = '1/h'\n";
    let unstated = format!("[rules.api]\nlimit = '100/min'\n{of_layer}");
    let stated = format!("[rules.api]\nlimit = '100/min'\nkey = 'api:ip:{{ip}}'\n{of_layer}");
    let run = |command: &str, key: &str, text: &str| {
        limiter_with_input(&server.url(), &[command, key, "--rule", "api", "--rules", "-"], text.as_bytes())
    };
    let message = "`key` of the rule `api` must be in standard input, because its overrides match by `ip`, got none: write \
                   it as the function or the layer has it, such as `key = \"api:ip:{ip}\"`, or write `--limit`";
    for command in ["check", "peek", "reset"] {
        run(command, "api:ip:@203.0.113.9", &unstated).failed(2, message);
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    limiter_with_input(&server.url(), &["rules", "import", "-"], unstated.as_bytes()).ok();
    let shared = limiter(&server.url(), &["peek", "api:ip:@203.0.113.9", "--rule", "api"]);
    shared.failed(2, "`key` of the rule `api` must be in the shared rules, because");
    let denied = "denied: api:ip:@203.0.113.9, the rule denies every call\n";
    assert_eq!(run("peek", "api:ip:@203.0.113.9", &stated).stdout, denied);
    assert!(run("peek", "api:ip:@203.0.113.7", &stated).ok().contains("under 100/min"));
    // An override of the key itself comes first, and a key without parts matches none by parts.
    assert!(run("peek", "api:ip:@192.0.2.1", &unstated).ok().contains("under 1/h"));
    assert!(run("peek", "api", &unstated).ok().contains("under 100/min"));
}

#[test]
fn failures_of_the_store_are_errors_whatever_the_rule_has() {
    // It accepts the connection and refuses the decisions.
    let acl = "-@all ~rl-rules:* +script|load +evalsha +mget +lrange";
    let server = RedisServer::builder().tcp().user_with_rules("app", "pw", acl).start();
    let arguments = ["check", "user:@42", "--rule", "user:{user_id}", "--rules", "-"];
    limiter_with_input(&server.url(), &arguments, RULES.as_bytes()).failed(3, "error: Redis refused the user ");
    for (key, rule) in [("a", "match"), ("@a@/@b", "override"), ("@a@/@c", "override")] {
        let arguments = ["check", key, "--rule", rule, "--rules", "-"];
        limiter_with_input(&server.url(), &arguments, RULES.as_bytes()).failed(3, "error: Redis refused the user ");
    }
}

#[test]
fn the_emergency_switch_of_the_environment_applies() {
    let server = server();
    let run = |mode: &str| {
        let mut command = command(&server.url(), &["check", "a", "--limit", "1/h"]);
        finish(command.env("RATE_LIMITED_MODE", mode).spawn().expect("the program starts"))
    };
    assert_eq!([run("enforce").code, run("enforce").code, run("off").code], [Some(0), Some(1), Some(0)]);
    run("of").failed(2, "RATE_LIMITED_MODE");
}

#[test]
fn a_shared_rule_decides_with_the_version_in_force() {
    let server = server();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    let check = ["check", "report", "--rule", "report"];
    run(&check).failed(2, "`--rule` must be a rule of the shared rules, got `report`: ");
    run(&["rules", "set", "report", "1/h"]).ok();
    assert_eq!((run(&check).code, run(&check).code), (Some(0), Some(1)));
    run(&["rules", "set", "report", "2/h"]).ok();
    assert_eq!((run(&check).code, run(&check).code), (Some(0), Some(1)));
}
