//! `check`, `peek` and `reset` with limits of concurrent calls.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use limiter_testkit::RedisServer;
use serde_json::{Value, json};

use crate::support::{Ran, command, finish, limiter, server};

/// A run of the command whose program is ready, and has its standard input.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A program that ends with code 7 when its input is closed.
const UNTIL_INPUT_ENDS: &str = "echo ready; read line; exit 7";

impl Holder {
    fn start(server: &RedisServer, arguments: &[&str]) -> Self {
        Self::wait_for_ready(command(&server.url(), arguments))
    }

    fn wait_for_ready(mut command: Command) -> Self {
        let mut holder = Self::spawn(&mut command);
        holder.expect_line("ready\n");
        holder
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("the command starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Self { child, input: input.expect("a pipe"), output: BufReader::new(output.expect("a pipe")) }
    }

    #[track_caller]
    fn expect_line(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        assert_eq!(line, expected);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.expect("`sh` starts").success());
    }

    /// Closes the input and waits for the end.
    fn end(self) -> Ran {
        drop(self.input);
        finish(self.child)
    }
}

/// Returns the arguments of a check for one slot that runs a program.
fn check<'a>(program: &[&'a str]) -> Vec<&'a str> {
    [&["check", "backup", "--limit", "1 concurrent", "--"], program].concat()
}

fn peeked(server: &RedisServer) -> Value {
    limiter(&server.url(), &["--json", "peek", "backup", "--limit", "1 concurrent"]).json()
}

