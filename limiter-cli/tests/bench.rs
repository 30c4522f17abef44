//! Tests of `limiter bench` on real servers.

use std::net::TcpListener;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{Cluster, RedisServer};
use serde_json::Value;

fn limiter(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter"));
    command.env_clear().env("RATE_LIMITED_URL", url).args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(url: &str, arguments: &[&str]) -> Output {
    limiter(url, arguments).output().expect("the command runs")
}

/// Returns the figures of a run with `--json`.
fn figures(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

fn number(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {figures}"))
}

/// Waits until a condition holds.
fn poll(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("sh").args(["-c", r#"kill -s INT "$1""#, "kill", &id]).status().expect("a shell runs");
    assert!(sent.success());
}

/// Runs a bench that ends when this condition holds. Decisions may be slow: the deadline of each is 100 ms.
fn run_until(url: &str, arguments: &[&str], what: &str, holds: impl FnMut() -> bool) -> Output {
    let arguments = [arguments, &["--seconds", "3600"]].concat();
    let mut child = limiter(url, &arguments).spawn().expect("it runs");
    let result = panic::catch_unwind(AssertUnwindSafe(|| poll(what, holds)));
    interrupt(&child);
    if let Err(failure) = result {
        let _ = child.kill();
        panic::resume_unwind(failure);
    }
    child.wait_with_output().expect("it ends")
}

/// Returns the calls of the limiter's scripts that a server has counted.
fn script_calls(server: &RedisServer) -> u64 {
    let evalsha = server.info("commandstats").remove("cmdstat_evalsha").unwrap_or_default();
    let calls = evalsha.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[test]
fn figures_agree_with_the_limit_and_with_each_other() {
    let server = RedisServer::builder().tcp().start();
    let arguments = ["--json", "bench", "--tasks", "8", "--keys", "1", "--limit", "30/1h"];
    let output = run_until(&server.url(), &arguments, "a hundred calls", || script_calls(&server) >= 100);
    let figures = figures(&output);
    assert_eq!(output.status.code(), Some(130), "{figures}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains('░'), "no progress without a terminal");
    let (allowed, denied) = (number(&figures, "allowed"), number(&figures, "denied"));
    // A call that failed may have taken a permit.
    let errors = figures["errors"].as_object().expect("an object").values();
    let failed: u64 = errors.map(|count| count.as_u64().expect("a number")).sum();
    assert!(allowed <= 30 && allowed + failed >= 30, "{figures}");
    assert_eq!(number(&figures, "decisions"), allowed + denied, "{figures}");
    assert_eq!((number(&figures, "tasks"), number(&figures, "keys")), (8, 1));
    assert_eq!((figures["limit"].as_str(), figures["interrupted"].as_bool()), (Some("30/h"), Some(true)));
}

#[test]
fn a_run_ends_after_its_time() {
    let arguments = ["--json", "bench", "--tasks", "8", "--keys", "10", "--limit", "3/1h", "--seconds", "1"];
    let output = run("memory:", &arguments);
    let figures = figures(&output);
    assert_eq!((output.status.code(), figures["interrupted"].as_bool()), (Some(0), Some(false)), "{figures}");
    assert!(number(&figures, "elapsed_ms") >= 1_000, "{figures}");
    let latencies = ["p50", "p99", "p99_9", "max"].map(|name| number(&figures["latency_us"], name));
    assert!(latencies[0] > 0 && latencies.is_sorted(), "{figures}");
}

#[test]
fn each_decision_is_one_of_the_server() {
    let server = RedisServer::builder().tcp().start();
    let arguments = ["--json", "bench", "--tasks", "1", "--keys", "1", "--limit", "3/1h"];
    let output = run_until(&server.url(), &arguments, "20 calls", || script_calls(&server) >= 20);
    let (figures, calls) = (figures(&output), script_calls(&server));
    assert!(number(&figures, "allowed") <= 3, "{figures}");
    // A single task has one call at a time, so there are no batches.
    assert!(calls >= number(&figures, "decisions"), "{calls}: {figures}");
}

#[test]
fn keys_are_of_the_bench_alone_and_expire() {
    let server = RedisServer::builder().tcp().start();
    server.command(&["SET", "rl-bench:foreign", "untouched"]);
    let arguments = ["--prefix", "shop", "bench", "--limit", "5/1h", "--keys", "20"];
    run_until(&server.url(), &arguments, "all keys", || server.keys().len() >= 21);
    assert_eq!(server.command(&["GET", "rl-bench:foreign"]).text(), "untouched");
    server.command(&["DEL", "rl-bench:foreign"]);
    let keys = server.keys();
    assert_eq!(keys.len(), 20, "{keys:?}");
    for key in keys {
        assert!(key.starts_with("rl-bench:{bench:@") && server.pttl(&key) > 0, "{key}");
    }
}

#[test]
fn text_has_a_row_for_each_figure() {
    let output = run("memory:", &["bench", "--seconds", "1", "--tasks", "2", "--keys", "1000", "--limit", "5/1h"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("2 tasks, 1 000 keys, 5/h, "), "{text}");
    let names: Vec<_> = lines[1..].iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(names, ["decisions/s", "allowed", "denied", "errors", "p50", "p99", "p99.9", "max"], "{text}");
    assert_eq!(lines[4], "errors        0");
    assert!(!text.contains('\u{1b}') && output.stderr.is_empty(), "{text:?}");
}

#[test]
fn sigint_ends_the_run_with_the_figures_so_far() {
    let server = RedisServer::builder().tcp().start();
    let child =
        limiter(&server.url(), &["--json", "bench", "--seconds", "600", "--limit", "5/1h"]).spawn().expect("it runs");
    poll("a decision", || !server.keys_with("{bench:@").is_empty());
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    let figures = figures(&output);
    assert_eq!((output.status.code(), figures["interrupted"].as_bool()), (Some(130), Some(true)), "{figures}");
    assert!(number(&figures, "decisions") > 0 && number(&figures, "elapsed_ms") < 600_000, "{figures}");
}

#[test]
fn sigint_ends_the_command_while_it_connects() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", silent.local_addr().expect("an address"));
    let child = limiter(&url, &["bench"]).spawn().expect("it runs");
    let _connection = silent.accept().expect("the command connects");
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(130), &b""[..]));
}

#[test]
fn failures_are_counted_by_kind_and_described() {
    let server = RedisServer::builder().tcp().start();
    let arguments = ["--json", "bench", "--seconds", "600", "--limit", "1000000/1h"];
    let child = limiter(&server.url(), &arguments).spawn().expect("it runs");
    poll("a decision", || !server.keys_with("{bench:@").is_empty());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    poll("a failure", || server.info("errorstats").contains_key("errorstat_OOM"));
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    let (figures, stderr) = (figures(&output), String::from_utf8_lossy(&output.stderr));
    assert!(number(&figures, "decisions") > 0, "{figures}");
    assert!(number(&figures["errors"], "out_of_memory") > 0, "{figures}");
    assert!(stderr.contains("calls failed (out_of_memory): Redis is at its memory limit"), "{stderr}");
    assert_eq!(output.status.code(), Some(130));
}

#[test]
fn a_store_that_cannot_be_used_is_an_error() {
    let mut server = RedisServer::builder().tcp().password("s3cret").start();
    let url = server.url();
    server.kill();
    let output = run(&url, &["bench", "--seconds", "1"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("Connection refused") && !stderr.contains("s3cret"), "{stderr}");
    assert!(output.stdout.is_empty());

    // The pattern of the service's keys does not admit those of the bench.
    let rules = "-@all ~rl:* +script|load +evalsha +time +get +mget +set +setrange +pexpire +del";
    let server = RedisServer::builder().tcp().user_with_rules("app", "s3cret", rules).start();
    let output = run(&server.url(), &["bench", "--seconds", "1"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("calls failed (refused)") && stderr.contains("a permission"), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("decisions/s   0"));
}

#[test]
fn a_cluster_is_measured_on_all_its_masters() {
    let cluster = Cluster::builder().masters_only().start();
    let arguments = ["--json", "bench", "--keys", "300", "--limit", "5/1h"];
    run_until(&cluster.url(), &arguments, "keys on each master", || {
        cluster.masters().into_iter().all(|node| !cluster.server(node).keys_with("rl-bench").is_empty())
    });
}

#[test]
fn wrong_options_are_usage_errors() {
    for arguments in [
        &["--tasks", "0"][..],
        &["--tasks", "-1"],
        &["--keys", "-1"],
        &["--seconds", "-5"],
        &["--tasks", "1000000"],
        &["--keys", "0"],
        &["--seconds", "0"],
        &["--seconds", "5.5"],
        &["--limit", "5/10parsecs"],
        &["--limit", "-5/10s"],
        &["--unknown"],
        &["key"],
    ] {
        let output = run("memory:", &[&["bench"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        let wrong = arguments.last().copied().unwrap_or_default();
        assert!(stderr.contains(wrong), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_negative_number_is_an_error_that_names_the_bounds() {
    for (option, bounds) in [("--tasks", "1..=10000"), ("--keys", "1..=10000000"), ("--seconds", "1..=3600")] {
        let output = run("memory:", &["bench", option, "-1"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&format!("-1 is not in {bounds}")), "{option}: {stderr}");
    }
}
