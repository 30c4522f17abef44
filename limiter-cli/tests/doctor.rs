//! Tests of `limiter doctor` on real servers.

use std::process::{Command, Output, Stdio};

use limiter_testkit::RedisServer;
use serde_json::Value;

#[path = "doctor/deployments.rs"]
mod deployments;
#[path = "doctor/permissions.rs"]
mod permissions;
#[path = "doctor/servers.rs"]
mod servers;

const CHECKS: [&str; 16] = [
    "connect",
    "version",
    "scripts",
    "permissions",
    "eviction",
    "evicted",
    "persistence",
    "clock",
    "latency",
    "cluster",
    "sentinel",
    "rules",
    "packed",
    "heartbeats",
    "activity",
    "notices",
];
/// The checks of an operator.
const OPERATOR_CHECKS: [&str; 3] = ["connect", "version", "operator"];

/// The findings of a run, its exit code, and all that it wrote.
struct Findings {
    exit: Option<i32>,
    findings: Vec<Value>,
    written: String,
}

impl Findings {
    fn of(&self, check: &str) -> &Value {
        let finding = self.findings.iter().find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("no {check} in {}", self.written))
    }

    fn status(&self, check: &str) -> &str {
        self.of(check)["status"].as_str().expect("a text")
    }

    /// Checks the status of a check, a part of its finding, and a part of its fix. An empty part matches no fix as
    /// well.
    #[track_caller]
    fn assert(&self, check: &str, status: &str, finding: &str, fix: &str) {
        let found = self.of(check);
        let text = |name: &str| found[name].as_str().unwrap_or_default();
        assert!(
            text("status") == status && text("finding").contains(finding) && text("fix").contains(fix),
            "expected {status}, {finding:?}, {fix:?}: {found}"
        );
    }

    /// Checks that no check fails but these, and the exit code. On a busy machine `latency` may fail as well.
    #[track_caller]
    fn assert_fails_only(&self, checks: &[&str]) {
        let names = self.findings.iter().filter_map(|finding| finding["check"].as_str());
        let failed: Vec<_> = names.filter(|check| self.status(check) == "fail").collect();
        assert_eq!(self.exit, Some(if failed.is_empty() { 0 } else { 3 }), "{}", self.written);
        let others: Vec<_> = failed.into_iter().filter(|check| *check != "latency").collect();
        assert_eq!(others, checks, "{}", self.written);
    }
}

fn limiter(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter"));
    command.env_clear().env("RATE_LIMITED_URL", url).args(arguments).stdin(Stdio::null());
    command
}

fn run(url: &str, arguments: &[&str]) -> Output {
    limiter(url, arguments).output().expect("the command runs")
}

/// Runs all checks with `--json`.
fn doctor(url: &str) -> Findings {
    doctor_with(url, &[])
}

fn doctor_with(url: &str, options: &[&str]) -> Findings {
    let output = run(url, &[&["--json", "doctor"], options].concat());
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    let written = format!("{stdout}{stderr}");
    let findings: Vec<Value> = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {written}"));
    let names: Vec<_> = findings.iter().map(|finding| finding["check"].as_str().expect("a name")).collect();
    let expected = if options.contains(&"--operator") { &OPERATOR_CHECKS[..] } else { &CHECKS };
    assert_eq!(names, expected);
    for finding in &findings {
        let fields: Vec<_> = finding.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 4, "{fields:?}");
        let (status, fix) = (finding["status"].as_str().expect("a text"), &finding["fix"]);
        assert!(["ok", "warn", "fail", "unknown"].contains(&status), "{finding}");
        assert!(finding["finding"].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        let needs_fix = ["warn", "fail"].contains(&status);
        assert!(!needs_fix || fix.as_str().is_some_and(|fix| !fix.is_empty()), "{finding}");
        assert!(status != "ok" || fix.is_null(), "{finding}");
    }
    Findings { exit: output.status.code(), findings, written }
}

/// Checks that each key of this server expires.
#[track_caller]
fn assert_keys_expire(server: &RedisServer) {
    for key in server.keys() {
        assert_ne!(server.pttl(&key), -1, "{key} does not expire");
    }
}