#[test]
fn a_slot_is_held_until_the_program_ends() {
    let server = server();
    let holder = Holder::start(&server, &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    let denied = limiter(&server.url(), &check(&["echo", "ran"]));
    denied.failed(1, "denied: backup, 0 left of 1 concurrent, retry in about 100 ms");
    assert_eq!(denied.stdout, "");
    let none =
        limiter(&server.url(), &["check", "backup", "--limit", "1 concurrent", "--cost", "0", "--", "echo", "ran"]);
    assert_eq!(none.ok(), "ran\n");
    assert_eq!(holder.end().code, Some(7));
    // The end of the command is that of its slot.
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    assert_eq!(limiter(&server.url(), &check(&["echo", "ran"])).ok(), "ran\n");
}

#[test]
fn a_program_that_fails_or_does_not_start_frees_its_slot() {
    let server = server();
    let run = |program: &[&str]| limiter(&server.url(), &check(program));
    let killed = run(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!((killed.code, &*killed.stderr), (Some(128 + 15), ""));
    assert!(server.keys().is_empty());
    run(&["no-such-program"]).failed(127, "`no-such-program` was not started, and what it had taken was given back: ");
    assert!(server.keys().is_empty());
    run(&["/etc/passwd"]).failed(126, "error: `/etc/passwd` was not started, and what it had taken was given back: ");
    assert!(server.keys().is_empty());
}

#[test]
fn a_window_beside_a_slot_gets_its_permit_back_from_a_program_that_does_not_start() {
    let server = server();
    let run = |program: &str| {
        let limits = ["check", "backup", "--limit", "1 concurrent", "--limit", "1/h", "--", program];
        limiter(&server.url(), &limits)
    };
    run("no-such-program").failed(127, "what it had taken was given back");
    assert_eq!(run("true").code, Some(0));
    run("true").failed(1, "denied: backup, 0 left of 1/h, retry in ");
    let peek = ["--json", "peek", "backup", "--limit", "1 concurrent", "--limit", "1/h"];
    let limits = limiter(&server.url(), &peek).json()["limits"].clone();
    let remaining = |index: usize| (limits[index]["limit"].clone(), limits[index]["remaining"].clone());
    assert_eq!([remaining(0), remaining(1)], [(json!("1/h"), json!(0)), (json!("1 concurrent"), json!(1))]);
}

#[test]
fn a_check_waits_for_the_slot_of_another() {
    let server = server();
    let holder = Holder::start(&server, &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    let waiting = ["check", "backup", "--limit", "1 concurrent", "--wait", "5min", "--", "echo", "ready"];
    let mut waiter = Holder::spawn(&mut command(&server.url(), &waiting));
    let waits = |process: &Value| process["waits_for"] == 1;
    while !peeked(&server)["processes"].as_array().is_some_and(|processes| processes.iter().any(waits)) {}
    assert_eq!(holder.end().code, Some(7));
    waiter.expect_line("ready\n");
    assert_eq!(waiter.end().code, Some(0));
    assert!(server.keys().is_empty());
}

#[test]
fn signals_reach_the_program_and_its_code_is_that_of_the_command() {
    let server = server();
    for (signal, code) in [("TERM", 21), ("HUP", 22), ("INT", 23), ("QUIT", 24)] {
        let trap = format!("trap 'kill $!; exit {code}' {signal}; sleep 600 >&- 2>&- & echo ready; wait");
        let mut limiter = command(&server.url(), &check(&["sh", "-c", &trap]));
        // A group of its own is in the background of the terminal of these tests.
        limiter.process_group(0);
        let holder = Holder::wait_for_ready(limiter);
        holder.signal(signal);
        assert_eq!(holder.end().code, Some(code));
        assert!(server.keys().is_empty(), "{signal}");
    }
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let server = server();
    let limiter = command(&server.url(), &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(limiter.get_program()).args(limiter.get_args());
    shell.env("RATE_LIMITED_URL", server.url()).stdout(std::process::Stdio::piped());
    let holder = Holder::wait_for_ready(shell);
    holder.signal("HUP");
    assert_eq!(holder.end().code, Some(7));
}

#[test]
fn a_peek_shows_who_has_slots() {
    let server = server();
    let peek = |arguments: &[&str]| {
        limiter(&server.url(), &[arguments, &["peek", "backup", "--limit", "2 concurrent"]].concat())
    };
    let unused = peek(&[]).ok();
    assert_eq!(unused, "allowed: backup, 2 left of 2 concurrent\n  2 concurrent: 2 free\n");
    let mut holder = Holder::start(&server, &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    let text = peek(&[]).ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..2], ["allowed: backup, 1 left of 2 concurrent", "  2 concurrent: 1 free"]);
    let is_of_process = lines[2].starts_with("  process ") && lines[2].contains(": has 1, ends in ");
    assert!(is_of_process && lines.len() == 3, "{text}");

    let mut json = peek(&["--json"]).json();
    assert_eq!(json["limits"], json!([{ "limit": "2 concurrent", "remaining": 1, "reset_after_ms": null }]));
    let process = json["processes"][0].as_object_mut().expect("a process");
    assert!(process.remove("ends_in_ms").and_then(|end| end.as_u64()).is_some_and(|end| end <= 10_000));
    assert_eq!(process.remove("process").and_then(|id| Some(id.as_str()?.len())), Some(16));
    assert_eq!(json["processes"], json!([{ "slots": 1, "waits_for": 0 }]));
    assert_eq!((peeked(&server)["allowed"].clone(), peeked(&server)["remaining"].clone()), (json!(false), json!(0)));

    holder.input.write_all(b"\n").expect("a pipe");
    assert_eq!(holder.end().code, Some(7));
}

#[test]
fn a_reset_leaves_slots_in_use() {
    let server = server();
    let reset = |arguments: &[&str]| {
        limiter(&server.url(), &[arguments, &["reset", "backup", "--limit", "1 concurrent"]].concat())
    };
    assert_eq!(reset(&[]).ok(), "reset: backup, no slot of 1 concurrent is in use\n");
    let holder = Holder::start(&server, &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    assert_eq!(reset(&[]).ok(), "reset: backup, 1 slot of 1 concurrent stays in use until its call ends\n");
    let json = json!({ "key": "backup", "reset": true, "had_count": null, "was_blocked": false, "slots_in_use": 1 });
    assert_eq!(reset(&["--json"]).json(), json);
    limiter(&server.url(), &check(&["true"])).failed(1, "denied: backup");
    assert_eq!(holder.end().code, Some(7));
}

#[test]
fn a_charge_of_slots_is_an_error() {
    let server = server();
    let charge = limiter(&server.url(), &["charge", "backup", "--limit", "1 concurrent", "--cost", "1"]);
    charge.failed(2, "error: `limit` must have a window where a call ends at its decision, got calls at once");
    assert!(server.keys().is_empty());
}

#[test]
fn a_rule_may_have_slots() {
    let (server, file) = (server(), tempfile::NamedTempFile::new().expect("a file"));
    std::fs::write(file.path(), "[rules.backup]\nlimit = \"1 concurrent\"\n").expect("a file");
    let path = file.path().display().to_string();
    let by_rule = |program: &[&str]| {
        let rule = ["check", "backup", "--rule", "backup", "--rules", &path];
        limiter(&server.url(), &[&rule[..], program].concat())
    };
    by_rule(&[]).failed(2, "`check` must have a program for `1 concurrent`, got none: write `-- PROGRAM`");
    let holder = Holder::start(&server, &check(&["sh", "-c", UNTIL_INPUT_ENDS]));
    by_rule(&["--", "true"]).failed(1, "denied: backup, 0 left of 1 concurrent");
    assert_eq!(holder.end().code, Some(7));
    assert_eq!(by_rule(&["--", "echo", "ran"]).ok(), "ran\n");
}

#[test]
fn a_store_that_is_down_starts_nothing() {
    let mut server = server();
    server.kill();
    let ran = limiter(&server.url(), &check(&["echo", "ran"]));
    assert_eq!((ran.code, &*ran.stdout), (Some(3), ""));
}
