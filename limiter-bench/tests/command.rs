//! The command's messages and exit codes for runs that are impossible.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter-bench"));
    let Output { status, stdout, stderr } =
        command.args(arguments).env("RATE_LIMITED_REDIS_SERVER", "/no/such/server").output().expect("it runs");
    (status.code(), text(stdout), text(stderr))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn unknown_cases_alone_exit_with_2() {
    let (code, _, errors) = bench(&["compare", "--cases", "nonsense"]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("limiter-bench: there is no case \"nonsense\""), "{errors}");
}

#[test]
fn known_cases_that_need_no_server_still_run() {
    let (code, tables, errors) = bench(&["compare", "--quick", "--cases", "nonsense,tasks-1,local-denied-2"]);
    assert_eq!(code, Some(1));
    assert_eq!(errors.lines().count(), 2, "a line for each problem: {errors}");
    assert!(
        errors.contains("Redis cannot be started") && errors.contains("cases that need it are left out: tasks-1"),
        "{errors}"
    );
    assert!(tables.contains("(local-denied-2)") && !tables.contains("(tasks-1)"), "{tables}");
    assert!(tables.contains("not met: ") || tables.contains("met: "), "{tables}");
}

#[cfg(feature = "scripts")]
#[test]
fn scripts_without_a_server_exit_with_2() {
    let (code, _, errors) = bench(&["scripts", "--quick"]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("limiter-bench: Redis cannot be started (") && errors.lines().count() == 1, "{errors}");
}

#[cfg(feature = "scale")]
#[test]
fn a_run_at_scale_that_is_impossible_exits_with_2() {
    let out = std::env::temp_dir().join(format!("limiter-scale-command-{}", std::process::id()));
    let out = out.to_string_lossy();
    for (arguments, reason) in [
        (&["--counts", "1000"][..], "limiter-bench: cannot run \"/no/such/server\""),
        (&["--packed", "16384"], "limiter-bench: `--packed` must be left out"),
        (&["--counts", "0"], "error: invalid value '0' for '--counts <COUNTS>'"),
        (&["--minutes", "0"], "error: invalid value '0' for '--minutes <MINUTES>'"),
    ] {
        let (code, _, errors) = bench(&[&["scale", "--out", &out], arguments].concat());
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.starts_with(reason), "{errors}");
    }
    let _ = std::fs::remove_dir(&*out); // the command creates it first
}

#[test]
fn bytes_without_a_server_exit_with_2() {
    let (code, _, errors) = bench(&["bytes", "--servers", "/no/such/server"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.starts_with("limiter-bench: cannot run \"/no/such/server\"") && errors.lines().count() == 1,
        "{errors}"
    );
}

#[test]
fn pages_without_results_exit_with_2() {
    let (code, _, errors) = bench(&["pages", "--out", "/no/such/directory"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.starts_with("limiter-bench: /no/such/directory/performance/results.json cannot be read: "),
        "{errors}"
    );
}
