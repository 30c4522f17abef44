//! `check … -- CMD`.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use crate::support::{command, limiter, limiter_with_input, server};

#[test]
fn an_allowed_call_runs_the_program_and_ends_with_its_code() {
    let server = server();
    let run = |program: &[&str]| {
        let check = ["check", "job", "--limit", "9/h", "--"];
        limiter_with_input(&server.url(), &[&check, program].concat(), b"input")
    };
    let ran = run(&["sh", "-c", "cat; echo note >&2; exit 17"]);
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(17), "input", "note\n"));
    assert_eq!(run(&["echo", "--limit", "a b"]).ok(), "--limit a b\n");
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let server = server();
    let arguments = ["check", "job", "--limit", "9/h", "--", "sh", "-c", "kill -TERM $$"];
    let status = command(&server.url(), &arguments).status().expect("the program starts");
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn a_denied_call_does_not_run_the_program() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let marker = directory.path().join("ran").display().to_string();
    let run = |code: &str| {
        let check =
            ["check", "job", "--limit", "1/h", "--denied-code", code, "--", "sh", "-c", "echo x >> $0", &marker];
        limiter(&server.url(), &check)
    };
    assert_eq!(run("1").code, Some(0));
    run("1").failed(1, "denied: job, 0 left of 1/h, retry in ");
    let json = limiter(&server.url(), &["--json", "check", "job", "--limit", "1/h", "--", "echo", "ran"]);
    assert_eq!((json.code, &json.json()["allowed"]), (Some(1), &serde_json::Value::Bool(false)));
    let quiet = run("0");
    assert_eq!((quiet.code, &*quiet.stdout), (Some(0), ""));
    assert_eq!(fs::read_to_string(&marker).expect("the program ran once"), "x\n");
}

#[test]
fn a_program_that_is_not_started_gives_its_permits_back() {
    let server = server();
    let run = |program: &str| limiter(&server.url(), &["check", "job", "--limit", "1/h", "--", program]);
    run("no-such-program").failed(127, "error: `no-such-program` was not started, and its permits were given back: ");
    run("/etc/passwd").failed(126, "error: `/etc/passwd` was not started, and its permits were given back: ");
    assert_eq!(run("true").code, Some(0));
    assert_eq!(run("true").code, Some(1));
}

#[test]
fn a_store_that_is_down_does_not_run_the_program() {
    let mut server = server();
    server.kill();
    let ran = limiter(&server.url(), &["check", "job", "--limit", "1/h", "--", "echo", "ran"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(3), ""));
}
