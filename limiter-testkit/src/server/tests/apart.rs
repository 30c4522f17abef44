//! What needs a process or an environment of its own: this test binary is started once more, for one case in it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, fs, thread};

use super::*;

const CASE: &str = "LIMITER_TESTKIT_CASE";
const BINARY: &str = "RATE_LIMITED_REDIS_SERVER";

/// Not a test by itself: the cases that the tests below start.
#[test]
fn case() {
    match env::var(CASE).as_deref() {
        Ok("start") => drop(RedisServer::start()),
        Ok("killed") => {
            let mut server = RedisServer::start();
            server.restart();
            println!("socket={}=", server.socket().display());
            server.pause(); // not even then
            thread::sleep(Duration::from_secs(60));
        }
        Ok("shared") => println!("socket={}=", RedisServer::shared().socket().display()),
        Ok("hanging") => {
            let directory = tempfile::tempdir().expect("a directory");
            let config = Config::on(directory.path());
            let failure = Process::start(&config, directory.path(), Duration::from_millis(200));
            panic!("{}", failure.expect_err("it never answers"));
        }
        _ => {}
    }
}

fn start(case: &str, binary: Option<&Path>) -> Child {
    let mut command = Command::new(env::current_exe().expect("the path of this test"));
    command.args(["server::tests::apart::case", "--exact", "--nocapture"]).env(CASE, case);
    if let Some(binary) = binary {
        command.env(BINARY, binary);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("this test again")
}

/// What it said before it failed.
fn failing(case: &str, binary: &Path) -> String {
    let output = start(case, Some(binary)).wait_with_output().expect("our own child");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The path it prints.
fn socket_in(output: impl Read) -> PathBuf {
    let find = |line: io::Result<String>| line.ok()?.split('=').nth(1).map(PathBuf::from);
    BufReader::new(output).lines().find_map(find).expect("the path of its socket")
}

#[track_caller]
fn assert_vanishes(directory: &Path) {
    let until = Instant::now() + DEADLINE;
    while fs::exists(directory).expect("a readable parent") {
        assert!(Instant::now() < until, "{} is left behind", directory.display());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_server_does_not_outlive_a_killed_process() {
    let mut process = start("killed", None);
    let socket = socket_in(process.stdout.take().expect("a piped stdout"));
    let mut connection = UnixStream::connect(&socket).expect("it listens");
    connection.set_read_timeout(Some(DEADLINE)).expect("not zero");
    process.kill().expect("our own child");
    process.wait().expect("our own child");
    // The end of the stream, or a reset when the server had not even accepted: only not silence.
    let read = connection.read(&mut [0; 1]);
    let silent = read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!silent, "the server is still there");
    assert_vanishes(socket.parent().expect("its directory"));
}

/// No value is dropped there, because it is in a static.
#[test]
fn the_shared_server_ends_with_its_process() {
    let output = start("shared", None).wait_with_output().expect("our own child");
    assert!(output.status.success());
    let socket = socket_in(&output.stdout[..]);
    assert_vanishes(socket.parent().expect("its directory"));
    assert!(UnixStream::connect(&socket).is_err());
}

#[test]
fn a_missing_binary_is_named_with_what_to_install() {
    let said = failing("start", Path::new("/nowhere/redis-server"));
    assert!(said.contains("cannot run \"/nowhere/redis-server\""), "{said}");
    assert!(said.contains("apt-get install redis-server"), "{said}");
}

#[test]
fn a_server_that_never_answers_is_given_up_and_its_log_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let binary = directory.path().join("mute");
    let script = "#!/bin/sh\n[ $1 = --version ] && echo v=7.0.0 && exit\necho a line of the log\nexec sleep 60\n";
    fs::write(&binary, script).expect("a file of our own");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).expect("a file of our own");
    let said = failing("hanging", &binary);
    assert!(said.contains("did not answer within 200ms"), "{said}");
    assert!(said.contains("a line of the log"), "{said}");
}
