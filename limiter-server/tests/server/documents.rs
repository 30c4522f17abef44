//! The clients of docs/service.md run as they are there, each where its tool is installed.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::support::{run, server};

const PAGE: &str = include_str!("../../../docs/service.md");
const RULES: &str = "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"1/h\"\n";

/// The first block of code with this word behind its fence, in the section about clients.
fn block(kind: &str, address: SocketAddr) -> String {
    let section = PAGE.split("\n## Clients\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let code = section.split(&format!("```{kind}\n")).nth(1).and_then(|rest| rest.split("\n```").next()).expect(kind);
    assert!(code.lines().count() <= 5, "{kind} has at most five lines");
    let shown = "127.0.0.1:8080";
    assert!(code.contains(shown), "{kind} names the default address");
    code.replace(shown, &address.to_string())
}

fn is_installed(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a client for the one call that is allowed, and for a denied one. Nothing is run without the tool.
async fn check_client(tool: &'static str, kind: &str, arguments: &'static [&'static str]) {
    let code = block(kind, run(server(RULES)).await);
    if tool != "sh" && !is_installed(tool) {
        eprintln!("left out: {tool} is not installed");
        return;
    }
    for status in ["200", "429"] {
        let code = code.clone();
        let output = tokio::task::spawn_blocking(move || Command::new(tool).args(arguments).arg(code).output());
        let output = output.await.expect("no panic").expect("the tool");
        let shown = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(shown.starts_with(status), "{tool}: {shown}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn the_client_in_a_shell_runs() {
    // A curl before 7.82 has no `--json`.
    if Command::new("curl")
        .args(["--json", "{}", "file:///dev/null"])
        .output()
        .is_ok_and(|output| output.status.code() != Some(2))
    {
        check_client("sh", "sh", &["-c"]).await;
    }
}

#[tokio::test]
async fn the_client_in_python_runs() {
    check_client("python3", "python", &["-c"]).await;
}

#[tokio::test]
async fn the_client_in_typescript_runs() {
    // It has no types, so that it is JavaScript too.
    check_client("node", "ts", &["--input-type=module", "-e"]).await;
}

#[tokio::test]
async fn the_client_in_go_has_five_lines() {
    block("go", run(server(RULES)).await);
}

#[test]
fn the_page_has_each_option_of_the_program() {
    let help = Command::new(env!("CARGO_BIN_EXE_limiter-server")).arg("--help").output().expect("the program");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let options = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    let options: Vec<_> =
        options.map(|option| option.trim_end_matches(|letter: char| !letter.is_alphanumeric())).collect();
    assert!(options.len() >= 14, "{options:?}");
    for option in options.iter().filter(|option| !["help", "version"].contains(option)) {
        assert!(PAGE.contains(&format!("--{option}")), "docs/service.md names --{option}");
    }
}

#[test]
fn the_page_has_each_route() {
    let description: serde_json::Value =
        serde_json::from_str(include_str!("../../src/http/openapi.json")).expect("JSON");
    for path in description["paths"].as_object().expect("paths").keys() {
        assert!(
            PAGE.contains(&format!("{path}`")) || PAGE.contains(&format!("{path}?")),
            "docs/service.md names {path}"
        );
    }
}
