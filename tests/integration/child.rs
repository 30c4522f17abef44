//! Tests that need a process of their own: for its environment, or for what a process has once.

use std::env;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{Write, stderr};
use std::process::Command;

/// Says to the ignored tests of this binary that they were asked for.
const CHILD: &str = "RATE_LIMITED_TEST_CHILD";

/// Runs one ignored test of this binary, with these variables and no limiter named by the environment. Gives what it
/// printed.
#[track_caller]
pub(crate) fn run(test: &str, variables: &[(&str, impl AsRef<OsStr> + Debug)]) -> String {
    let program = env::current_exe().expect("this program's path");
    let output = Command::new(program)
        .args(["--ignored", "--exact", "--nocapture", test])
        .env_remove("RATE_LIMITED_URL")
        // Which certificates a process trusts.
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR")
        .env(CHILD, "1")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("this program runs");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let is_passed = output.status.success() && printed.contains("1 passed");
    if !is_passed {
        // Also where the harness keeps the panic's message until all tests are over: a log may be cut off before that.
        let _ = writeln!(stderr(), "{test} with {variables:?} failed:\n{printed}");
    }
    assert!(is_passed, "{test} with {variables:?}:\n{printed}");
    printed.into_owned()
}

/// Whether this is such a process. Without it an ignored test that somebody runs by hand has nothing to do.
pub(crate) fn is_one() -> bool {
    env::var_os(CHILD).is_some()
}

/// One of the variables given to [`run`].
#[track_caller]
pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}
