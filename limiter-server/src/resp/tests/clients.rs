//! Real clients: redis-cli, and redis-py, node-redis and ioredis, which the tests install beside their program.
//!
//! A client whose tool is absent, or that cannot be installed, is skipped, except with `CI=true`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::*;

fn server() -> TestServer {
    Setup { token: Some(TOKEN), ..Setup::default() }.start()
}

/// The directory of the clients, beside the program of the tests.
fn directory(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let directory = program.parent().expect("a directory").join("resp-clients").join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Runs a program, or returns the reason why there is none.
fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{command:?}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// Installs clients of these versions once. Returns whether they are there.
fn is_installed(directory: &Path, versions: &str, install: &mut Command) -> bool {
    let mark = directory.join(format!("installed-{versions}"));
    if mark.exists() {
        return true;
    }
    match run(install) {
        Ok(_) => {
            std::fs::write(mark, "").expect("written");
            true
        }
        Err(reason) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
            println!("skipped: {reason}");
            false
        }
    }
}

#[test]
fn redis_py_calls_the_service() {
    const VERSIONS: &str = "redis==8.1.0";
    let directory = directory("python");
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", VERSIONS, "--target"]);
    if !is_installed(&directory, VERSIONS, install.arg(&directory)) {
        return;
    }
    let server = server();
    let script = include_str!("clients.py");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", &directory).args(["-c", script, &server.address.port().to_string(), TOKEN]);
    let output = run(&mut python).expect("the calls");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "redis-py 8.1.0\n");
}

#[test]
fn node_redis_and_ioredis_call_the_service() {
    const VERSIONS: &str = "redis@6.3.1 ioredis@6.0.0";
    let directory = directory("node");
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund"]).args(VERSIONS.split(' ')).arg("--prefix");
    if !is_installed(&directory, VERSIONS, install.arg(&directory)) {
        return;
    }
    let server = server();
    let script = directory.join("clients.mjs");
    std::fs::write(&script, include_str!("clients.mjs")).expect("written");
    let mut node = Command::new("node");
    node.arg(&script).args([&server.address.port().to_string(), TOKEN]);
    let output = run(&mut node).expect("the calls");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "node-redis 6.3.1\nioredis 6.0.0\n");
}

#[test]
fn redis_cli_calls_the_service() {
    let server = server();
    let cli = |options: &[&str], command: &str| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &server.address.port().to_string(), "--no-auth-warning"]).args(options);
        let output = run(cli.args(command.split(' '))).expect("a reply");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let with_token = ["-a", TOKEN];
    assert_eq!(cli(&[], "PING"), "NOAUTH Authentication required.\n\n");
    assert_eq!(cli(&with_token, "PING"), "PONG\n");
    assert_eq!(cli(&with_token, "RL.CHECK search 1 acme"), "1\n2\n1\n0\n10000\n");
    assert_eq!(cli(&["-a", TOKEN, "-3", "--json"], "CL.THROTTLE user:42 4 1 60"), "[0,5,4,-1,60]\n");
    let checked = cli(&["-a", TOKEN, "-3", "--json"], "RL.CHECK search 2 acme");
    assert!(checked.starts_with(r#"{"allowed":true,"rule":"search","limit":2,"remaining":1,"#), "{checked}");
}
