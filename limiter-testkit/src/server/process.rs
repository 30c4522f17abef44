//! The server's process, and who ends it.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::binary;
use super::clock::ShiftedClock;
use super::config::Config;
use crate::resp::Reply;

const LOG: &str = "redis.log";

/// Becomes the server once it is told to: so the watchdog knows the process before there is a server to leave behind.
const GATE: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Told the process; then either a farewell (the owner has ended it) or, when the owner is gone, only the end of input.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
read -r server && read -r farewell && exit 0
[ -n "$server" ] && kill -s KILL "$server"
rm -rf -- "$1""#;

/// A server that answers. Dropping it ends it; so does the end of this process, even by a `SIGKILL`, because a watchdog
/// reads from a pipe that only this process holds open.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    watchdog: Child,
    line_to_watchdog: Option<ChildStdin>,
}

/// Why there is no server.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody else listens on its port.
    PortTaken(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortTaken(message) | Self::Other(message) => f.write_str(message),
        }
    }
}

impl Process {
    /// Starts it in `directory`, where its configuration has been written, and waits until it answers.
    pub(super) fn start(config: &Config, directory: &Path, deadline: Duration) -> Result<Self, Failure> {
        let until = Instant::now() + deadline;
        let mut process = Self::spawn(config, directory).expect("starting a process");
        loop {
            if let Some(status) = process.server.try_wait().expect("asking for a process of our own") {
                return Err(Failure::of(&format!("redis-server ended while starting ({status})"), directory));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::of(&format!("redis-server did not answer within {deadline:?}"), directory));
            }
            if config.client(left).and_then(|mut client| client.call(&["PING"])).is_ok_and(|reply| reply == pong()) {
                return Ok(process);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn spawn(config: &Config, directory: &Path) -> io::Result<Self> {
        let log = File::create(directory.join(LOG))?;
        // Groups of their own: an interrupt from the keyboard reaches the tests alone, and the watchdog does the rest.
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut line_to_watchdog = watchdog.stdin.take().expect("a piped stdin");
        let mut server = Command::new("sh")
            .args(["-c", GATE, "gate"])
            .arg(binary::program())
            .args(config.arguments(directory))
            .envs(config.clock.iter().flat_map(ShiftedClock::environment))
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let mut gate = server.stdin.take().expect("a piped stdin");
        writeln!(line_to_watchdog, "{}", server.id())?;
        writeln!(gate, "go")?;
        Ok(Self { server, watchdog, line_to_watchdog: Some(line_to_watchdog) })
    }

    /// Returns when the process has stopped.
    pub(super) fn pause(&self) {
        self.signal("STOP");
        // Where the system has no such file, the signal is quick enough.
        let status = format!("/proc/{}/stat", self.server.id());
        let until = Instant::now() + Duration::from_secs(1);
        while fs::read_to_string(&status).is_ok_and(|text| !text.contains(") T ")) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn resume(&self) {
        self.signal("CONT");
    }

    /// By the shell, whose `kill` is built in: small systems have no such program.
    fn signal(&self, name: &str) {
        let server = self.server.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &server]).status();
        assert!(status.is_ok_and(|status| status.success()), "could not send {name} to redis-server");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The farewell is said before the process is awaited: until then nobody else can get its number.
        let _ = self.server.kill();
        if let Some(mut line) = self.line_to_watchdog.take() {
            let _ = writeln!(line, "farewell");
        }
        let _ = self.server.wait();
        let _ = self.watchdog.wait();
    }
}

impl Failure {
    fn of(what: &str, directory: &Path) -> Self {
        let tail = log_tail(directory);
        let message = format!("{what}\n{tail}");
        if tail.contains("Address already in use") { Self::PortTaken(message) } else { Self::Other(message) }
    }
}

fn pong() -> Reply {
    Reply::Status("PONG".to_owned())
}

/// The last lines of the log in a server's directory, with a heading.
pub(super) fn log_tail(directory: &Path) -> String {
    let log = fs::read(directory.join(LOG)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(40)..];
    format!("the end of redis-server's log:\n  {}", tail.join("\n  "))
}
