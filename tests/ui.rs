//! What the attribute accepts, which must also run, and what it says about the rest.
//!
//! The messages are those of one compiler, so they are compared only on that one. `TRYBUILD=overwrite` writes them anew.

use std::io::Write;
use std::process::Command;
use std::{env, io};

const PINNED: &str = "rustc 1.95.";

#[test]
fn accepted_shapes_run() {
    trybuild::TestCases::new().pass("ui/pass/*.rs");
}

#[test]
fn rejected_ones_are_explained() {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    match comparison(&version, env::var("CI").is_ok_and(|ci| ci == "true")) {
        Ok(()) => trybuild::TestCases::new().compile_fail("ui/fail/*.rs"),
        // Past the capture of what tests print: this is to be seen.
        Err(Skip::Allowed(why)) => writeln!(io::stderr(), "skipped: {why}").expect("standard error"),
        Err(Skip::Forbidden(why)) => panic!("{why}; under CI=true nothing is skipped: use that compiler"),
    }
}

/// Why messages are not compared.
#[derive(Debug, PartialEq)]
enum Skip {
    Allowed(String),
    Forbidden(String),
}

/// Decides whether this compiler's messages are compared.
fn comparison(version: &str, is_ci: bool) -> Result<(), Skip> {
    if version.starts_with(PINNED) {
        return Ok(());
    }
    let why = format!("the messages are those of {PINNED}x, and this is {}", version.trim());
    Err(if is_ci { Skip::Forbidden(why) } else { Skip::Allowed(why) })
}

#[test]
fn another_compiler_is_skipped_by_hand_and_a_failure_in_ci() {
    assert_eq!(comparison("rustc 1.95.3 (abc 2026-04-01)\n", true), Ok(()));
    assert!(matches!(comparison("rustc 1.96.0\n", false), Err(Skip::Allowed(why)) if why.contains("rustc 1.96.0")));
    assert!(matches!(comparison("rustc 1.88.0\n", true), Err(Skip::Forbidden(why)) if why.contains("rustc 1.88.0")));
}
