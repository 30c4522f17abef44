//! Tests of the example as a program, each on a Redis server of its own.

use std::process::{Command, Output};

use limiter_testkit::RedisServer;

const SET: &str = "CurrentLimiter:shared-with-java";

fn run(server: &RedisServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shared-with-java"));
    command.args(["--redis", &server.url(), "--seconds", "2"]).args(arguments).output().expect("the example runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the sum of the calls that Java and Rust were allowed.
fn allowed(output: &str) -> [u32; 2] {
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>();
    let rows: Vec<_> = output.lines().filter_map(row).filter(|row| row.len() == 5).collect();
    assert!(!rows.is_empty(), "{output}");
    [1, 2].map(|column| rows.iter().map(|row| row[column]).sum())
}

#[test]
fn both_together_keep_the_limit() {
    let server = RedisServer::builder().tcp().start();
    let output = run(&server, &["--limit", "10/300ms"]);
    assert!(output.status.success(), "{}", text(&output));
    let last = text(&output).lines().last().map(str::to_owned);
    assert_eq!(last.as_deref(), Some("above the limit 0"));
    assert!(allowed(&text(&output)).iter().sum::<u32>() >= 10, "{}", text(&output));
}

#[test]
fn each_counts_the_calls_of_the_other() {
    for (first, second) in [("--rust=0", "--java=0"), ("--java=0", "--rust=0")] {
        let server = RedisServer::builder().tcp().start();
        let output = run(&server, &["--limit", "7/h", first]);
        assert_eq!(allowed(&text(&output)).iter().sum::<u32>(), 7, "{}", text(&output));
        assert_eq!(server.keys(), [SET]);
        assert_eq!(server.command(&["ZCARD", SET]).integer(), 7);
        let output = run(&server, &["--limit", "7/h", second]);
        assert_eq!(allowed(&text(&output)), [0, 0], "{}", text(&output));
    }
}

#[test]
fn missing_redis_is_named_with_the_remedy() {
    let server = RedisServer::builder().tcp().start();
    let url = server.url().replace("redis://", "redis://user:secret@");
    drop(server);
    let mut command = Command::new(env!("CARGO_BIN_EXE_shared-with-java"));
    let output = command.args(["--redis", &url]).output().expect("the example runs");
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(text.starts_with("error: cannot connect to Redis: ") && text.contains("--redis"), "{text}");
    assert!(text.lines().count() == 1 && !text.contains("secret"), "{text}");
}

#[test]
fn a_window_too_short_to_be_checked_is_rejected() {
    let server = RedisServer::builder().tcp().start();
    let output = run(&server, &["--limit", "1/1ms"]);
    let text = text(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.starts_with("error: --limit must have a window longer than "), "{text}");
}

#[test]
fn wrong_options_are_rejected() {
    for arguments in [&["--limit", "0/s"][..], &["--seconds", "0"], &["--java", "-1"], &["--redis", "nothing"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shared-with-java"));
        let output = command.args(arguments).output().expect("the example runs");
        assert!(!output.status.success() && !text(&output).contains("panicked"), "{arguments:?}");
    }
}
