//! Tests that need a process or an environment of their own. Each starts this test binary again, for one case in it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, fs, thread};

use super::*;

const CASE_VARIABLE: &str = "LIMITER_TESTKIT_CASE";
const BINARY_VARIABLE: &str = "RATE_LIMITED_REDIS_SERVER";

/// The cases that the tests below start. Without the variable this test does nothing.
#[test]
fn case() {
    match env::var(CASE_VARIABLE).as_deref() {
        Ok("start") => drop(RedisServer::start()),
        Ok("killed") => {
            let mut server = RedisServer::start();
            server.restart();
            println!("socket={}=", server.socket().display());
            server.pause(); // a stopped server must end too
            thread::sleep(Duration::from_secs(60));
        }
        Ok("shared") => println!("socket={}=", RedisServer::shared().socket().display()),
        Ok("hanging") => {
            let directory = tempfile::tempdir().expect("a directory");
            let config = Config::new(directory.path());
            let failure = Process::start(&config, directory.path(), Duration::from_millis(200));
            panic!("{}", failure.expect_err("it never answers"));
        }
        _ => {}
    }
}

fn start(case: &str, binary: Option<&Path>) -> Child {
    let mut command = Command::new(env::current_exe().expect("the path of this test"));
    command.args(["server::tests::child_process::case", "--exact", "--nocapture"]).env(CASE_VARIABLE, case);
    if let Some(binary) = binary {
        command.env(BINARY_VARIABLE, binary);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("this test again")
}

/// Runs a case that must fail, and returns its standard error.
fn failure_message(case: &str, binary: &Path) -> String {
    let output = start(case, Some(binary)).wait_with_output().expect("a child process");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the socket's path that a case prints.
fn socket_in(output: impl Read) -> PathBuf {
    let find = |line: io::Result<String>| line.ok()?.split('=').nth(1).map(PathBuf::from);
    BufReader::new(output).lines().find_map(find).expect("the path of its socket")
}

#[track_caller]
fn assert_vanishes(directory: &Path) {
    let give_up_at = Instant::now() + REPLY_TIMEOUT;
    while fs::exists(directory).expect("a readable parent") {
        assert!(Instant::now() < give_up_at, "{} is left behind", directory.display());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_server_does_not_outlive_a_killed_process() {
    let mut process = start("killed", None);
    let socket = socket_in(process.stdout.take().expect("a piped stdout"));
    let mut connection = UnixStream::connect(&socket).expect("it listens");
    connection.set_read_timeout(Some(REPLY_TIMEOUT)).expect("not zero");
    process.kill().expect("a child process");
    process.wait().expect("a child process");
    // The stream ends, or is reset if the server had not accepted it. Only a timeout would prove that the server still
    // runs.
    let read = connection.read(&mut [0; 1]);
    let silent = read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!silent, "the server is still there");
    assert_vanishes(socket.parent().expect("its directory"));
}

/// A static is never dropped, so only the watchdog can end this server.
#[test]
fn the_shared_server_ends_with_its_process() {
    let output = start("shared", None).wait_with_output().expect("a child process");
    assert!(output.status.success());
    let socket = socket_in(&output.stdout[..]);
    assert_vanishes(socket.parent().expect("its directory"));
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn a_missing_binary_is_reported_with_its_packages() {
    let message = failure_message("start", Path::new("/nowhere/redis-server"));
    assert!(message.contains("cannot run \"/nowhere/redis-server\""), "{message}");
    assert!(message.contains("apt-get install redis-server"), "{message}");
}

#[test]
fn a_silent_server_is_reported_with_its_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let binary = directory.path().join("mute");
    let script = "#!/bin/sh\n[ $1 = --version ] && echo v=7.0.0 && exit\necho a line of the log\nexec sleep 60\n";
    fs::write(&binary, script).expect("a file in the temporary directory");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).expect("a file in the temporary directory");
    let message = failure_message("hanging", &binary);
    assert!(message.contains("did not reply within 200ms"), "{message}");
    assert!(message.contains("a line of the log"), "{message}");
}
