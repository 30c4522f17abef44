//! One server: its settings, its state, and the forms of the output.

use std::process::Stdio;

use limiter_testkit::RedisServer;

use crate::{assert_keys_expire, doctor, doctor_with, limiter, run};

#[test]
fn a_plain_server_passes_all_checks_that_apply() {
    let server = RedisServer::builder().tcp().start();
    server.command(&["SET", "foreign", "untouched"]);
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    findings.assert("connect", "ok", &server.url(), "");
    findings.assert("scripts", "ok", "a decision was made", "");
    findings.assert("permissions", "ok", "9 permissions", "");
    findings.assert("eviction", "ok", "noeviction", "");
    findings.assert("evicted", "ok", "no key was evicted", "");
    findings.assert("persistence", "ok", "the limiter needs neither", "");
    findings.assert("clock", "ok", "this host", "");
    findings.assert("cluster", "unknown", "not applicable: the URL names no cluster", "");
    findings.assert("sentinel", "unknown", "not applicable: the URL names no sentinels", "");
    findings.assert("rules", "ok", "no rules were published", "");
    assert!(["ok", "warn"].contains(&findings.status("version")), "{}", findings.written);
    assert!(findings.of("latency")["finding"].as_str().is_some_and(|text| text.contains("100 decisions: p50 ")));

    assert_eq!(server.command(&["GET", "foreign"]).text(), "untouched");
    server.command(&["DEL", "foreign"]);
    assert!(!server.keys().is_empty(), "decisions were made");
    assert!(server.keys().iter().all(|key| key.starts_with("rl:{limiter-doctor:@")), "{:?}", server.keys());
    assert_keys_expire(&server);
}

#[test]
fn a_unix_socket_and_another_database_are_checked() {
    let server = RedisServer::start();
    doctor(&server.url()).assert_fails_only(&[]);
    doctor(&format!("{}?db=3", server.url())).assert_fails_only(&[]);
    assert_eq!(server.info("keyspace").keys().collect::<Vec<_>>(), ["db0", "db3"]);
}

#[test]
fn a_server_with_tls_is_checked() {
    let server = RedisServer::builder().tls().password("s3cret").start();
    let authority = server.ca_certificate().expect("a certificate");
    // The variable of OpenSSL, which replaces the authorities that the system trusts.
    let mut command = limiter(&server.url(), &["doctor"]);
    let output = command.env("SSL_CERT_FILE", authority).output().expect("the command runs");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("rediss://127.0.0.1:") && table.contains("permissions  ok"), "{table}");

    let findings = doctor(&server.url());
    findings.assert_fails_only(&["connect"]);
    findings.assert("connect", "fail", "unknown certificate authority", "certificates");
}

#[test]
fn the_table_is_aligned_and_has_no_colours_in_a_pipe() {
    let server = RedisServer::builder().tcp().setting("maxmemory-policy", "volatile-ttl").maxmemory(100 << 20).start();
    let output = run(&server.url(), &["doctor"]);
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "CHECK        STATUS   FINDING");
    assert!(lines[1].starts_with("connect      ok       redis://127.0.0.1:"), "{table}");
    let eviction = lines.iter().position(|line| line.starts_with("eviction     fail     ")).expect("the check");
    let fix = " ".repeat(22) + "fix: set `maxmemory-policy noeviction`, or use a dedicated Redis";
    assert_eq!(lines[eviction + 1], fix, "{table}");
    assert!(lines.last().is_some_and(|line| line.starts_with("16 checks: ") && line.ends_with(" unknown")), "{table}");
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(3), &b""[..]));

    let coloured = run(&server.url(), &["--color", "always", "doctor"]).stdout;
    let coloured = String::from_utf8_lossy(&coloured);
    assert!(coloured.lines().any(|line| line.contains("\u{1b}[") && line.contains("fail")), "{coloured:?}");
}

