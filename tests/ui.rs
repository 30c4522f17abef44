//! Compile tests of the attribute: accepted code must also run, and rejected code must give the expected messages.
//!
//! Messages differ between compilers, so they are compared on one version only. `TRYBUILD=overwrite` rewrites them.

use std::io::Write;
use std::process::Command;
use std::{env, io};

const PINNED_VERSION: &str = "rustc 1.95.";

#[test]
fn accepted_code_compiles_and_runs() {
    trybuild::TestCases::new().pass("ui/pass/*.rs");
}

#[test]
fn rejected_code_gives_the_expected_messages() {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    match comparison(&version, env::var("CI").is_ok_and(|ci| ci == "true")) {
        Ok(()) => trybuild::TestCases::new().compile_fail("ui/fail/*.rs"),
        // Written to standard error directly, because the harness captures the output of a passing test.
        Err(Skip::Allowed(why)) => writeln!(io::stderr(), "skipped: {why}").expect("standard error"),
        Err(Skip::Forbidden(why)) => panic!("{why}; with CI=true no test is skipped: use that compiler"),
    }
}

/// The reason for not comparing messages.
#[derive(Debug, PartialEq)]
enum Skip {
    Allowed(String),
    Forbidden(String),
}

/// Returns `Ok` if this compiler's messages are to be compared.
fn comparison(version: &str, is_ci: bool) -> Result<(), Skip> {
    if version.starts_with(PINNED_VERSION) {
        return Ok(());
    }
    let why = format!("the expected messages are those of {PINNED_VERSION}x, and this is {}", version.trim());
    Err(if is_ci { Skip::Forbidden(why) } else { Skip::Allowed(why) })
}

#[test]
fn other_compilers_skip_locally_and_fail_in_ci() {
    assert_eq!(comparison("rustc 1.95.3 (abc 2026-04-01)\n", true), Ok(()));
    assert!(matches!(comparison("rustc 1.96.0\n", false), Err(Skip::Allowed(why)) if why.contains("rustc 1.96.0")));
    assert!(matches!(comparison("rustc 1.88.0\n", true), Err(Skip::Forbidden(why)) if why.contains("rustc 1.88.0")));
}
