//! What the attribute accepts, which must also run, and what it says about the rest.
//!
//! The messages are those of one compiler, so they are compared only on that one. `TRYBUILD=overwrite` writes them anew.

use std::process::Command;

const PINNED: &str = "rustc 1.95.";

#[test]
fn accepted_shapes_run() {
    trybuild::TestCases::new().pass("ui/pass/*.rs");
}

#[test]
fn rejected_ones_are_explained() {
    let version = Command::new("rustc").arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(PINNED) {
        trybuild::TestCases::new().compile_fail("ui/fail/*.rs");
    } else {
        println!("skipped: messages are compared on {PINNED}x only, this is {version}");
    }
}
