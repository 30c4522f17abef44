//! Commands of docs/recipes.md, as the page has them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Ran, command, finish, limiter, limiter_with_input, server};

const PAGE: &str = include_str!("../../../docs/recipes.md");

/// Returns the arguments of the page's command that begins like this.
fn arguments(start: &str) -> Vec<&'static str> {
    let from = PAGE.find(start).expect("the command");
    let command = PAGE[from..].split(['`', '\n']).next().expect("a line");
    command.split(' ').skip(1).collect()
}

#[test]
fn one_host_runs_the_report() {
    let mut server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("report.sh");
    fs::write(&script, "#!/bin/sh\necho sent >> reports\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let run = |url: &str| -> Ran {
        let mut gate = command(url, &arguments("limiter check nightly-report"));
        finish(gate.current_dir(&directory).spawn().expect("the program starts"))
    };
    for _ in 0..3 {
        assert_eq!(run(&server.url()).code, Some(0));
    }
    server.kill();
    assert_eq!(run(&server.url()).code, Some(3));
    assert_eq!(fs::read_to_string(directory.path().join("reports")).expect("one report"), "sent\n");
}

#[test]
fn a_block_is_ended_by_a_reset() {
    let server = server();
    let text = "[rules.\"calls:{user}\"]\nlimit = \"1/s\"\nblock = \"1h\"\n";
    limiter_with_input(&server.url(), &["rules", "import", "-"], text.as_bytes()).ok();
    let run = |command: &str| limiter(&server.url(), &["--json", command, "calls:@42", "--rule", "calls:{user}"]);
    assert_eq!(run("check").json()["allowed"], true);
    let denied = run("check");
    assert_eq!((denied.code, denied.json()["blocked"].clone()), (Some(1), serde_json::Value::Bool(true)));
    let text = limiter(&server.url(), &["peek", "calls:@42", "--rule", "calls:{user}"]).stdout;
    assert!(text.starts_with("denied: calls:@42, blocked by its rule of 1/s, retry in 59 min"), "{text}");
    limiter(&server.url(), &arguments("limiter reset calls:")).ok();
    assert_eq!(run("check").json()["allowed"], true);
}

#[test]
fn a_user_is_looked_up() {
    let server = server();
    limiter(&server.url(), &["check", "user:", "--part", "42", "--limit", "100/min"]).ok();
    let answer = limiter(&server.url(), &arguments("limiter peek user:")).ok();
    assert!(answer.starts_with("allowed: user:@42, 99 left of 100/min"), "{answer}");
}
