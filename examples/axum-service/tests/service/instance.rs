//! A process of the service.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use tempfile::TempDir;
use tokio::time::sleep;

/// The longest wait for a condition: far more than it takes on a machine under load.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A process of the service with a file of limits of its own. It ends with this value.
pub(crate) struct Instance {
    process: Child,
    pub(crate) address: SocketAddr,
    directory: TempDir,
    /// Open, so that the process can write.
    _output: BufReader<ChildStdout>,
}

impl Instance {
    /// Starts an instance that counts in this Redis.
    pub(crate) fn start(server: &RedisServer, rules: &str) -> Self {
        Self::start_with(rules, &["--redis", &server.url()])
    }

    /// Starts an instance with these options, on a free port.
    pub(crate) fn start_with(rules: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        write_rules(directory.path(), rules);
        let mut process = Command::new(env!("CARGO_BIN_EXE_axum-service"))
            .args(["--listen", "127.0.0.1:0", "--rules"])
            .arg(directory.path().join("rules.toml"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the service writes");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        Self { address: address.expect("an address"), process, directory, _output: output }
    }

    /// Replaces the file of limits.
    pub(crate) fn set_rules(&self, rules: &str) {
        write_rules(self.directory.path(), rules);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        // The shell's `kill` is built in: small systems have no program of that name.
        let id = self.process.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s TERM "$1""#, "kill", &id]).status();
        assert!(status.expect("a shell").success());
    }

    /// Waits for the end of the process.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        eventually("the end of the service", async || self.process.try_wait().expect("a process")).await
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a file beside the old one and renames it, so that no reader sees a part.
fn write_rules(directory: &Path, rules: &str) {
    let (new, file) = (directory.join("new.toml"), directory.join("rules.toml"));
    fs::write(&new, rules).expect("writes");
    fs::rename(new, file).expect("renames");
}

/// Polls until there is a value, and panics after a minute.
pub(crate) async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(Instant::now() < until, "no {what} within {WAIT_TIMEOUT:?}");
        sleep(Duration::from_millis(5)).await;
    }
}