/// Returns the findings without numbers, and without the checks that depend on the machine or the server's version.
fn stable_findings(table: &str) -> Vec<String> {
    let is_stable = |line: &&str| !["version ", "clock ", "latency "].iter().any(|check| line.starts_with(check));
    let has_digit = |word: &str| word.contains(|letter: char| letter.is_ascii_digit());
    let without_numbers =
        |line: &str| line.split_whitespace().filter(|word| !has_digit(word)).collect::<Vec<_>>().join(" ");
    let findings = table.split("\n\n").next().expect("a table");
    findings.lines().filter(is_stable).map(without_numbers).collect()
}

#[test]
fn the_table_in_the_documentation_is_that_of_a_server_that_evicts() {
    let page = include_str!("../../../docs/cli.md");
    let start = page.find("CHECK        STATUS").expect("a table");
    let server = RedisServer::builder().tcp().setting("maxmemory-policy", "allkeys-lru").maxmemory(100 << 20).start();
    let output = run(&server.url(), &["doctor"]);
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(stable_findings(&page[start..]), stable_findings(&table));
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_server_that_is_down_is_one_failure() {
    let mut server = RedisServer::builder().tcp().password("s3cret").start();
    let url = server.url();
    server.kill();
    let findings = doctor(&url);
    findings.assert_fails_only(&["connect"]);
    findings.assert("connect", "fail", "Connection refused", "check that the server runs");
    for check in ["version", "scripts", "permissions", "eviction", "clock", "latency", "rules"] {
        findings.assert(check, "unknown", "not checked: there is no connection", "");
    }
    assert!(!findings.written.contains("s3cret"), "{}", findings.written);
}

#[test]
fn a_password_is_used_and_never_written() {
    let server = RedisServer::builder().tcp().password("s3cret").start();
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    assert!(!findings.written.contains("s3cret"), "{}", findings.written);
    for (wrong, problem) in
        [("0ther-s3cret", "Redis refused the user or the password"), ("", "Redis requires a password")]
    {
        let findings = doctor(&server.url().replace("s3cret", wrong));
        findings.assert_fails_only(&["connect"]);
        findings.assert("connect", "fail", problem, "check user and password");
        assert!(!findings.written.contains("s3cret"), "{}", findings.written);
    }
    let table = run(&server.url(), &["doctor"]);
    assert!(!String::from_utf8_lossy(&[table.stdout, table.stderr].concat()).contains("s3cret"));
}

#[test]
fn a_policy_that_evicts_is_found_also_without_config() {
    let lru = || RedisServer::builder().tcp().setting("maxmemory-policy", "allkeys-lru");
    let unlimited = doctor(&lru().start().url());
    unlimited.assert_fails_only(&[]);
    unlimited.assert("eviction", "warn", "allkeys-lru, and maxmemory is not set", "noeviction");
    for server in [lru().maxmemory(100 << 20), lru().maxmemory(100 << 20).setting("rename-command", "CONFIG \"\"")] {
        let findings = doctor(&server.start().url());
        findings.assert_fails_only(&["eviction"]);
        findings.assert("eviction", "fail", "allkeys-lru, and ", "set `maxmemory-policy noeviction`");
    }
}

#[test]
fn keys_that_were_evicted_are_a_warning() {
    let server = RedisServer::builder().tcp().setting("maxmemory-policy", "allkeys-lru").maxmemory(3 << 20).start();
    let value = "x".repeat(100_000);
    for number in 0..100 {
        server.command(&["SET", &format!("filler{number}"), &value]);
    }
    let findings = doctor(&server.url());
    findings.assert("evicted", "warn", "keys were evicted", "CONFIG RESETSTAT");
}

#[test]
fn a_full_server_fails_with_its_reason() {
    let server = RedisServer::builder().tcp().maxmemory(1).start();
    let findings = doctor(&server.url());
    assert_eq!(findings.exit, Some(3));
    findings.assert("eviction", "fail", "the server refuses to count", "raise `maxmemory`");
    findings.assert("permissions", "ok", "9 permissions", "");
}

#[test]
fn a_service_without_scripts_or_info_is_described() {
    let server = RedisServer::builder().tcp().setting("rename-command", "EVALSHA \"\"").start();
    let findings = doctor(&server.url());
    findings.assert("connect", "fail", "does not have EVALSHA", "");
    findings.assert("scripts", "fail", "EVALSHA is not offered by this server", "enable scripts");
    findings.assert("latency", "unknown", "no connection", "");

    let hidden = RedisServer::builder().tcp();
    let hidden = hidden.setting("rename-command", "INFO \"\"").setting("rename-command", "CONFIG \"\"");
    let findings = doctor(&hidden.start().url());
    findings.assert_fails_only(&[]);
    findings.assert("eviction", "unknown", "not offered", "at the provider");
    findings.assert("evicted", "unknown", "INFO is not offered by this server", "at the provider");
    findings.assert("persistence", "unknown", "INFO is not offered by this server", "");
}

#[test]
fn persistence_that_delays_each_decision_is_a_warning() {
    let server = RedisServer::builder().tcp().setting("appendonly", "yes").setting("appendfsync", "always");
    let findings = doctor(&server.start().url());
    findings.assert_fails_only(&[]);
    findings.assert("persistence", "warn", "`appendfsync always`", "appendfsync everysec");
}

#[test]
fn shared_rules_that_a_restart_would_lose_are_a_warning() {
    let server = RedisServer::builder().tcp().setting("save", "").start();
    doctor(&server.url()).assert("persistence", "ok", "the limiter needs neither", "");
    let published = run(&server.url(), &["rules", "set", "getId", "5/10s", "--yes"]);
    assert!(published.status.success(), "{published:?}");
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    findings.assert("persistence", "warn", "a restart loses the shared rules", "set `appendonly yes`");
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    doctor(&server.url()).assert("persistence", "ok", "shared rules need one of them", "");
}

#[test]
fn a_clock_that_is_wrong_is_a_warning() {
    let mut server = RedisServer::builder().tcp().shifted_clock().start();
    server.set_clock(-90_000_000);
    let findings = doctor(&server.url());
    findings.assert("clock", "warn", "behind this host", "NTP");
    findings.assert_fails_only(&[]);
}

#[test]
fn shared_rules_are_read_and_parsed() {
    let server = RedisServer::builder().tcp().start();
    let publish = |number: &str, text: &str| {
        server.command(&["SET", "rl-rules:{rules}:version", &format!("{number} {}", "0".repeat(40))]);
        server.command(&["SET", "rl-rules:{rules}:toml", text]);
    };
    publish("7", "[rules.getId]\nlimit = \"50/10s\"\n");
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    findings.assert("rules", "ok", "version 7 of the shared rules is valid", "");
    for wrong in ["[rules.getId]\nlimit = \"50/10parsecs\"\n", "strict = true\n"] {
        publish("8", wrong);
        let findings = doctor(&server.url());
        findings.assert_fails_only(&["rules"]);
        findings.assert("rules", "fail", "version 8: ", "`limiter rules rollback VERSION`");
        findings.assert("rules", "fail", "line ", "");
    }
    server.command(&["SET", "rl-rules:{rules}:version", "foreign"]);
    doctor(&server.url()).assert("rules", "fail", "holds something else", "");
    // Another prefix has other rules.
    doctor_with(&server.url(), &["--prefix", "shop"]).assert("rules", "ok", "no rules were published", "");
}

#[test]
fn usage_errors_have_their_own_exit_code() {
    for (url, message) in [
        ("memory:", "the URL must be that of a Redis for `doctor`"),
        ("", "the URL of the store must be set"),
        ("redis://:s3cret@host:99999", "`url` must have a port"),
        ("http://host", "`url` must"),
    ] {
        let output = run(url, &["doctor"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url}: {stderr}");
        assert!(stderr.contains(message) && !stderr.contains("s3cret"), "{url}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let server = RedisServer::builder().tcp().start();
    let mut child =
        limiter(&server.url(), &["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}
