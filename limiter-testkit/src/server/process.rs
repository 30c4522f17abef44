//! The process of a server, and the watchdog that kills it.

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

const LOG_FILE: &str = "redis.log";

/// A script that waits for a line and then becomes the server. So the watchdog has the process id before a server
/// exists that could be left behind.
const GATE_SCRIPT: &str = r#"read -r go && exec "$@" </dev/null"#;

/// A script that reads the server's process id. A second line means that the owner has killed the server. The end of
/// the input alone means that the owner is gone: then the script kills the server and removes its directory.
const WATCHDOG_SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r server && read -r ended && exit 0
[ -n "$server" ] && kill -s KILL "$server"
rm -rf -- "$1""#;

/// A running server. It ends when this value is dropped, and also when this process ends, even by `SIGKILL`. A watchdog
/// reads from a pipe that only this process holds open.
#[derive(Debug)]
pub(super) struct Process {
    server: Child,
    watchdog: Child,
    watchdog_pipe: Option<ChildStdin>,
}

/// The reason why a server did not start.
#[derive(Debug)]
pub(super) enum StartFailure {
    /// Another process listens on the server's port.
    PortTaken(String),
    /// Any other reason.
    Other(String),
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortTaken(message) | Self::Other(message) => f.write_str(message),
        }
    }
}

impl Process {
    /// Starts the server in `directory`, which has its configuration, and waits for its first reply.
    pub(super) fn start(config: &Config, directory: &Path, deadline: Duration) -> Result<Self, StartFailure> {
        let give_up_at = Instant::now() + deadline;
        let mut process = Self::spawn(config, directory).expect("starting a process");
        loop {
            if let Some(status) = process.server.try_wait().expect("the status of a child process") {
                return Err(StartFailure::new(&format!("redis-server ended while starting ({status})"), directory));
            }
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StartFailure::new(&format!("redis-server did not reply within {deadline:?}"), directory));
            }
            if config
                .client(left)
                .and_then(|mut client| client.call(&["PING"]))
                .is_ok_and(|reply| reply == pong_reply())
            {
                return Ok(process);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn spawn(config: &Config, directory: &Path) -> io::Result<Self> {
        let log = File::create(directory.join(LOG_FILE))?;
        // Both get their own process groups. An interrupt from the keyboard then reaches the tests alone, and the
        // watchdog kills the server.
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG_SCRIPT, "watchdog"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let mut watchdog_pipe = watchdog.stdin.take().expect("a piped stdin");
        let mut server = Command::new("sh")
            .args(["-c", GATE_SCRIPT, "gate"])
            .arg(binary::program())
            .args(config.arguments(directory))
            .envs(config.clock.iter().flat_map(ShiftedClock::environment))
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let mut gate = server.stdin.take().expect("a piped stdin");
        writeln!(watchdog_pipe, "{}", server.id())?;
        writeln!(gate, "go")?;
        Ok(Self { server, watchdog, watchdog_pipe: Some(watchdog_pipe) })
    }

    /// Stops the process and returns once it is stopped.
    pub(super) fn pause(&self) {
        self.signal("STOP");
        // Systems without this file deliver the signal quickly enough.
        let status = format!("/proc/{}/stat", self.server.id());
        let give_up_at = Instant::now() + Duration::from_secs(1);
        while fs::read_to_string(&status).is_ok_and(|text| !text.contains(") T ")) && Instant::now() < give_up_at {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends a signal by the shell, whose `kill` is built in: small systems have no program of that name.
    fn signal(&self, name: &str) {
        let server = self.server.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &server]).status();
        assert!(status.is_ok_and(|status| status.success()), "could not send {name} to redis-server");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog gets its second line before the server is reaped. Until then the system cannot reuse the process
        // id.
        let _ = self.server.kill();
        if let Some(mut pipe) = self.watchdog_pipe.take() {
            let _ = writeln!(pipe, "ended");
        }
        let _ = self.server.wait();
        let _ = self.watchdog.wait();
    }
}

impl StartFailure {
    fn new(what: &str, directory: &Path) -> Self {
        let tail = log_tail(directory);
        let message = format!("{what}\n{tail}");
        if tail.contains("Address already in use") { Self::PortTaken(message) } else { Self::Other(message) }
    }
}

fn pong_reply() -> Reply {
    Reply::Status("PONG".to_owned())
}

/// Returns the last lines of the log in a server's directory, with a heading.
pub(super) fn log_tail(directory: &Path) -> String {
    let log = fs::read(directory.join(LOG_FILE)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(40)..];
    format!("the end of redis-server's log:\n  {}", tail.join("\n  "))
}
