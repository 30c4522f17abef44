//! Runs tests in child processes, for their own environment or for state that a process has only once.

use std::env;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{Write, stderr};
use std::process::Command;

/// The environment variable that marks a process as a child. Without it the ignored tests do nothing.
const CHILD_VARIABLE: &str = "RATE_LIMITED_TEST_CHILD";

/// Runs one ignored test of this binary in a child process, with these variables and without `RATE_LIMITED_URL`.
/// Returns its output.
#[track_caller]
pub(crate) fn run(test: &str, variables: &[(&str, impl AsRef<OsStr> + Debug)]) -> String {
    let output = command(test, variables).output().expect("this program runs");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let has_passed = output.status.success() && printed.contains("1 passed");
    if !has_passed {
        // The harness prints the panic's message after all tests, and a log may be cut off before that.
        let _ = writeln!(stderr(), "{test} with {variables:?} failed:\n{printed}");
    }
    assert!(has_passed, "{test} with {variables:?}:\n{printed}");
    printed.into_owned()
}

/// Returns the command that runs the test as [`run`] does.
pub(crate) fn command(test: &str, variables: &[(&str, impl AsRef<OsStr>)]) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program's path"));
    command
        .args(["--ignored", "--exact", "--nocapture", test])
        .env_remove("RATE_LIMITED_URL")
        // The variables that name trusted certificates.
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR")
        .env(CHILD_VARIABLE, "1")
        .envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// Returns true in a child process. In others an ignored test that is run by hand does nothing.
pub(crate) fn is_child() -> bool {
    env::var_os(CHILD_VARIABLE).is_some()
}

/// Returns one of the variables given to [`run`].
#[track_caller]
pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
