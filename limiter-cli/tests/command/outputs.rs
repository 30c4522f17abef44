//! Outputs that cannot be written, and those of a terminal: the exit code stays, and no stored text controls it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, Stdio};

use limiter_testkit::RedisServer;
use serde_json::{Value, json};

use crate::support::{Ran, command, finish, limiter, limiter_with_input, server};

/// Runs the program with a standard output whose reader is gone.
fn with_closed_pipe(url: &str, line: &str) -> Ran {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let arguments: Vec<_> = line.split_whitespace().collect();
    finish(command(url, &arguments).stdout(writer).spawn().expect("the program starts"))
}

/// Runs the program with a standard output that has no space left.
fn with_full_output(url: &str, line: &str) -> Ran {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let arguments: Vec<_> = line.split_whitespace().collect();
    finish(command(url, &arguments).stdout(full).spawn().expect("the program starts"))
}

/// Runs a shell's line on a terminal with this input. The line calls the program `$LIMITER`. Returns the exit code and
/// all that was shown.
fn on_terminal(url: &str, line: &str, input: &str) -> (Option<i32>, String) {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("USER", "ana").env("SHELL", "/bin/sh");
    command.env("RATE_LIMITED_URL", url).env("LIMITER", env!("CARGO_BIN_EXE_limiter"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`script` starts");
    // The terminal keeps the input until it is read.
    let mut keyboard = child.stdin.take().expect("a pipe");
    keyboard.write_all(input.as_bytes()).expect("written");
    let ran = finish(child);
    drop(keyboard);
    (ran.code, ran.stdout.replace("\r\n", "\n"))
}

fn publish(server: &RedisServer, text: &str) {
    limiter_with_input(&server.url(), &["rules", "import", "-", "--yes"], text.as_bytes()).ok();
}

fn export(server: &RedisServer) -> String {
    limiter(&server.url(), &["rules", "export"]).ok()
}

#[test]
fn a_closed_pipe_keeps_the_exit_code_of_the_result() {
    let mut server = server();
    let url = server.url();
    let codes = [
        ("check a --limit 1/h", 0),
        ("check a --limit 1/h", 1),
        ("check a --limit 1/h --denied-code 75", 75),
        ("--json check a --limit 1/h", 1),
        ("peek a --limit 1/h", 1),
        ("reset a --limit 1/h", 0),
        ("rules set a 1/h", 0),
        ("rules list", 0),
    ];
    for (line, code) in codes {
        let ran = with_closed_pipe(&url, line);
        assert_eq!(
            (ran.code, ran.stderr.contains("error") || ran.stderr.contains("warning")),
            (Some(code), false),
            "{line}: {ran:?}"
        );
    }
    assert_eq!(export(&server), "[rules.a]\nlimit = \"1/h\"\n");
    server.kill();
    assert_eq!(with_closed_pipe(&url, "doctor").code, Some(3));
    assert_eq!(with_closed_pipe(&url, "--json doctor").code, Some(3));
}

#[test]
fn a_full_output_keeps_the_exit_code_of_the_act_and_draws_a_warning() {
    let server = server();
    let url = server.url();
    let codes = [
        ("check a --limit 1/h", 0),
        ("check a --limit 1/h", 1),
        ("peek a --limit 1/h", 1),
        ("reset a --limit 1/h", 0),
        ("rules set a 1/h", 0),
    ];
    for (line, code) in codes {
        with_full_output(&url, line).failed(code, "warning: the output cannot be written: No space left on device");
    }
    assert_eq!(export(&server), "[rules.a]\nlimit = \"1/h\"\n");
    // Nothing was done but the output, and the store has not failed.
    with_full_output(&url, "rules list").failed(2, "error: the output cannot be written: No space left on device");
}

#[test]
fn a_question_shows_the_change_on_the_terminal_wherever_the_result_goes() {
    let server = server();
    publish(&server, "[rules.a]\nlimit = \"5/10s\"\n");
    for (options, limit, old) in [("", "5/min", "5/10s"), ("--json ", "5/h", "5/min")] {
        let line = format!("$LIMITER {options}rules set a {limit} > /dev/full");
        let (code, shown) = on_terminal(&server.url(), &line, "y\n");
        assert_eq!(code, Some(0), "{shown}");
        let (change, _) = shown.split_once("Publish this?").expect("a question");
        assert!(change.contains(&format!("-limit = \"{old}\"")), "{shown}");
        assert!(change.contains(&format!("+limit = \"{limit}\"")), "{shown}");
        assert!(shown.contains("the output cannot be written"), "{shown}");
        assert_eq!(export(&server), format!("[rules.a]\nlimit = \"{limit}\"\n"));
    }
}

#[test]
fn stored_text_does_not_control_the_terminal() {
    let server = server();
    publish(&server, "[rules.\"getI\u{9b}d\"]\nlimit = \"5/s\" # \u{202e}\u{9b}31m\n");
    let stored = |shown: &str| shown.contains('\u{9b}') || shown.contains('\u{202e}');
    let (code, shown) = on_terminal(&server.url(), "$LIMITER rules export", "");
    assert_eq!((code, stored(&shown)), (Some(0), false), "{shown:?}");
    assert!(shown.contains("limit = \"5/s\" # \\u{202e}\\u{9b}31m\n"), "{shown:?}");
    // A file has the text as it is.
    assert!(stored(&export(&server)));
    let error = limiter(&server.url(), &["rules", "get", "getId"]);
    error.failed(2, "write `getI\\u{9b}d`");
    assert!(!stored(&error.stderr), "{error:?}");
    let json = limiter(&server.url(), &["--json", "rules", "get", "getId"]);
    assert!(!stored(&json.stderr), "{json:?}");
    let error: Value = serde_json::from_str(&json.stderr).expect("JSON");
    assert!(error["error"]["message"].as_str().is_some_and(stored), "{error}");
}

#[test]
fn arguments_do_not_control_the_terminal() {
    for arguments in [&["chekc\u{1b}[31m\u{202e}"][..], &["check", "a", "--limit", "5\u{9b}1m"], &["rules", "\u{7}"]] {
        let ran = limiter("redis://127.0.0.1:1", arguments);
        ran.failed(2, "\\u{");
        assert!(!ran.stderr.chars().any(|letter| letter.is_control() && letter != '\n'), "{ran:?}");
        assert!(!ran.stderr.contains('\u{202e}') && ran.stderr.ends_with("--help'.\n"), "{ran:?}");
    }
}

#[test]
fn a_conflict_without_a_difference_is_a_conflict() {
    let rules = "~rl-rules:* -@all +script|load +evalsha +get +mget +set +incr +lpush +ltrim +lrange +time";
    let server = RedisServer::builder().tcp().user_with_rules("operator", "pw", rules).start();
    publish(&server, "[rules.a]\nlimit = \"5/10s\"\n");
    let directory = tempfile::tempdir().expect("a directory");
    let ready = directory.path().join("ready");
    // The editor is where the other change happens: the text was read, and is not yet published.
    let editor = directory.path().join("editor");
    let done = directory.path().join("done");
    let script = format!(
        "#!/bin/sh\nprintf '[rules.b]\\nlimit = \"1/s\"\\n' >> \"$1\"\n: > {ready}\n\
         i=0; while [ ! -e {done} ] && [ $i -lt 6000 ]; do sleep 0.01; i=$((i + 1)); done\n",
        ready = ready.display(),
        done = done.display()
    );
    fs::write(&editor, script).expect("written");
    let url = server.url();
    let line = format!("EDITOR='sh {}' TMPDIR={} $LIMITER rules edit", editor.display(), directory.path().display());
    let (code, shown) = std::thread::scope(|scope| {
        let edited = scope.spawn(|| on_terminal(&url, &line, ""));
        while !ready.exists() && !edited.is_finished() {
            std::thread::yield_now();
        }
        limiter(&url, &["rules", "set", "a", "6/10s"]).ok();
        server.command(&["ACL", "SETUSER", "operator", "-mget"]);
        fs::write(&done, "").expect("written");
        edited.join().expect("the editor ends")
    });
    assert_eq!(code, Some(4), "{shown}");
    let message = "must be at version 1 to be changed, got another one, which cannot be read (";
    assert!(shown.contains(message), "{shown}");
}

#[test]
fn colours_are_those_of_the_stream_that_is_written() {
    let server = server();
    let check = "$LIMITER check a --limit 1/h";
    let (_, shown) = on_terminal(&server.url(), check, "");
    assert!(shown.contains("\u{1b}[32mallowed\u{1b}[0m"), "{shown:?}");
    let (code, shown) = on_terminal(&server.url(), &format!("{check} -- true > /dev/null"), "");
    assert_eq!((code, shown.contains("\u{1b}[31mdenied\u{1b}[0m")), (Some(1), true), "{shown:?}");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("stderr");
    on_terminal(&server.url(), &format!("{check} -- true 2> {}", file.display()), "");
    let written = fs::read_to_string(&file).expect("a file");
    assert!(written.starts_with("denied: a"), "{written:?}");
}

#[test]
fn a_narrow_terminal_does_not_break_words() {
    let mut server = server();
    let url = server.url();
    server.kill();
    let (code, shown) = on_terminal(&url, "stty cols 10; NO_COLOR=1 $LIMITER doctor", "");
    assert_eq!((code, shown.contains("CHECK        STATUS   FINDING\n")), (Some(3), true), "{shown}");
}

#[test]
fn notes_and_warnings_are_json_on_request() {
    let server = server();
    publish(&server, "[rules.a]\nlimit = \"5/10s\"\n");
    let lines = |ran: &Ran| -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        ran.stderr.lines().map(parse).collect()
    };
    let message = "`a` starts new counts, so each key has its full quota again: the window changes from 10 s to 1 min";
    let dry = limiter(&server.url(), &["--json", "rules", "set", "a", "5/min", "--dry-run"]);
    assert_eq!((dry.code, lines(&dry)), (Some(0), vec![json!({ "note": message })]));
    assert_eq!(dry.json()["notes"], json!([message]));
    let refused = limiter(&server.url(), &["--json", "rules", "set", "a", "5/min"]);
    assert_eq!((refused.code, lines(&refused)[1]["error"]["kind"].as_str()), (Some(2), Some("usage")));
    let published = limiter(&server.url(), &["--json", "rules", "set", "a", "5/min", "--yes"]);
    assert_eq!((published.code, &published.json()["notes"]), (Some(0), &json!([message])));
    let url = server.url().replacen("://", "://:pw@", 1);
    let warned = limiter("", &["--json", "--url", &url, "rules", "list"]);
    assert!(lines(&warned)[0]["warning"].as_str().is_some_and(|text| text.contains("password")), "{warned:?}");
}
