//! Runs of the program.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;

use limiter_testkit::RedisServer;
use serde_json::Value;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns standard output if the run succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Checks the exit code and a part of standard error.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, message: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(message), "expected {message:?}: {self:?}");
    }
}

/// Returns a server of one test, on a socket.
pub(crate) fn server() -> RedisServer {
    RedisServer::start()
}

/// Returns the program with a clean environment, and with the URL of a store.
pub(crate) fn command<A: AsRef<OsStr>>(url: &str, arguments: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("RATE_LIMITED_URL", url).env("USER", "ana").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn limiter<A: AsRef<OsStr>>(url: &str, arguments: &[A]) -> Ran {
    finish(command(url, arguments).spawn().expect("the program starts"))
}

/// Runs the program with an input.
pub(crate) fn limiter_with_input(url: &str, arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = command(url, arguments).stdin(Stdio::piped()).spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A program that fails early closes the pipe.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let ran = finish(child);
    writer.join().expect("the writer ends");
    ran
}

pub(crate) fn finish(child: Child) -> Ran {
    let output = child.wait_with_output().expect("the program ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}
